"""The time a payload is about, as a number the journal can look up: the `seq` of a record.

A text has the place of its digits, `2026-03-01T12:34:56.7` that of 20260301123456; a number that of its whole part. What
counts is that places have the order of the values filters compare, whatever a stranger wrote into the field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from syncline.core.record import SEQ_MAX
from syncline.formats.flatbuffers import Kind
from syncline.protocols.sds.catalogue import standard

_FORM: Final = "0000-00-00T00:00:00"
_DIGITS: Final = _FORM.count("0")

# By schema, the field that says of what time a message speaks. Schemas without one are about no single time.
EPOCH_FIELDS: Final[dict[str, str]] = {
    "BOV": "EPOCH", "CAT": "LAUNCH_DATE", "CDM": "TCA", "CSM": "TCA", "EOO": "OB_TIME", "EOP": "DATE",
    "HYP": "EVENT_START_TIME", "MPE": "EPOCH", "OEM": "CREATION_DATE", "OMM": "EPOCH", "PNM": "PUBLISH_TIMESTAMP",
    "TDM": "EPOCH",
}  # fmt: skip


def epoch_of(schema: str, payload: Mapping[str, Any]) -> int | None:
    """The place of a payload; None where its schema has no such field or it is left out."""
    name = EPOCH_FIELDS.get(schema)
    if name is None:
        return None
    value = payload.get(name)
    if value is None:
        [field] = standard(schema).schema.at(name)
        value = field.default if field.kind is Kind.SCALAR else None  # a number that is left out is its default
    return place(value)


def place(value: Any) -> int | None:
    """The place of a value; of two values of a field the greater one never has the smaller place."""
    if isinstance(value, str):
        return _of_text(value)
    if value is None or math.isnan(value):
        return None  # equal to nothing, before nothing
    return int(min(max(value, 0), SEQ_MAX))


def _of_text(text: str) -> int:
    """The digits as far as the text has the form of a time. The rest is all noughts if it sorts before that form, all
    nines if it sorts after it."""
    digits = ""
    for found, expected in zip(text.ljust(len(_FORM), "\0"), _FORM, strict=False):
        low, high = ("0", "9") if expected == "0" else (expected, expected)
        if not low <= found <= high:
            return int(digits.ljust(_DIGITS, "0" if found < low else "9"))
        digits += found if expected == "0" else ""
    return int(digits)
