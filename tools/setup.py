"""Makes the virtual environment and installs what the project and its tests need; standard library only.

What it cannot install it names, with the line that does; tests that depend on it are then skipped, except with CI=true,
where a skip is a failure. `--tests` adds the npm packages of the interop peers and Chromium.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
NATIVE_MARK = "# native"  # lock lines that compile against GMP; see tools/lock.py
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def main() -> int:
    tests = "--tests" in sys.argv[1:]
    missing = [*system_packages(), *(peers() if tests else []), *(browser() if tests else [])]
    if not tests:
        python_packages(native=can_compile_gmp())
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


def python_packages(*, native: bool) -> None:
    if not (VENV / "bin" / "python").exists():
        say("making .venv")
        venv.create(VENV, with_pip=True)
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    wanted = [line for line in lines if native or NATIVE_MARK not in line]
    say(f"installing {sum(1 for line in wanted if '==' in line)} pinned packages")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(wanted) + "\n")
        file.flush()
        pip: list[str | Path] = [VENV / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        if not run(*pip, "--no-deps", "-r", file.name) or not run(*pip, "--no-deps", "-e", "."):
            sys.exit("setup: pip failed; its own message is above")


def can_compile_gmp() -> bool:
    """Whether a C compiler and the GMP headers are there, which a dependency of libp2p compiles against."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("#include <gmp.h>\nint main(void) { return 0; }\n")
        return run(compiler, source, "-o", Path(folder) / "probe", quiet=True)


def apt(*packages: str) -> bool:
    """Try the system's package manager, where we may."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    say(f"installing {' '.join(packages)} with apt-get")
    run("apt-get", "update", "-q", quiet=True)
    return run("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages, quiet=True)


def system_packages() -> list[tuple[str, str]]:
    missing = []
    if not can_compile_gmp() and not (apt("gcc", "libc6-dev", "libgmp-dev") and can_compile_gmp()):
        missing.append(("a C compiler with the GMP headers (libp2p)", "apt-get install gcc libc6-dev libgmp-dev"))
    return missing


def peers() -> list[tuple[str, str]]:
    """The npm packages of the peers in tests/interop."""
    folder = ROOT / "tests" / "interop"
    if not (folder / "package-lock.json").exists():
        return []
    if shutil.which("npm") is None:
        return [("Node 20 with npm (tests/interop)", "apt-get install nodejs npm")]
    stamp = folder / "node_modules" / ".ready"
    if stamp.exists() and stamp.stat().st_mtime >= (folder / "package-lock.json").stat().st_mtime:
        return []
    say("installing the npm packages of the interop peers")
    if not run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", cwd=folder):
        return [("the npm packages of the interop peers", "cd tests/interop && npm ci --ignore-scripts")]
    stamp.touch()
    return []


def browser() -> list[tuple[str, str]]:
    if not (ROOT / "tests" / "browser").is_dir() or any(shutil.which(name) for name in CHROMIUM):
        return []
    return [] if apt("chromium") else [("Chromium (tests/browser)", "apt-get install chromium")]


if __name__ == "__main__":
    sys.exit(main())
