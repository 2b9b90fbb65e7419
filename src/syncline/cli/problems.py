"""From whatever ended a command to the one line a user reads: whose fault it was, and what to do.

Faults of ours are not dressed up: for those there is no such line.
"""

from __future__ import annotations

from collections.abc import Iterator

from typer import TyperException

from syncline.core.errors import ClosedError, CorruptionError, MissingError, SynclineError, UsageError


def told(error: BaseException) -> SynclineError | None:
    """The error to show for this one; None if it is a fault of ours."""
    if isinstance(error, BaseExceptionGroup):
        return _first(error)
    if isinstance(error, SynclineError):
        return error
    if isinstance(error, TyperException):
        return _misused(error)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] != "syncline":
        return MissingError(f"this needs the package {error.name}", hint="run `pip install 'syncline[all]'`")
    if isinstance(error, OSError) and error.strerror:
        about = " -> ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
        return SynclineError(error.strerror, about=about)
    return None


def _first(group: BaseExceptionGroup[BaseException]) -> SynclineError | None:
    """The cause among errors of tasks that ran together: damage before all, and what others merely suffered last."""
    found = [told(error) for error in _leaves(group)]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    return min(known, key=lambda each: (not isinstance(each, CorruptionError), isinstance(each, ClosedError)))


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _misused(error: TyperException) -> SynclineError:
    """A call that is not one: what is wrong with it, and where to read how it is meant."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "syncline"
    message = " ".join(error.format_message().split()).rstrip(".")
    return UsageError(message or "a command is missing", hint=f"see `{command} --help`")
