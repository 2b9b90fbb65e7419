"""Resolves pyproject.toml anew and writes requirements.lock: exact versions, no addresses."""

from __future__ import annotations

import re
import subprocess
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Made by `make lock`. Exact versions of everything the project and its tests install.\n"


def resolve(extras: str) -> dict[str, str]:
    """The versions a fresh environment gets for these extras, by normalised name."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", f"{ROOT}[{extras}]"], check=True)
        frozen = subprocess.run([python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True).stdout
    pairs = (line.split("==", 1) for line in frozen.splitlines() if "==" in line)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def main() -> None:
    everything = resolve("all,dev")
    lines = [f"{name}=={version}" for name, version in sorted(everything.items())]
    (ROOT / "requirements.lock").write_text(HEADER + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
