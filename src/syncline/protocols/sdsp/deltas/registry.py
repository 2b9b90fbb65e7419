"""Which delta algorithms this installation knows: the built-in ones and those of installed packages.

A package adds one by an entry point of the group `syncline.sdsp.deltas` that names a class (or instance) with the
interface in base. Its code must start with `X-`; it cannot replace a built-in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from syncline.core.errors import DeltaError, UsageError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.deltas.base import Budget, Delta
from syncline.protocols.sdsp.deltas.jp import JsonPatch
from syncline.protocols.sdsp.deltas.md import MyersDiff
from syncline.protocols.sdsp.deltas.mp import MergePatch
from syncline.protocols.sdsp.deltas.vcdiff import Vcdiff
from syncline.protocols.sdsp.wire import CUSTOM_PREFIX, ObjectKind

GROUP: Final = "syncline.sdsp.deltas"
_DEFAULTS: Final = {ObjectKind.JSON: "jp", ObjectKind.TEXT: "md", ObjectKind.BINARY: "X-vcdiff"}


class Deltas(Mapping[str, Delta]):
    """Delta algorithms by their code. `problems` says, by entry point, why a plug-in could not be used."""

    def __init__(self, extra: Iterable[Delta] = (), problems: Mapping[str, str] | None = None) -> None:
        self._by_code: dict[str, Delta] = {d.code: d for d in (JsonPatch(), MyersDiff(), MergePatch(), Vcdiff())}
        self.problems: dict[str, str] = dict(problems or {})
        for delta in extra:
            self._add(delta)

    @classmethod
    def installed(cls) -> Deltas:
        """The built-in algorithms and every plug-in found; one that cannot be loaded stops nobody."""
        found: list[Delta] = []
        problems: dict[str, str] = {}
        for point in entry_points(group=GROUP):
            try:
                loaded = point.load()
                delta = loaded() if isinstance(loaded, type) else loaded
                cls([*found, delta])
                found.append(delta)
            except Exception as error:
                problems[f"{point.name} = {point.value}"] = f"{type(error).__name__}: {error}"
        return cls(found, problems)

    def default(self, kind: ObjectKind) -> Delta:
        """The algorithm a publisher uses for this kind of object unless told otherwise."""
        return self._by_code[_DEFAULTS[kind]]

    def _add(self, delta: Delta) -> None:
        if not isinstance(delta, Delta):
            raise UsageError(f"{delta!r} has not the interface of a delta algorithm")
        if not delta.code.startswith(CUSTOM_PREFIX):
            raise UsageError(f"the code {delta.code!r} of a delta plug-in must start with {CUSTOM_PREFIX}")
        if delta.code in self._by_code:
            raise UsageError(f"there is a delta algorithm {delta.code} already")
        self._by_code[delta.code] = _Guarded(delta)

    def __getitem__(self, code: str) -> Delta:
        return self._by_code[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_code)

    def __len__(self) -> int:
        return len(self._by_code)


class _Guarded:
    """A plug-in as the built-in algorithms promise to be: whatever it stumbles over is a delta that does not fit.

    It never works in place: nobody but its author knows what it leaves behind when it stumbles.
    """

    def __init__(self, inner: Delta) -> None:
        self._inner = inner
        self.code = inner.code
        self.kinds = inner.kinds

    def make(self, old: Any, new: Any) -> Any | None:
        return self._inner.make(old, new)

    def apply(self, old: Any, delta: Any, budget: Budget, *, in_place: bool = False) -> Any:
        try:
            return self._inner.apply(old, delta, budget)
        except DeltaError:
            raise
        except Exception as error:
            raise DeltaError(
                f"the plug-in for {self.code} fails: {type(error).__name__}: {error}", reason=Reason.INVALID_PAYLOAD
            ) from error
