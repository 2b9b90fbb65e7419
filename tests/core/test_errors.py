from __future__ import annotations

import inspect
import pickle

import pytest

from syncline.core import errors
from syncline.core.errors import CorruptionError, DecodeError, SynclineError, UnreachableError, UsageError
from syncline.core.verdict import Outcome, Reason

TREE = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, SynclineError)]


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert errors.__doc__ is not None
    assert [kind.__name__ for kind in TREE if kind.__name__ not in errors.__doc__] == []


@pytest.mark.parametrize("kind", TREE)
def test_every_error_survives_the_way_between_processes(kind: type[SynclineError]) -> None:
    extra = {"reason": Reason.OVERSIZE} if "reason" in inspect.signature(kind).parameters else {}
    error = kind("went wrong", hint="do this", about="here", **extra)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.hint, copy.__dict__) == ("went wrong [here]", "do this", error.__dict__)


def test_exit_codes_are_the_documented_ones() -> None:
    codes = {kind.exit_code for kind in TREE}
    assert codes == {1, 2, 3, 4}
    assert (UsageError.exit_code, UnreachableError.exit_code, CorruptionError.exit_code) == (2, 3, 4)


def test_a_decode_error_becomes_a_reject_with_its_reason() -> None:
    verdict = DecodeError("too long", reason=Reason.OVERSIZE, about="a.b").verdict
    assert (verdict.outcome, verdict.reason, verdict.detail) == (Outcome.REJECT, Reason.OVERSIZE, "too long [a.b]")
