"""FlatBuffers driven by schemas at run time: checked reading, writing, and whole columns. Knows no protocol."""

from syncline.formats.flatbuffers.faults import Fault
from syncline.formats.flatbuffers.reader import Reader
from syncline.formats.flatbuffers.schema import Enum, Field, Kind, Scalar, Schema, Struct, Table, Union
from syncline.formats.flatbuffers.writer import Writer

__all__ = ["Enum", "Fault", "Field", "Kind", "Reader", "Scalar", "Schema", "Struct", "Table", "Union", "Writer"]
