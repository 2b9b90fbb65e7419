"""What SVS-PS sends, as bytes and as values: names, state vectors, mappings and encapsulated publications."""

from syncline.protocols.svs.wire.mapping import MappingData, MappingEntry, decode_mapping, encode_mapping
from syncline.protocols.svs.wire.naming import MappingName, OuterName, mapping_name, outer_name, read_name, sync_name
from syncline.protocols.svs.wire.publication import Outer, decapsulate, encapsulate
from syncline.protocols.svs.wire.vector import StateVector, decode_vector, encode_vector

__all__ = [
    "MappingData",
    "MappingEntry",
    "MappingName",
    "Outer",
    "OuterName",
    "StateVector",
    "decapsulate",
    "decode_mapping",
    "decode_vector",
    "encapsulate",
    "encode_mapping",
    "encode_vector",
    "mapping_name",
    "outer_name",
    "read_name",
    "sync_name",
]
