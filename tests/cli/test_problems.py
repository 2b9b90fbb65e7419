from __future__ import annotations

import pytest

from syncline.cli.problems import told
from syncline.core.errors import ClosedError, CorruptionError, MissingError, UnavailableError, UsageError


def test_of_errors_of_tasks_that_ran_together_the_cause_is_told() -> None:
    suffered, caused = ClosedError("the node is shutting down"), UsageError("the port is taken")
    assert told(ExceptionGroup("", [suffered, ExceptionGroup("", [caused])])) is caused
    assert told(ExceptionGroup("", [suffered])) is suffered


def test_damage_is_told_before_everything_else() -> None:
    damage = CorruptionError("the journal is damaged")
    found = told(ExceptionGroup("", [UnavailableError("away"), damage]))
    assert (found, found.exit_code if found else 0) == (damage, 4)


def test_a_missing_package_is_told_with_what_installs_it() -> None:
    found = told(ModuleNotFoundError("No module named 'hypercorn'", name="hypercorn.trio"))
    assert isinstance(found, MissingError)
    assert (str(found), found.hint) == ("this needs the package hypercorn.trio", "run `pip install 'syncline[all]'`")


@pytest.mark.parametrize(
    "fault",
    [
        ZeroDivisionError(),
        ModuleNotFoundError("No module named 'syncline.x'", name="syncline.x"),
        ExceptionGroup("", [UsageError("the port is taken"), AssertionError()]),
    ],
)
def test_a_fault_of_ours_is_not_dressed_up(fault: Exception) -> None:
    assert told(fault) is None
