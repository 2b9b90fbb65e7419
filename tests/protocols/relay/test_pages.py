"""The documentation of the relay is run, and its ledger names things that are there."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import anyio
import pytest

from syncline.core import limits
from syncline.protocols.relay.service import RelayService
from syncline.protocols.relay.session.hub import Hub
from syncline.protocols.relay.wire.rpc import Problem
from tests.protocols.relay.desk import Desk
from tests.relays import MakeRelay

ROOT = Path(__file__).resolve().parents[3]
GUIDE, LEDGER = ROOT / "docs" / "relay.md", ROOT / "docs" / "protocols" / "relay.md"


async def test_the_example_works_as_it_is_written(relay: MakeRelay, capsys: pytest.CaptureFixture[str]) -> None:
    [block] = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    async with relay() as server:
        imports, _, body = block.replace("ws://127.0.0.1:7072", server.url).partition("\n\n")
        names: dict[str, Any] = {}
        exec(f"{imports}\nasync def main():\n{textwrap.indent(body, '    ')}", names)
        with anyio.fail_after(5):
            await names["main"]()
    assert "sunny" in capsys.readouterr().out.splitlines()


def test_every_error_stands_in_the_documentation() -> None:
    page = LEDGER.read_text()
    for problem in Problem:
        assert f"`{problem.label}`" in page
        assert str(problem.code).replace("-", "−") in page


def test_the_documented_limits_are_those_of_the_code() -> None:
    page = GUIDE.read_text()
    for number in (
        limits.RELAY_MESSAGE_BYTES,
        limits.RELAY_TTL_MAX,
        limits.RELAY_TTL_DEFAULT,
        limits.RELAY_BATCH,
        limits.RELAY_REQUEST_BURST,
        limits.RELAY_TOPICS_PER_CLIENT,
        limits.RELAY_CACHED_MESSAGES,
        limits.RELAY_TOPIC_MESSAGES,
        limits.RELAY_CONNECTIONS,
        limits.RELAY_WINDOW,
        limits.RELAY_INTEREST,
    ):
        assert f"{number:,}" in page, number


async def test_every_metric_stands_in_the_documentation(relay: MakeRelay) -> None:
    page = GUIDE.read_text()
    async with relay() as server:
        assert isinstance(server.service, RelayService)
        for name in server.service.statistics():
            assert f"`{name}`" in page, name
    assert isinstance(Desk().hub, Hub)
