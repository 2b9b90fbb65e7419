"""python -m syncline.testing.badinputs FOLDER [PROTOCOL]: write the named bad inputs to files."""

from __future__ import annotations

import sys
from pathlib import Path

from syncline.testing.badinputs import ROOMS, cases, write


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2 or (len(arguments) == 2 and arguments[1] not in ROOMS):
        sys.stderr.write(f"usage: python -m syncline.testing.badinputs FOLDER [{'|'.join(ROOMS)}]\n")
        return 2
    count = write(Path(arguments[0]), cases(*arguments[1:]))
    sys.stdout.write(f"{count} bad inputs and index.json\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
