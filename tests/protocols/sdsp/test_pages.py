"""The documentation of SDSP is run, and its ledger names things that are there."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import anyio
import pytest

from syncline.protocols.sdsp.service import PLUGIN
from tests.nodes import NodeThread

ROOT = Path(__file__).resolve().parents[3]


def test_the_examples_work_as_they_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "sdsp.md").read_text()
    publish, follow = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    node = NodeThread(tmp_path, {"sdsp": PLUGIN}).start()

    def program(block: str) -> Any:
        imports, _, body = block.replace("http://127.0.0.1:7070", node.url).partition("\n\n")
        names: dict[str, Any] = {}
        exec(f"{imports}\nasync def main():\n{textwrap.indent(body, '    ')}", names)
        return names["main"]

    try:
        anyio.run(program(publish))
        capsys.readouterr()

        async def a_while() -> None:
            with anyio.move_on_after(1):
                await program(follow)()

        anyio.run(a_while, backend="trio")
        assert capsys.readouterr().out.splitlines()[-1] == "1 {'alt': 549.7}"
    finally:
        node.stop()


def test_every_row_of_the_ledger_names_code_and_a_test_that_exist() -> None:
    page = (ROOT / "docs" / "protocols" / "sdsp.md").read_text()
    rows = re.findall(r"^\| (?!the text|\*\*|---)[^|]+ \| (\S+)::(\S+) \| (\S+)::(\S+) \|$", page, re.MULTILINE)
    assert len(rows) > 80
    for code, name, test, function in rows:
        source = ROOT / code if code.startswith("src/") else ROOT / "src/syncline/protocols/sdsp" / code
        tests = ROOT / test if test.startswith("tests/") else ROOT / "tests/protocols/sdsp" / test
        assert re.search(rf"\b(def|class) {name}\b", source.read_text()), f"{code}::{name}"
        assert re.search(rf"\bdef {function}\b", tests.read_text()), f"{test}::{function}"
