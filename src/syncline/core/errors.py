"""Every error Syncline raises on purpose, with whose fault it is, whether a retry can help and what to do.

    SynclineError
    ├── UsageError                the caller asked for something that cannot be          exit 2
    │   ├── SettingsError           a setting is unknown or has a value it may not have
    │   └── KeyFileError            a key file is missing, unreadable by us or readable by others
    ├── DecodeError               a peer's bytes are not what they claim (carries a Reason)
    │   └── DeltaError              a delta is malformed, does not fit its object or unpacks to too much
    ├── RefusedError              a peer, or our own rule, said no (carries a Reason)
    ├── ConflictError             somebody else changed the same thing first
    ├── FrozenError               the object takes no more updates
    ├── NotFoundError             there is nothing of that name
    ├── UnavailableError          it is there but cannot answer now; trying again can help
    │   ├── OverloadedError         a bounded queue or the disk is full
    │   └── ClosedError             it has been shut down
    ├── UnreachableError          nobody answers at that address                         exit 3
    ├── MissingError              a program or package this needs is not installed
    └── CorruptionError           our own data is damaged: quarantined, never hidden      exit 4

Errors pickle, because they cross Spark workers.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from syncline.core.verdict import Reason, Verdict, reject

Fault = Literal["ours", "peer", "user"]


class SynclineError(Exception):
    """Base of the tree. `str()` is one line for people; `hint` is what to do next."""

    fault: ClassVar[Fault] = "ours"
    retry: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", about: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.about = about  # the record, peer, file or path the error concerns

    def __str__(self) -> str:
        return f"{self.message} [{self.about}]" if self.about else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, {k: v for k, v in self.__dict__.items() if k != "message"})

    @classmethod
    def _restore(cls, message: str, attributes: dict[str, Any]) -> Self:
        error = cls.__new__(cls)
        Exception.__init__(error, message)
        error.message = message
        error.__dict__.update(attributes)
        return error


def _rebuild(cls: type[SynclineError], message: str, attributes: dict[str, Any]) -> SynclineError:
    return cls._restore(message, attributes)


class UsageError(SynclineError):
    fault = "user"
    exit_code = 2


class SettingsError(UsageError):
    pass


class KeyFileError(UsageError):
    pass


class DecodeError(SynclineError):
    """Bytes that are not what they claim to be. `about` is the path of the bad value inside the message."""

    fault = "peer"

    def __init__(self, message: str, *, reason: Reason = Reason.MALFORMED, hint: str = "", about: str = "") -> None:
        super().__init__(message, hint=hint, about=about)
        self.reason = reason

    @property
    def verdict(self) -> Verdict:
        return reject(self.reason, str(self))


class DeltaError(DecodeError):
    pass


class RefusedError(SynclineError):
    fault = "peer"

    def __init__(self, message: str, *, reason: Reason, hint: str = "", about: str = "") -> None:
        super().__init__(message, hint=hint, about=about)
        self.reason = reason


class ConflictError(SynclineError):
    fault = "user"


class FrozenError(SynclineError):
    fault = "user"


class NotFoundError(SynclineError):
    fault = "user"


class UnavailableError(SynclineError):
    retry = True


class OverloadedError(UnavailableError):
    pass


class ClosedError(UnavailableError):
    retry = False


class UnreachableError(SynclineError):
    fault = "peer"
    retry = True
    exit_code = 3


class MissingError(SynclineError):
    fault = "user"


class CorruptionError(SynclineError):
    exit_code = 4


def shown(error: SynclineError) -> dict[str, Any]:
    """The error as a node's answers describe it in JSON; `restored` reads it."""
    reason = getattr(error, "reason", None)
    body = {"type": type(error).__name__, "message": str(error), "hint": error.hint, "retry": error.retry}
    return {**body, **({"reason": reason} if reason else {})}


def restored(told: Any, otherwise: str) -> SynclineError:
    """The error that a node described as JSON in its answer; `otherwise` is what to say if it did not."""
    try:
        kind = globals()[told["error"]["type"]]
        assert issubclass(kind, SynclineError)
        reason = {"reason": Reason(told["error"]["reason"])} if "reason" in told["error"] else {}
        found: SynclineError = kind(told["error"]["message"], hint=told["error"].get("hint", ""), **reason)
    except (AssertionError, KeyError, TypeError, ValueError):
        return SynclineError(otherwise)
    return found
