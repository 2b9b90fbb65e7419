"""Makes the virtual environment and installs what the project and its tests need; standard library only.

What it cannot install (a Python that is too old, a compiler where there is no wheel, Node, Chromium) it names, with the
line that does; tests that depend on it are then skipped, except with CI=true, where a skip is a failure. `--tests` adds
the npm packages of the interop peers and Chromium.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
PYTHON = (3, 11)
NODE = 20
COMPILER = ("build-essential", "python3-dev")


def main() -> int:
    if sys.version_info < PYTHON:
        needed = ".".join(str(part) for part in PYTHON)
        sys.exit(f"setup: Python {needed} or newer is needed. Name one with: make PYTHON=python{needed} test")
    tests = "--tests" in sys.argv[1:]
    missing = [*peers(), *browser()] if tests else []
    if not tests:
        python_packages()
    for what, line in missing:
        say(f"missing: {what}. Install it with: {line}")
    if missing and os.environ.get("CI") == "true":
        say("with CI=true everything must be there")
        return 1
    return 0


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


def run(*command: str | Path, cwd: Path = ROOT, quiet: bool = False) -> bool:
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run([str(part) for part in command], cwd=cwd, stdout=output, stderr=output).returncode == 0


def python_packages() -> None:
    if not (VENV / "bin" / "pip").exists():  # comes last: a .venv without it was cut short
        make_environment()
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    say(f"installing {sum(1 for line in lines if '==' in line)} pinned packages")
    pip: list[str | Path] = [VENV / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    wanted = [["--no-deps", "-r", "requirements.lock"], ["--no-deps", "-e", "."]]
    if all(run(*pip, *each) for each in wanted):
        return
    if shutil.which("cc") is None:  # what has no wheel for this machine is compiled
        if apt(*COMPILER) and all(run(*pip, *each) for each in wanted):
            return
        say(f"missing: a C compiler. Install it with: apt-get install {' '.join(COMPILER)}")
    sys.exit("setup: pip failed; its own message is above")


def make_environment() -> None:
    say("making .venv")
    try:
        venv.create(VENV, with_pip=True, clear=True)
    except (subprocess.CalledProcessError, OSError):  # Debian keeps ensurepip in a package of its own
        shutil.rmtree(VENV, ignore_errors=True)
        sys.exit("setup: missing: the venv module of Python. Install it with: apt-get install python3-venv")


def apt(*packages: str) -> bool:
    """Try the system's package manager, where we may."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    say(f"installing {' '.join(packages)} with apt-get")
    run("apt-get", "update", "-q", quiet=True)
    return run("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages, quiet=True)


def peers() -> list[tuple[str, str]]:
    """The npm packages of the peers in tests/interop."""
    folder = ROOT / "tests" / "interop"
    if not (folder / "package-lock.json").exists():
        return []
    if (found := node_version()) < NODE or shutil.which("npm") is None:
        has = f", here is {found}" if found else ""
        return [(f"Node {NODE} or newer with npm (tests/interop{has})", "apt-get install nodejs npm")]
    stamp = folder / "node_modules" / ".ready"
    if stamp.exists() and stamp.stat().st_mtime >= (folder / "package-lock.json").stat().st_mtime:
        return []
    say("installing the npm packages of the interop peers")
    if not run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", cwd=folder):
        return [("the npm packages of the interop peers", "cd tests/interop && npm ci --ignore-scripts")]
    stamp.touch()
    return []


def node_version() -> int:
    """The major version of Node; 0 if there is none."""
    node = shutil.which("node")
    if node is None:
        return 0
    told = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    major = told.strip().removeprefix("v").partition(".")[0]
    return int(major) if major.isdigit() else 0


def browser() -> list[tuple[str, str]]:
    if not (ROOT / "tests" / "browser").is_dir() or any(shutil.which(name) for name in CHROMIUM):
        return []
    return [] if apt("chromium") else [("Chromium (tests/browser)", "apt-get install chromium")]


if __name__ == "__main__":
    sys.exit(main())
