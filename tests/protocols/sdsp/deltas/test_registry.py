"""Which algorithms are known: the built-in ones, and those of installed packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from syncline.core.errors import UsageError
from syncline.protocols.sdsp.deltas import Budget, Delta, Deltas
from syncline.protocols.sdsp.rebuild import Cause, Problem, Status, rebuild
from syncline.protocols.sdsp.wire import ObjectKind, delta_frame, full_frame


class Whole:
    """The simplest algorithm: the delta is the new object."""

    code = "X-whole"
    kinds = frozenset({ObjectKind.JSON})

    def make(self, old: Any, new: Any) -> Any:
        return new

    def apply(self, old: Any, delta: Any, budget: Budget, *, in_place: bool = False) -> Any:
        return delta


def test_the_built_in_algorithms_are_there_and_have_the_interface() -> None:
    deltas = Deltas()
    assert sorted(deltas) == ["X-mp", "X-vcdiff", "jp", "md"]
    assert len(deltas) == 4
    assert all(isinstance(delta, Delta) and delta.code == code for code, delta in deltas.items())
    assert [deltas.default(kind).code for kind in ObjectKind] == ["jp", "md", "X-vcdiff"]


def test_another_algorithm_can_be_added() -> None:
    assert Deltas([Whole()])["X-whole"].apply(1, 2, Budget()) == 2


def test_a_plug_in_that_stumbles_makes_the_object_stale_and_stops_nobody() -> None:
    class Stumbling(Whole):
        def apply(self, old: Any, delta: Any, budget: Budget, *, in_place: bool = False) -> Any:
            assert not in_place
            raise KeyError("oops")

    frames = [full_frame("a", 0, {"n": 0}), delta_frame("a", 1, 1, "X-whole", {"n": 1}), full_frame("a", 2, {"n": 2})]
    found = rebuild(None, frames[:2], Deltas([Stumbling()]), in_place=True)
    assert found.state is not None
    assert (found.state.serial, found.state.status) == (0, Status.STALE)
    assert found.problems == [Problem(Cause.DELTA_FAILED, 1, "the plug-in for X-whole fails: KeyError: 'oops'")]
    mended = rebuild(found.state, frames[2:], Deltas([Stumbling()]))
    assert mended.state is not None
    assert (mended.state.value, mended.state.status) == ({"n": 2}, Status.SYNCED)


@pytest.mark.parametrize("code", ["whole", "jp", "X-vcdiff"])
def test_a_plug_in_cannot_take_a_reserved_or_built_in_code(code: str) -> None:
    plug_in = Whole()
    plug_in.code = code
    with pytest.raises(UsageError):
        Deltas([plug_in])


def test_something_else_is_no_algorithm() -> None:
    with pytest.raises(UsageError):
        Deltas([object()])  # type: ignore[list-item]


def test_an_installed_plug_in_is_found_and_a_broken_one_stops_nobody(tmp_path: Path) -> None:
    package = tmp_path / "whole_delta"
    package.mkdir()
    (package / "__init__.py").write_text(
        "class Whole:\n"
        "    code = 'X-whole'\n"
        "    kinds = frozenset({'json'})\n"
        "    def make(self, old, new): return new\n"
        "    def apply(self, old, delta, budget, *, in_place=False): return delta\n"
        "class Reserved(Whole):\n"
        "    code = 'jp'\n"
    )
    info = tmp_path / "whole_delta-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: whole-delta\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[syncline.sdsp.deltas]\nwhole = whole_delta:Whole\nreserved = whole_delta:Reserved\nmissing = not_there:Delta\n"
    )
    script = (
        "from syncline.protocols.sdsp.deltas import Deltas\n"
        "deltas = Deltas.installed()\n"
        "print(sorted(deltas), deltas['X-whole'].make(1, 2), *sorted(deltas.problems))\n"
    )
    paths = [str(tmp_path), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": ":".join(paths)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        "['X-mp', 'X-vcdiff', 'X-whole', 'jp', 'md'] 2 missing = not_there:Delta reserved = whole_delta:Reserved\n"
    )
