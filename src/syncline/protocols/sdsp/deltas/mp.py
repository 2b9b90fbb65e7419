"""`X-mp`: JSON Merge Patch (RFC 7396). Short and readable, but it cannot say null and replaces arrays whole; `make`
answers None for what it cannot say."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from syncline.core.errors import DeltaError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.deltas.base import Budget, measure
from syncline.protocols.sdsp.wire import ObjectKind


class MergePatch:
    """RFC 7396."""

    code = "X-mp"
    kinds = frozenset({ObjectKind.JSON})

    def make(self, old: Any, new: Any) -> Any | None:
        if new is None:  # at the root null stands for itself, but our None says "cannot"
            return None
        try:
            return _difference(old, new)
        except _Inexpressible:
            return None

    def apply(self, old: Any, delta: Any, budget: Budget, *, in_place: bool = False) -> Any:
        if isinstance(delta, bytes):
            raise DeltaError("a merge patch is JSON", reason=Reason.MALFORMED)
        budget.grow(measure(delta, budget).size)
        return _merged(old, delta, budget, in_place)


class _Inexpressible(Exception):
    """The change cannot be said in a merge patch."""


def _difference(old: Any, new: Any) -> Any:
    if type(new) is not dict:
        return new
    if type(old) is not dict:
        _check_no_null(new)
        return new
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old or _encode(old[key]) != _encode(value):
            if value is None:
                raise _Inexpressible
            changed = _difference(old.get(key), value)
            if not (changed == {} and type(old.get(key)) is dict):  # only the order of members differs
                patch[key] = changed
    return patch


def _check_no_null(value: dict[str, Any]) -> None:
    """RFC 7396 drops null members of an object it adds; inside arrays they stay."""
    for item in value.values():
        if item is None:
            raise _Inexpressible
        if type(item) is dict:
            _check_no_null(item)


def _merged(target: Any, patch: Any, budget: Budget, in_place: bool) -> Any:
    if type(patch) is not dict:
        return patch
    if type(target) is dict:
        if not in_place:
            budget.toil(len(target) >> 4)
        result = target if in_place else target.copy()
    else:
        result = {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value, budget, in_place)
    return result


_encode: Final = msgspec.json.Encoder().encode
