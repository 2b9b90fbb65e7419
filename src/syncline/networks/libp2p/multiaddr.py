"""Multiaddrs of the kinds a TCP host meets, as text and as bytes: /ip4 /ip6 /dns /dns4 /dns6, /tcp, /p2p, /memory.

Other protocols are refused in text and kept as nothing in bytes: a peer may listen where we cannot dial.
"""

from __future__ import annotations

import ipaddress
from typing import Final

import base58
import msgspec

from syncline.core.errors import DecodeError, UsageError
from syncline.core.keys import PEER_ID_PREFIX, public_of_peer_id
from syncline.formats.framing import decode_varint, encode_varint

_HOSTS: Final = {"ip4": 4, "ip6": 41, "dns": 53, "dns4": 54, "dns6": 55, "memory": 777}
_NAMES: Final = {code: name for name, code in _HOSTS.items()}
_TCP: Final = 6
_P2P: Final = 421
_SIZES: Final = {4: 4, 41: 16}


class Address(msgspec.Struct, frozen=True):
    """Where a peer listens: a host, a TCP port and, if known, who must answer there."""

    kind: str  # ip4, ip6, dns, dns4, dns6 or memory
    host: str
    port: int
    peer: str = ""

    def __str__(self) -> str:
        place = f"/memory/{self.host}" if self.kind == "memory" else f"/{self.kind}/{self.host}/tcp/{self.port}"
        return place + (f"/p2p/{self.peer}" if self.peer else "")

    def to_bytes(self) -> bytes:
        """The binary form, without the peer, as identify carries it."""
        if self.kind in ("ip4", "ip6"):
            host = ipaddress.ip_address(self.host).packed
        else:
            host = encode_varint(len(self.host.encode())) + self.host.encode()
        tail = b"" if self.kind == "memory" else encode_varint(_TCP) + self.port.to_bytes(2, "big")
        return encode_varint(_HOSTS[self.kind]) + host + tail

    def with_peer(self, peer: str) -> Address:
        return msgspec.structs.replace(self, peer=peer)


def parse(text: str) -> Address:
    """Read `/ip4/127.0.0.1/tcp/7071/p2p/12D3KooW…`."""
    parts = text.split("/")
    if len(parts) < 3 or parts[0]:
        raise UsageError("not a multiaddr", hint="write /ip4/HOST/tcp/PORT/p2p/PEERID", about=text[:200])
    kind, host, rest = parts[1], parts[2], parts[3:]
    if kind not in _HOSTS:
        raise UsageError(f"/{kind} cannot be dialled", hint=f"one of {', '.join(_HOSTS)}", about=text[:200])
    port = 0
    if kind != "memory":
        if len(rest) < 2 or rest[0] != "tcp" or not rest[1].isdecimal() or int(rest[1]) > 65_535:
            raise UsageError("a multiaddr needs /tcp/PORT", about=text[:200])
        port, rest = int(rest[1]), rest[2:]
    peer = ""
    if rest:
        if len(rest) != 2 or rest[0] not in ("p2p", "ipfs"):
            raise UsageError("only /p2p/PEERID may follow the port", about=text[:200])
        peer = rest[1]
        try:
            public_of_peer_id(peer)
        except DecodeError as error:
            raise UsageError(f"{error.message} in a multiaddr", about=text[:200]) from None
    return Address(kind, _checked_host(kind, host, text), port, peer)


def from_bytes(data: bytes) -> Address | None:
    """Read the binary form; None for addresses of a kind we do not dial."""
    try:
        code, position = _varint(data, 0)
        kind = _NAMES.get(code)
        if kind is None:
            return None
        size, position = (_SIZES[code], position) if code in _SIZES else _varint(data, position)
        raw, position = data[position : position + size], position + size
        host = str(ipaddress.ip_address(raw)) if code in _SIZES else raw.decode()
        port = 0
        if kind != "memory":
            code, position = _varint(data, position)
            if code != _TCP or position + 2 > len(data):
                return None
            port, position = int.from_bytes(data[position : position + 2], "big"), position + 2
        peer = ""
        if position < len(data):
            code, position = _varint(data, position)
            size, position = _varint(data, position)
            multihash = data[position : position + size]
            if code != _P2P or position + size != len(data) or size != 38 or not multihash.startswith(PEER_ID_PREFIX):
                return None
            peer = base58.b58encode(multihash).decode()
        return Address(kind, host, port, peer)
    except (DecodeError, ValueError):
        return None


def _varint(data: bytes, position: int) -> tuple[int, int]:
    found = decode_varint(data, position)
    if found is None:
        raise DecodeError("a multiaddr is cut short")
    return found


def _checked_host(kind: str, host: str, text: str) -> str:
    try:
        if kind == "ip4":
            return str(ipaddress.IPv4Address(host))
        if kind == "ip6":
            return str(ipaddress.IPv6Address(host))
    except ValueError:
        raise UsageError(f"{host!r} is not an {kind} address", about=text[:200]) from None
    if not host or len(host) > 253:
        raise UsageError("a multiaddr needs a host", about=text[:200])
    return host
