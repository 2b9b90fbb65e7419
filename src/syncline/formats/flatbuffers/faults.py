"""What can be wrong with a FlatBuffer, as one closed list shared by the row reader and the column decoder.

Whose fault that is and what follows from it is decided by the rules of a protocol.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason


class Fault(IntEnum):
    """The first thing found wrong; 0 is nothing. The text is for people."""

    text: str

    def __new__(cls, value: int, text: str = "") -> Fault:
        member = int.__new__(cls, value)
        member._value_ = value
        member.text = text
        return member

    NONE = 0, ""
    LENGTH = 1, "the size prefix does not match the length of the bytes"
    IDENTIFIER = 2, "the file identifier is not the schema's"
    OFFSET = 3, "an offset points outside the bytes"
    VTABLE = 4, "a vtable is not whole"
    TABLE = 5, "a table is not whole"
    FIELD = 6, "a field lies outside its table"
    STRING = 7, "a string is not whole or not ended by a zero byte"
    ENCODING = 8, "a string is not UTF-8"
    VECTOR = 9, "a vector is not whole"
    ENUM = 10, "an enum holds a value it does not have"
    UNION = 11, "a union's type and value do not belong together"
    COMPLEXITY = 12, "more tables, or more bytes reached through shared offsets, than are believed"
    DEPTH = 13, "tables are nested too deeply"

    @property
    def reason(self) -> Reason:
        return Reason.TOO_COMPLEX if self in (Fault.COMPLEXITY, Fault.DEPTH) else Reason.MALFORMED

    def error(self, path: str = "") -> DecodeError:
        return DecodeError(self.text, reason=self.reason, about=path)


class Allowance(msgspec.Struct, frozen=True):
    """How much one buffer may unpack to. Offsets may be shared, so a small buffer can name the same bytes many times.

    An honest table takes at least eight bytes of its buffer (its start and the offset to it), and honest strings and
    vectors lie side by side; some sharing is allowed, an explosion is not.
    """

    tables: int
    bytes: int

    @classmethod
    def of(cls, length: int) -> Allowance:
        return cls(
            min(limits.FLATBUFFERS_TABLES_MAX, length // TABLE_BYTES_MIN),
            limits.FLATBUFFERS_SHARED_BYTES + limits.FLATBUFFERS_EXPANSION_MAX * length,
        )


TABLE_BYTES_MIN: Final = 8
