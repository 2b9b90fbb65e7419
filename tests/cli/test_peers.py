"""`syncline peers` and `syncline pub shrex` against a running node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from syncline.cli.main import app
from syncline.protocols.shrex.plugin import Shrex
from syncline.protocols.shrex.service.sources import MemorySource
from syncline.protocols.shrex.settings import ShrexSettings
from syncline.testing.headers import chain
from tests.nodes import NodeThread

CHAIN = chain(5)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    plugins = {"shrex": Shrex(MemorySource(*CHAIN))}
    flags = {"libp2p.listen": ["/ip4/127.0.0.1/tcp/0"], "shrex.poll_seconds": 0.02}
    running = NodeThread(tmp_path, plugins, **flags)
    running.start()
    yield running
    running.stop()


def ask(node: NodeThread, *arguments: str) -> str:
    found = CliRunner().invoke(app, [*arguments, "--node", node.url], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_pools_are_shown_by_height_with_who_is_asked_first(node: NodeThread) -> None:
    for _ in range(200):
        answer = json.loads(ask(node, "peers", "--pools", "--json"))
        if answer["synced"]:
            break
    assert answer["head"] == "5"
    assert [pool["height"] for pool in answer["pools"]] == ["5", "4", "3", "2", "1"]
    assert answer["pools"][0]["data_hash"] == CHAIN[4].data_hash.hex()
    table = ask(node, "peers", "--pools")
    assert "head 5, synced; 0 nodes" in table
    sent = json.loads(ask(node, "pub", "shrex", "5", CHAIN[4].data_hash.hex(), "--json"))
    assert (sent["height"], sent["sent"]) == ("5", 0)
    shown = [json.loads(line) for line in ask(node, "tail", "--protocol", "shrex", "-e", "--json").splitlines()]
    assert [(record["kind"], record["seq"]) for record in shown[-2:]] == [("header", "5"), ("notification", "5")]
    assert shown[-1]["key"] == CHAIN[4].data_hash.hex()


def test_peers_of_one_protocol_can_be_chosen(node: NodeThread) -> None:
    assert json.loads(ask(node, "peers", "--json")) == {"peers": []}
    assert json.loads(ask(node, "peers", "--protocol", "shrex", "--json")) == {"peers": []}
    assert "protocol" in ask(node, "peers")
    assert ShrexSettings().topic == "/eds-sub/0.0.1"
