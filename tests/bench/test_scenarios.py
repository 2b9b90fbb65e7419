"""Every scenario can be run by its name, and every module that measures something is one."""

from __future__ import annotations

import ast
from pathlib import Path

from syncline import bench

FOLDER = Path(bench.__file__).parent


def test_the_scenarios_are_the_modules_that_can_be_run() -> None:
    found = set()
    for file in FOLDER.glob("*.py"):
        functions = [node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
        if "run" in functions:
            found.add(file.stem.replace("_", "-"))
    assert found == set(bench.SCENARIOS)
