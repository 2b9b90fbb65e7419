"""What a check is, and how checks are run. What they check is in the modules beside this one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar

import anyio
import msgspec

S = TypeVar("S")
SECONDS: Final = 30.0  # one check


class NotConforming(AssertionError):
    """A promise that is not kept."""


def expect(found: object, wanted: object, what: str) -> None:
    """`assert found == wanted`, also under python -O and without pytest's help."""
    if found != wanted:
        raise NotConforming(f"{what}: {found!r}, not {wanted!r}")


class Check(Generic[S]):
    """One promise. `name` says it as a sentence; `applies` whether this subject makes it."""

    def __init__(
        self, attempt: Callable[[S], Awaitable[None]], needs: Callable[[S], bool] = lambda subject: True
    ) -> None:
        self.name = attempt.__name__.replace("_", " ")
        self._attempt, self._needs = attempt, needs

    def __repr__(self) -> str:
        return self.name

    def applies(self, subject: S) -> bool:
        return self._needs(subject)

    async def __call__(self, subject: S) -> None:
        """Raises NotConforming if the promise is broken or nothing happens; what the subject itself raises comes through."""
        try:
            with anyio.fail_after(SECONDS):
                await self._attempt(subject)
        except TimeoutError:
            raise NotConforming(f"{self.name}: nothing happened for {SECONDS:.0f} s") from None


class Result(msgspec.Struct, frozen=True):
    """What came of a check: no problem, or the first one."""

    check: str
    problem: str = ""
    applies: bool = True

    @property
    def passed(self) -> bool:
        return not self.problem


async def examine(
    checks: Sequence[Check[Any]], opening: Callable[[], AbstractAsyncContextManager[Any]]
) -> list[Result]:
    """Run checks one after the other, each on a subject opened for it alone."""
    return [await _result(check, opening) for check in checks]


async def _result(check: Check[Any], opening: Callable[[], AbstractAsyncContextManager[Any]]) -> Result:
    try:
        async with opening() as subject:
            if not check.applies(subject):
                return Result(check.name, applies=False)
            await check(subject)
    except Exception as error:
        return Result(check.name, f"{type(error).__name__}: {error}")
    return Result(check.name)
