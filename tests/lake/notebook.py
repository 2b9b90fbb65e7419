"""Runs blocks of Python as a notebook does: one after the other, in one namespace, each with what it printed."""

from __future__ import annotations

import contextlib
import io
import json
import sys


def main() -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(json.load(sys.stdin)):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, f"block {number}", "exec"), names)
        print(json.dumps(printed.getvalue()), flush=True)


if __name__ == "__main__":
    main()
