"""Our node against an SDS peer written in JavaScript from the specification, on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from syncline.core.keys import NodeKey
from syncline.core.ports import RecordQuery
from syncline.core.settings import load
from syncline.networks.libp2p.host import Libp2pHost
from syncline.node.node import Node, running
from syncline.protocols.sds.plugin import PLUGIN
from syncline.protocols.sds.service import SdsService
from syncline.protocols.sds.settings import SdsSettings
from tests.interop.libp2p.peers import JsPeer, js_peer

pytestmark = [pytest.mark.interop, pytest.mark.anyio, pytest.mark.usefixtures("npm")]
TOPIC = "/spacedatanetwork/mainnet/OMM"
SCRIPT = Path(__file__).parent / "exchange.mjs"


class Ours:
    """Our node with its host and service."""

    def __init__(self, node: Node, host: Libp2pHost, sds: SdsService) -> None:
        self.node, self.host, self.sds = node, host, sds


@asynccontextmanager
async def together(folder: Path, dialler: str) -> AsyncIterator[tuple[Ours, JsPeer]]:
    file = folder / "syncline.toml"
    file.write_text("")
    flags = {"libp2p.listen": ["/ip4/127.0.0.1/tcp/0"], "sds.schemas": ["OMM", "CDM"], "sds.sync_seconds": 0.0}
    settings = load(file=file, environment={}, flags=flags, sections={"sds": SdsSettings})
    async with running(settings, key=NodeKey.generate(), plugins={"sds": PLUGIN}) as node, js_peer(SCRIPT) as js:
        host = await node.networks.libp2p()
        sds = node.services["sds"]
        assert isinstance(sds, SdsService)
        if dialler == "we":
            await host.connect(js.address)
        else:
            await js.tell("dial", address=host.addresses[0])
        yield Ours(node, host, sds), js


async def kept(ours: Ours, count: int) -> list[str]:
    """The ids our node has accepted, once there are that many."""
    with anyio.fail_after(30):
        while len(found := ours.node.journal.read(RecordQuery(verdict="accept"))) < count:
            await anyio.sleep(0.02)
    return [record.id.hex() for record in found]


@pytest.mark.parametrize("dialler", ["we", "they"])
async def test_signed_publishes_go_both_ways_by_gossip(tmp_path: Path, dialler: str) -> None:
    async with together(tmp_path, dialler) as (ours, js):
        await js.tell("join", topic=TOPIC)
        await js.tell("neighbours", topic=TOPIC)
        theirs = await js.tell(
            "gossip", topic=TOPIC, schema="OMM", fields={"NORAD_CAT_ID": 5, "OBJECT_NAME": "JS"}, ttl=60
        )
        assert await kept(ours, 1) == [theirs["id"]]
        [record] = ours.node.journal.read(RecordQuery(verdict="accept"))
        assert (record.publisher, record.key) == (js.peer, "5")
        sent = await ours.sds.send("OMM", {"NORAD_CAT_ID": 7, "EPOCH": "2026-03-01T00:00:00", "MEAN_MOTION": 15.5})
        [heard] = (await js.tell("heard", count=1))["messages"]
        assert (heard["id"], heard["publisher"], heard["verified"]) == (sent.record.id.hex(), ours.host.peer_id, True)
        fields = heard["fields"]
        assert (fields["NORAD_CAT_ID"], fields["EPOCH"], fields["MEAN_MOTION"]) == (7, "2026-03-01T00:00:00", 15.5)


@pytest.mark.parametrize("dialler", ["we", "they"])
async def test_a_javascript_peer_publishes_and_queries_on_streams(tmp_path: Path, dialler: str) -> None:
    async with together(tmp_path, dialler) as (ours, js):
        address = ours.host.addresses[0]
        published = await js.tell("publish", address=address, schema="CDM", fields={"MESSAGE_ID": "cdm-1"})
        assert (published["kinds"], published["request"]) == (["SHEL", "SACK"], "js-0")
        assert await kept(ours, 1) == [published["id"]]
        sent = await ours.sds.send("OMM", {"NORAD_CAT_ID": 25544, "OBJECT_NAME": "ISS (ZARYA)"})
        await ours.sds.send("OMM", {"NORAD_CAT_ID": 5})
        answer = await js.tell("query", address=address, schema="OMM", field="NORAD_CAT_ID", value="25544")
        assert (answer["kinds"], answer["version"], answer["total"]) == (["SHEL", "SRSP"], "1.0.0", 1)
        [record] = answer["records"]
        assert (record["id"], record["verified"]) == (sent.record.id.hex(), True)
        assert record["fields"]["OBJECT_NAME"] == "ISS (ZARYA)"
        wrong = await js.tell("query", address=address, schema="OMM", field="WINGS", value="2")
        assert (wrong["code"], wrong["request"]) == (1, "js-q")
        assert "WINGS" in wrong["message"]


@pytest.mark.parametrize("dialler", ["we", "they"])
async def test_we_query_a_javascript_peer_and_verify_its_records(tmp_path: Path, dialler: str) -> None:
    async with together(tmp_path, dialler) as (ours, js):
        made = await js.tell("make", schema="OMM", fields={"NORAD_CAT_ID": 9, "CREATION_DATE": "2026-03-01"})
        [found] = await ours.sds.query(js.peer, "OMM", keep=True)
        assert (found.fields, found.verified) == ({"CREATION_DATE": "2026-03-01", "NORAD_CAT_ID": 9}, True)
        assert await kept(ours, 1) == [made["id"]]


@pytest.mark.parametrize("dialler", ["we", "they"])
async def test_a_javascript_peer_that_joins_late_gets_as_much_history_as_it_asked_for_then_news(
    tmp_path: Path, dialler: str
) -> None:
    async with together(tmp_path, dialler) as (ours, js):
        sent = [await ours.sds.send("OMM", {"NORAD_CAT_ID": number}) for number in range(1, 6)]
        await ours.sds.send("CDM", {"MESSAGE_ID": "other schema"})
        await js.tell("follow", address=ours.host.addresses[0], schemas=["OMM"], history=3)
        await js.tell("pushed", count=3)
        sent.append(await ours.sds.send("OMM", {"NORAD_CAT_ID": 6}))
        heard = await js.tell("pushed", count=4)
        assert heard["kinds"] == ["SHEL", "SACK", "SPUB", "SPUB", "SPUB", "SPUB"]
        assert [message["id"] for message in heard["messages"]] == [each.record.id.hex() for each in sent[-4:]]
        assert all(message["verified"] for message in heard["messages"])
        assert (await js.tell("unfollow"))["kinds"][-1] == "SACK"
        await ours.sds.send("OMM", {"NORAD_CAT_ID": 7})
        answer = await js.tell("query", address=ours.host.addresses[0], schema="OMM", field="NORAD_CAT_ID", value="7")
        assert answer["total"] == 1  # by then a push would have come
        assert len((await js.tell("pushed", count=4))["messages"]) == 4


@pytest.mark.parametrize("dialler", ["we", "they"])
async def test_we_follow_a_javascript_peer_with_history(tmp_path: Path, dialler: str) -> None:
    async with together(tmp_path, dialler) as (ours, js):
        made = [(await js.tell("make", schema="OMM", fields={"NORAD_CAT_ID": number}))["id"] for number in range(1, 5)]
        async with ours.sds.follow(js.peer, ["OMM"], history=2) as pushes:
            with anyio.fail_after(30):
                receipts = [await anext(pushes), await anext(pushes)]
                made.append((await js.tell("make", schema="OMM", fields={"NORAD_CAT_ID": 9}))["id"])
                receipts.append(await anext(pushes))
        assert [receipt.arrival.id.hex() for receipt in receipts] == made[-3:]
        assert {receipt.arrival.publisher for receipt in receipts} == {js.peer}
        assert await kept(ours, 3) == made[-3:]


@pytest.mark.parametrize("dialler", ["we", "they"])
async def test_a_javascript_peer_syncs_what_its_filter_lacks(tmp_path: Path, dialler: str) -> None:
    async with together(tmp_path, dialler) as (ours, js):
        address = ours.host.addresses[0]
        await js.tell("publish", address=address, schema="OMM", fields={"NORAD_CAT_ID": 1})  # both hold this
        sent = [await ours.sds.send("OMM", {"NORAD_CAT_ID": number}) for number in (2, 3)]
        answer = await js.tell("sync", address=address, schemas=["OMM"])
        assert answer["kinds"] == ["SHEL", "SSYR"]
        assert [record["id"] for record in answer["records"]] == [each.record.id.hex() for each in sent]
        assert all(record["verified"] for record in answer["records"])


@pytest.mark.parametrize("dialler", ["we", "they"])
async def test_we_sync_from_a_javascript_peer_what_we_lack(tmp_path: Path, dialler: str) -> None:
    async with together(tmp_path, dialler) as (ours, js):
        await js.tell("publish", address=ours.host.addresses[0], schema="OMM", fields={"NORAD_CAT_ID": 1})
        made = [(await js.tell("make", schema="OMM", fields={"NORAD_CAT_ID": number}))["id"] for number in (2, 3)]
        caught = await ours.sds.sync(js.peer)
        assert (caught.accepted, caught.records) == (2, 2)
        assert (await kept(ours, 3))[1:] == made
        assert (await js.tell("asks"))["asks"].count("SSYN") == caught.rounds
