"""`syncline pub sds` and `syncline get sds` against a running node."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

from syncline.cli.get import terms
from syncline.cli.main import app
from syncline.core.errors import SynclineError, UsageError
from syncline.core.keys import NodeKey
from syncline.core.ports import RecordQuery
from syncline.core.settings import load
from syncline.node import api, serve
from syncline.node.node import running
from syncline.protocols.sds.plugin import PLUGIN
from syncline.protocols.sds.settings import SdsSettings
from tests.nodes import NodeThread

DATA = Path(__file__).parents[1] / "protocols" / "sds" / "data"
Shell = Callable[..., str]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node that speaks SDS alone, with its API, in a thread of its own."""
    file = tmp_path_factory.mktemp("node") / "syncline.toml"
    file.write_text("")
    flags = {"api.port": 0, "libp2p.listen": ["/ip4/127.0.0.1/tcp/0"], "sds.publish_rate": 0.0}
    settings = load(file=file, environment={}, flags=flags, sections={"sds": SdsSettings})
    listener = serve.bind(settings.api)
    address, ready = serve.url_of(listener), threading.Event()
    stop: Callable[[], None] | None = None

    async def main() -> None:
        nonlocal stop
        import trio

        token = trio.lowlevel.current_trio_token()
        async with running(settings, key=NodeKey.generate(), plugins={"sds": PLUGIN}) as node:
            async with anyio.create_task_group() as tasks:
                await tasks.start(serve.serve, api.build(node), listener)
                cancel = tasks.cancel_scope.cancel
                stop = lambda: token.run_sync_soon(cancel)  # noqa: E731
                ready.set()

    thread = threading.Thread(target=anyio.run, args=(main,), kwargs={"backend": "trio"}, daemon=True)
    thread.start()
    assert ready.wait(20)
    yield address
    assert stop is not None
    stop()
    thread.join(20)


@pytest.fixture
def shell(url: str) -> Shell:
    def run(*arguments: str, given: str = "") -> str:
        result = CliRunner().invoke(app, [*arguments, "--node", url], input=given)
        if isinstance(result.exception, SynclineError):
            return f"{result.exception.exit_code} {result.exception}"
        assert (result.exit_code, result.exception) == (0, None), result.output
        return result.stdout

    return run


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_mean_elements_are_published_from_any_form_and_found_again(shell: Shell) -> None:
    published = lines(shell("pub", "sds", "OMM", str(DATA / "omm-historic.json"), "--json"))
    assert len(published) == 32
    assert published[0]["topic"] == "/spacedatanetwork/mainnet/OMM"
    [found] = lines(shell("get", "sds", "OMM", "-w", "NORAD_CAT_ID=5", "--json"))
    assert (found["id"], found["verified"]) == (published[0]["id"], True)
    assert found["data"]["MEAN_MOTION"] == 10.82419157
    tle = shell("get", "sds", "OMM", "-w", "NORAD_CAT_ID=5", "--form", "tle")
    assert tle.splitlines()[1] == "1 00005U 58002B   00179.78495062  .00000023  00000-0  28098-4 0  4753"
    again = shell("pub", "sds", "OMM", given=tle)
    assert again.endswith("  OMM\n")
    assert len(lines(shell("get", "sds", "OMM", "-w", "NORAD_CAT_ID=5", "--json"))) == 2
    table = shell("get", "sds", "OMM", "-w", "OBJECT_NAME~DELTA", "--order-by", "MEAN_MOTION", "--desc")
    assert "signed" in table


def test_a_file_of_more_messages_than_the_rate_allows_is_published_whole(tmp_path: Path) -> None:
    flags = {"libp2p.listen": ["/ip4/127.0.0.1/tcp/0"]}
    node = NodeThread(tmp_path, {"sds": PLUGIN}, **flags).start()  # takes the ten a second of the specification
    try:
        result = CliRunner().invoke(app, ["pub", "sds", "OMM", str(DATA / "omm-historic.json"), "--node", node.url])
        assert (result.exit_code, len(result.stdout.splitlines())) == (0, 32)
        assert len(node.node.journal.read(RecordQuery(protocol="sds", verdict="accept"))) == 32
    finally:
        node.stop()


def test_filters_order_and_limits_are_those_of_a_query(shell: Shell) -> None:
    shell("pub", "sds", "CDM", str(DATA / "cdm-demo.json"))
    found = lines(
        shell("get", "sds", "CDM", "-w", "MISS_DISTANCE<200", "--order-by", "MISS_DISTANCE", "-n", "3", "--json")
    )
    distances = [each["data"]["MISS_DISTANCE"] for each in found]
    assert len(distances) == 3
    assert distances == sorted(distances)
    assert max(distances) < 200


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["get", "sds", "OMM", "-w", "WINGS=2"], "2 OMM has no field 'WINGS' [OMM]"),
        (["get", "sds", "XYZ"], "2 there is no schema 'XYZ'"),
        (["get", "sds", "CDM", "--form", "tle"], "2 --form is one of json, csv, tle, and for OMM only"),
        (["get", "sds", "OMM", "--peer", NodeKey(bytes(32)).peer_id], "3 not connected"),
        (["pub", "sds", "OMM", "-"], "2 there are no mean elements in an empty file"),
        (["pub", "sds", "CDM", "-"], "2 there is no message here"),
    ],
)
def test_mistakes_are_told_in_a_line(shell: Shell, arguments: list[str], answer: str) -> None:
    assert shell(*arguments).startswith(answer)


def test_terms_are_split_at_their_operator() -> None:
    assert terms(["A=1", "A!=3", "B.C>=x=y", "D~"]) == {
        "A": {"eq": "1", "ne": "3"},
        "B.C": {"gte": "x=y"},
        "D": {"contains": ""},
    }
    with pytest.raises(UsageError):
        terms(["nonsense"])
