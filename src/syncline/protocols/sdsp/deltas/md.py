"""`md`: Myers diff of texts, in the delta form of diff-match-patch: `=n` keep, `-n` drop, `+text` insert, TAB between.

Lengths count UTF-16 code units, as every JavaScript peer does; inserted text is percent-encoded like ECMAScript's
encodeURI with spaces left as they are. A delta must account for the whole old text.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from fast_diff_match_patch import diff

from syncline.core.errors import DeltaError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.deltas.base import Budget
from syncline.protocols.sdsp.wire import ObjectKind


class MyersDiff:
    """Texts, and JSON objects that are just a string."""

    code = "md"
    kinds = frozenset({ObjectKind.TEXT, ObjectKind.JSON})

    def make(self, old: Any, new: Any) -> str | None:
        if not isinstance(old, str) or not isinstance(new, str):
            return None
        # line mode (checklines) gives wrong results on large inputs; after the time limit the rest is replaced whole
        parts = diff(old, new, timelimit=1, checklines=False, cleanup="Efficiency", counts_only=False)
        return "\t".join(
            f"+{quote(text, safe=_SAFE)}" if sign == "+" else f"{sign}{_units(text)}" for sign, text in parts
        )

    def apply(self, old: Any, delta: Any, budget: Budget, *, in_place: bool = False) -> str:
        if not isinstance(old, str) or not isinstance(delta, str):
            raise DeltaError("md changes a text by a text", reason=Reason.MALFORMED)
        budget.grow(len(delta))
        source = old.encode("utf-16-le")
        parts: list[bytes] = []
        at = 0
        for token in delta.split("\t"):
            sign, operand = token[:1], token[1:]
            if sign == "+":
                parts.append(_inserted(operand))
            elif sign:
                end = at + 2 * _count(sign, operand)
                if end > len(source):
                    raise _unfit("the delta reaches past the end of the text")
                if sign == "=":
                    parts.append(source[at:end])
                at = end
        if at != len(source):
            raise _unfit("the delta does not account for the whole text")
        try:
            return b"".join(parts).decode("utf-16-le")
        except UnicodeDecodeError:
            raise _unfit("the delta leaves half a surrogate pair") from None


_SAFE: Final = "!~*'();/?:@&=+$,# "  # what encodeURI leaves alone, and the space
# decodeURI refuses a lone % and leaves escapes of ;/?:@&=+$,# as they are, where others decode; no writer makes any
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})|%(?:2[346BCF]|3[ABDF]|40)", re.IGNORECASE)
_COUNT: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


def _units(text: str) -> int:
    """UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _count(sign: str, operand: str) -> int:
    if sign not in "=-" or _COUNT.fullmatch(operand) is None:
        raise DeltaError(f"{(sign + operand)[:20]!r} is not a step of an md delta", reason=Reason.MALFORMED)
    return int(operand)


def _inserted(operand: str) -> bytes:
    if _BAD_ESCAPE.search(operand):
        raise DeltaError("inserted text is wrongly percent-encoded", reason=Reason.MALFORMED)
    try:
        return unquote_to_bytes(operand).decode().encode("utf-16-le")
    except UnicodeError:
        raise DeltaError("inserted text is not UTF-8", reason=Reason.MALFORMED) from None


def _unfit(message: str) -> DeltaError:
    return DeltaError(message, reason=Reason.INVALID_PAYLOAD)
