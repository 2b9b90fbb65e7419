"""What a delta algorithm is: the interface plug-ins implement, and the budget that keeps hostile deltas small.

The algorithms are beside this file; which ones an installation knows is decided in registry.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from syncline.core import limits
from syncline.core.errors import DeltaError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.wire import ObjectKind


class Budget:
    """How much one delta may still produce and do. Spending too much raises DeltaError.

    `grown` counts bytes the object may have gained so far (what is taken away is not counted back).
    """

    __slots__ = ("grown", "room", "work")

    def __init__(self, room: int = limits.SDSP_OBJECT_MAX, work: int = limits.SDSP_DELTA_WORK) -> None:
        self.room = room
        self.work = work
        self.grown = 0

    def grow(self, size: int) -> None:
        """Call before producing `size` more bytes of the object."""
        self.grown += size
        if self.grown > self.room:
            raise DeltaError("the delta unpacks to more than an object may be", reason=Reason.OVERSIZE)

    def toil(self, elements: int) -> None:
        """Call before touching `elements` more elements than the delta has bytes."""
        self.work -= elements
        if self.work < 0:
            raise DeltaError("the delta asks for more work than one delta may", reason=Reason.TOO_COMPLEX)


@runtime_checkable
class Delta(Protocol):
    """A delta algorithm. Stateless: one instance serves all objects and threads.

    Objects are JSON values (dict with str keys, list, str, int, float, bool, None), `str` for texts, `bytes` for
    binaries. A delta is a JSON value, or `bytes`, which travel as base64.
    """

    code: str
    """What frames name it by. Plug-ins: `X-…`."""

    kinds: frozenset[ObjectKind]
    """The kinds of object it can change."""

    def make(self, old: Any, new: Any) -> Any | None:
        """A delta that turns `old` into exactly `new` (1, 1.0 and true differ); None if this algorithm cannot say it.

        Changes neither. The caller checks the result with `apply` before it is sent.
        """
        ...

    def apply(self, old: Any, delta: Any, budget: Budget, *, in_place: bool = False) -> Any:
        """The object that `delta` makes of `old`. Raises DeltaError, and only that, whatever `delta` is.

        Without `in_place`, `old` is not changed, but the result may share parts with it. With it, the caller owns `old`
        alone and wants it changed; after a DeltaError it is as it was before. Every byte produced and every element
        touched beyond the size of the delta itself is charged to `budget` first.
        """
        ...


class Measure(NamedTuple):
    """How large a JSON value is: roughly its bytes as JSON, and how many containers are nested in it."""

    size: int
    depth: int


def measure(value: Any, budget: Budget) -> Measure:
    """Walk a JSON value and measure it; the walk is charged to `budget`, and endless depth is cut short."""
    size = depth = 0
    level = [value]
    while True:
        budget.toil(len(level))
        size += 2 * len(level)
        inner: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is dict:
                inner.extend(item.values())
                size += sum(map(len, item)) + 3 * len(item)
            elif kind is list:
                inner.extend(item)
            elif kind is str or kind is bytes:
                size += len(item)
            else:
                size += 4
        if not inner and not any(type(item) is dict or type(item) is list for item in level):
            return Measure(size, depth)
        depth += 1
        level = inner
        if depth > limits.SDSP_DEPTH_MAX:
            raise DeltaError(f"nested more than {limits.SDSP_DEPTH_MAX} deep", reason=Reason.TOO_COMPLEX)
