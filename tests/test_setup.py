"""Set-up names what it cannot install, with the line that does; with CI=true a lack and a skip are failures."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def setup(root: Path, *arguments: str, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run tools/setup.py below `root`, finding only the programs in the folder `path`."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTHONPATH")}
    return subprocess.run(
        [sys.executable, root / "tools" / "setup.py", *arguments],
        env={**kept, "PATH": str(path), **variables},
        capture_output=True,
        text=True,
    )


def program(folder: Path, name: str, says: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\necho '{says}'\n")
    file.chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A machine with no programs but Python."""
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose one pinned package nobody has."""
    (tmp_path / "clone" / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "setup.py", tmp_path / "clone" / "tools")
    (tmp_path / "clone" / "requirements.lock").write_text("no-such-package==1\n")
    return tmp_path / "clone"


@pytest.mark.parametrize(("variables", "code"), [({}, 0), ({"CI": "true"}, 1)])
def test_missing_programs_are_named_with_the_line_that_installs_them(
    bare: Path, variables: dict[str, str], code: int
) -> None:
    result = setup(ROOT, "--tests", path=bare, **variables)
    lines = result.stderr.splitlines()
    assert result.returncode == code
    assert lines[:2] == [
        "setup: missing: Node 20 or newer with npm (tests/interop). Install it with: apt-get install nodejs npm",
        "setup: missing: Chromium (tests/browser). Install it with: apt-get install chromium",
    ]
    assert lines[2:] == (["setup: with CI=true everything must be there"] if code else [])


def test_a_node_that_is_too_old_is_as_good_as_none(bare: Path) -> None:
    program(bare, "node", "v18.19.0")
    program(bare, "npm", "9.2.0")
    result = setup(ROOT, "--tests", path=bare)
    assert "setup: missing: Node 20 or newer with npm (tests/interop, here is 18)." in result.stderr


def test_a_missing_compiler_is_named_when_a_package_cannot_be_installed(bare: Path, clone: Path) -> None:
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").touch()  # of a set-up that was cut short
    result = setup(clone, path=bare, PIP_NO_INDEX="1")
    assert result.returncode == 1
    assert "setup: making .venv" in result.stderr
    assert "setup: missing: a C compiler. Install it with: apt-get install build-essential python3-dev" in result.stderr
    assert result.stderr.splitlines()[-1] == "setup: pip failed; its own message is above"


def test_a_python_without_venv_is_named_and_leaves_nothing_half_made(bare: Path, clone: Path) -> None:
    """As on Debian without python3-venv, where the program that would put pip there fails."""
    failing = "import subprocess, venv\ndef fail(*_):\n    raise subprocess.CalledProcessError(1, 'ensurepip')\n"
    (clone / "sitecustomize.py").write_text(f"{failing}venv.EnvBuilder._setup_pip = fail\n")
    result = setup(clone, path=bare, PYTHONPATH=str(clone))
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last == "setup: missing: the venv module of Python. Install it with: apt-get install python3-venv"
    assert not (clone / ".venv").exists()


SKIPPED = (
    "@pytest.mark.skip(reason='hidden')\ndef test_a():\n    pass\n",
    "def test_a():\n    pytest.skip('hidden')\n",
    "pytest.skip('hidden', allow_module_level=True)\n",
    "pytest.importorskip('no_such_package', reason='hidden')\n",
)


@pytest.mark.parametrize(
    ("ci", "code", "summary"), [("true", 1, "1 failed, 3 errors in "), ("", 0, "4 skipped in ")], ids=["ci", "no ci"]
)
def test_with_ci_a_skip_is_a_failure(tmp_path: Path, ci: str, code: int, summary: str) -> None:
    files = [f"test_{number}.py" for number in range(len(SKIPPED))]
    for file, skipped in zip(files, SKIPPED, strict=True):
        (tmp_path / file).write_text(f"import pytest\n{skipped}")
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    command += ["--continue-on-collection-errors", *files]
    result = subprocess.run(command, cwd=tmp_path, env={**os.environ, "CI": ci}, capture_output=True, text=True)
    *said, last = result.stdout.splitlines()
    assert (result.returncode, last.startswith(summary)) == (code, True), result.stdout
    named = {file for file in files if any(file in line and "hidden" in line for line in said)}
    assert named == (set(files) if ci else set()), result.stdout
