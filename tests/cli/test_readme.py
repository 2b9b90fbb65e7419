"""The README's examples run as they stand, against a real node."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from tests.cli.conftest import Run, up

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_five_line_examples_publish_and_follow(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish, watch = BLOCKS
    run("init")
    with up(tmp_path) as ready:
        names: dict[str, object] = {}
        exec(publish.replace("http://127.0.0.1:7070", ready["url"]), names)
        exec(watch.replace("http://127.0.0.1:7070", ready["url"]), names)
        for backend in ("asyncio", "trio"):

            async def some(watch: object = names["watch"]) -> None:
                with anyio.move_on_after(2):
                    await watch()  # type: ignore[operator]

            anyio.run(some, backend=backend)
    assert capsys.readouterr().out.splitlines() == ["1 {'name': 'DEMO-1', 'alt': 549.7}"] * 2
