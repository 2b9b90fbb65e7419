"""SVS-PS in a node: records, verdicts, restarts, publishing over the API, trust in the forwarder's cache."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import anyio
import pytest

from syncline.core.errors import RefusedError, SettingsError, UsageError
from syncline.core.keys import NodeKey
from syncline.core.ports import RecordQuery, StateChange
from syncline.core.record import Direction, Record
from syncline.core.settings import Settings, load
from syncline.core.verdict import Outcome, Reason
from syncline.formats.ndn import names
from syncline.formats.ndn.packets import encode_data
from syncline.formats.ndn.signing import Hmac
from syncline.networks.ndn.client import attached
from syncline.networks.ndn.endpoint import Request
from syncline.node.node import Node, running
from syncline.protocols.svs.plugin import plugin
from syncline.protocols.svs.rules import Keys, Signers, Trust
from syncline.protocols.svs.service import join
from syncline.protocols.svs.service.node import SvsService
from syncline.protocols.svs.session import Publication

SECRET = base64.b64encode(b"the group's key").decode()
HMAC = Hmac(b"the group's key")
KEYED = {"svs.keys": [f"/room all hmac:{SECRET}"], "svs.signers": [f"/room all hmac:{SECRET}"]}
SIGNERS = Signers(sync=HMAC, outer=HMAC, inner=HMAC, mapping=HMAC)
TRUST = Trust(sync=Keys([HMAC]), outer=Keys([HMAC]), inner=Keys([HMAC]), mapping=Keys([HMAC]))


def settings(folder: Path, **flags: Any) -> Settings:
    folder.mkdir(exist_ok=True)
    file = folder / "syncline.toml"
    if not file.exists():
        file.write_text("")
        NodeKey.generate().save(folder / "node.key")
    defaults = {
        "svs.tcp_port": 0, "svs.udp_port": -1, "svs.websocket_port": -1, "svs.groups": ["/room"],
        "svs.nodes": ["/node"], "api.port": 0, "segments.seconds": 3600.0,
    }  # fmt: skip
    return load(file=file, environment={}, flags={**defaults, **flags}, sections={"svs": plugin.settings})


def service(node: Node) -> SvsService:
    found = node.service("svs")
    assert isinstance(found, SvsService)
    return found


def address(node: Node) -> str:
    hub = service(node).hub
    assert hub is not None
    return hub.addresses["tcp"]


async def records(node: Node, count: int, **query: Any) -> list[Record]:
    """The node's records once there are `count` of them."""
    with anyio.fail_after(10):
        while len(found := node.journal.read(RecordQuery(**query))) < count:
            await anyio.sleep(0.01)
    return found


async def test_what_a_node_fetches_is_in_its_journal(tmp_path: Path) -> None:
    async with (
        running(settings(tmp_path), plugins={"svs": plugin}) as node,
        join("/room", node="/alice", forwarder=address(node)) as alice,
    ):
        await alice.publish("/chat/hello", b"hello")
        await alice.publish("/chat/big", bytes(20_000))
        found = await records(node, 4, kind="outer")
    assert [(r.publisher, r.seq, r.key, r.verdict, r.direction) for r in found] == [
        ("/alice", 1, "/chat/hello", Outcome.ACCEPT, Direction.IN),
        *[("/alice", 2, "/chat/big", Outcome.ACCEPT, Direction.IN)] * 3,
    ]
    assert {r.topic for r in found} == {"/room"}
    assert {r.peer.split(":")[0] for r in found} == {"tcp"}
    assert plugin.decoded(found[0])["content"] == "hello"
    assert plugin.decoded(found[1])["final_segment"] == 2


async def test_two_nodes_linked_by_an_uplink_share_a_group(tmp_path: Path) -> None:
    async with running(settings(tmp_path / "a"), plugins={"svs": plugin}) as a:
        linked = settings(tmp_path / "b", **{"svs.uplinks": [address(a)], "svs.nodes": ["/node/b"]})
        async with running(linked, plugins={"svs": plugin}) as b:
            with anyio.fail_after(5):
                while len(service(b).hub.uplinks) == 0:  # type: ignore[union-attr]
                    await anyio.sleep(0.01)
            await anyio.sleep(0.1)
            await a.service("svs").publish({"name": "/chat/a", "content": "from a"})
            await b.service("svs").publish({"name": "/chat/b", "content": "from b"})
            [at_b] = await records(b, 1, kind="outer", publisher="/node")
            [at_a] = await records(a, 1, kind="outer", publisher="/node/b")
    assert (at_a.key, at_b.key) == ("/chat/b", "/chat/a")


async def test_a_published_message_is_kept_before_it_is_announced(tmp_path: Path) -> None:
    async with running(settings(tmp_path), plugins={"svs": plugin}) as node:
        answer = await node.service("svs").publish({"name": "/chat/hello", "content_base64": "aGVsbG8="})
        assert answer == {"group": "/room", "node": "/node", "seq": "1", "name": "/chat/hello"}
        outer, mapping = node.journal.read(RecordQuery())
        assert (outer.kind, outer.direction, outer.key, outer.seq) == ("outer", Direction.OUT, "/chat/hello", 1)
        assert (mapping.kind, mapping.direction, mapping.seq) == ("mapping", Direction.OUT, 1)
        assert mapping.published_at is not None
        assert plugin.decoded(mapping)["entries"][0]["name"] == "/chat/hello"


async def test_a_restarted_node_goes_on_with_its_numbers_and_serves_what_it_published(tmp_path: Path) -> None:
    async with running(settings(tmp_path), plugins={"svs": plugin}) as node:
        await node.service("svs").publish({"name": "/chat/1", "content": "one"})
        await node.service("svs").publish({"name": "/chat/2", "content": "2" * 20_000})
    async with running(settings(tmp_path), plugins={"svs": plugin}) as node:
        got: list[Publication] = []
        async with join("/room", forwarder=address(node)) as reader:
            reader.subscribe("/chat", got.append)
            assert (await node.service("svs").publish({"name": "/chat/3", "content": "three"}))["seq"] == "3"
            with anyio.fail_after(10):
                while len(got) < 3:
                    await anyio.sleep(0.01)
    assert sorted((p.seq, p.topic, len(p.payload)) for p in got) == [
        (1, "/chat/1", 3),
        (2, "/chat/2", 20_000),
        (3, "/chat/3", 5),
    ]


async def test_a_restarted_node_does_not_fetch_again_what_it_has(tmp_path: Path) -> None:
    async with running(settings(tmp_path), plugins={"svs": plugin}) as node:
        async with join("/room", node="/alice", forwarder=address(node)) as alice:
            for number in range(5):
                await alice.publish(f"/chat/{number}", b"x")
                await records(node, number + 1, kind="outer")
    async with running(settings(tmp_path), plugins={"svs": plugin}) as node:
        group = service(node).groups["/room"]
        assert group.settled() == {names.parse("/alice"): 4}  # the last one was not followed by another record


async def test_a_forged_packet_is_kept_as_rejected_and_does_not_hide_the_honest_one(tmp_path: Path) -> None:
    async with running(settings(tmp_path, **KEYED), plugins={"svs": plugin}) as node:
        wrong = Signers(sync=HMAC, outer=HMAC, inner=Hmac(b"wrong"), mapping=HMAC)
        async with join("/room", node="/mallory", forwarder=address(node), signers=wrong, trust=TRUST) as mallory:
            await mallory.publish("/chat/x", b"x")
            found = await records(node, 1, verdict="reject")
        async with join("/room", node="/alice", forwarder=address(node), signers=SIGNERS, trust=TRUST) as alice:
            await alice.publish("/chat/y", b"y")
            [good] = await records(node, 1, kind="outer", verdict="accept")
    assert (found[0].reason, found[0].publisher, found[0].raw is not None) == (
        Reason.INVALID_SIGNATURE,
        "/mallory",
        True,
    )
    assert good.publisher == "/alice"


@pytest.mark.parametrize("keys", [KEYED, {}], ids=["keyed", "digests"])
@pytest.mark.parametrize("content_type", [6, 0])  # with another one it is bad whoever signed it
async def test_the_forwarder_caches_nothing_that_our_keys_refuse(
    tmp_path: Path, keys: dict[str, Any], content_type: int
) -> None:
    async with running(settings(tmp_path, **keys), plugins={"svs": plugin}) as node:
        async with attached(address(node)) as liar, attached(address(node)) as reader:
            name = names.parse("/victim/room/%01")

            def answer(request: Request) -> None:
                wire = encode_data(name, b"poison", Hmac(b"liar"), content_type=content_type, freshness=9)
                liar.endpoint.reply(request, wire)

            liar.endpoint.serve(names.parse("/victim"), answer)
            await liar.register(names.parse("/victim"))
            assert (await reader.ask(name)).content == b"poison"
            hub = service(node).hub
            assert hub is not None
            assert (len(hub.forwarder.content), hub.forwarder.content.refused) == (0, 1)


async def test_an_idempotent_publish_goes_into_the_same_transaction(tmp_path: Path) -> None:
    async with running(settings(tmp_path), plugins={"svs": plugin}) as node:
        mark = StateChange(space="test", key=b"k", value=b"v")
        await node.service("svs").publish({"name": "/chat/hello", "content": "x"}, [mark])
        assert node.journal.get_state("test", b"k") == b"v"


async def test_a_name_too_long_for_a_record_takes_no_number(tmp_path: Path) -> None:
    async with running(settings(tmp_path), plugins={"svs": plugin}) as node:
        with pytest.raises(RefusedError):
            await node.service("svs").publish({"name": "/" + "x" * 2_000, "content": "x"})
        assert (await node.service("svs").publish({"name": "/x", "content": "x"}))["seq"] == "1"


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        ({}, "takes a name"),
        ({"name": 5, "content": "x"}, "takes a name"),
        ({"name": "/x"}, "takes content"),
        ({"name": "/x", "content": "a", "content_base64": "YQ=="}, "takes content"),
        ({"name": "/x", "content_base64": "%"}, "not base64"),
        ({"name": "/x", "content": "a", "group": "/other"}, "which group"),
        ({"name": "/x", "content": "a", "node": 3}, "a node is a name"),
        ({"name": "/x", "content": "a", "node": "/other"}, "does not publish for that node"),
        ({"name": "/x", "content": "a", "fly": 1}, "unknown field 'fly'"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(tmp_path: Path, request_: dict[str, Any], what: str) -> None:
    async with running(settings(tmp_path), plugins={"svs": plugin}) as node:
        with pytest.raises(UsageError, match=what):
            await node.service("svs").publish(request_)


async def test_a_node_without_groups_is_a_forwarder(tmp_path: Path) -> None:
    async with running(settings(tmp_path, **{"svs.groups": []}), plugins={"svs": plugin}) as node:
        with pytest.raises(UsageError, match="in no group"):
            await node.service("svs").publish({"name": "/x", "content": "x"})
        async with attached(address(node)) as client:
            await client.register(names.parse("/app"))
            [peer] = node.service("svs").peers()
            assert (peer["local"], peer["interests"]) == (True, 1)
            assert node.service("svs").statistics()["routes"] == 1


@pytest.mark.parametrize("role", ["outer", "inner", "mapping", "sync"])
async def test_keys_by_which_we_would_not_believe_ourselves_are_refused(tmp_path: Path, role: str) -> None:
    wrong = settings(tmp_path, **{"svs.keys": [f"/room {role} hmac:{SECRET}"]})
    with pytest.raises(BaseExceptionGroup) as caught:
        async with running(wrong, plugins={"svs": plugin}):
            pass
    assert caught.group_contains(SettingsError)


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    shown = {name: value for name, value, _ in settings(tmp_path, **KEYED).values()}
    assert (shown["svs.keys"], shown["svs.signers"]) == ("***", "***")
