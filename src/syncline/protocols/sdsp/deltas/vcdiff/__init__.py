"""VCDIFF (RFC 3284): codec writes and reads deltas, codes holds the tables, matches finds what need not be sent."""

from syncline.protocols.sdsp.deltas.vcdiff.codec import Vcdiff, decode, encode

__all__ = ["Vcdiff", "decode", "encode"]
