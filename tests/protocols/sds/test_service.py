"""Nodes that exchange space data: gossip, streams, limits and errors on the wire, catching up, and the API for programs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from syncline.core.errors import (
    ClosedError,
    DecodeError,
    OverloadedError,
    RefusedError,
    SettingsError,
    UnreachableError,
    UsageError,
)
from syncline.core.keys import NodeKey
from syncline.core.limits import HOUR, SDS_MESSAGE_BYTES, SECOND
from syncline.core.record import Direction
from syncline.core.verdict import Outcome, Reason
from syncline.networks.host import Stream
from syncline.protocols.sds import rules, wire
from syncline.protocols.sds.bloom import Bloom
from syncline.protocols.sds.catalogue import standard
from syncline.protocols.sds.plugin import PLUGIN
from syncline.protocols.sds.rules import signed_publish
from syncline.protocols.sds.service.asking import FRAMING
from syncline.protocols.sds.session import greeting
from syncline.protocols.sds.settings import SdsSettings
from syncline.protocols.sds.wire import Ack, Hello, Message, Publish, Query, Refusal, Subscribe, encode
from syncline.testing.clock import FakeClock
from tests.protocols.sds.nodes import Running, line, nodes

pytestmark = pytest.mark.anyio
OMM = "/spacedatanetwork/mainnet/OMM"
STRANGER = NodeKey(bytes(32))


def message(key: NodeKey, now: int, number: int = 1, **changes: Any) -> Publish:
    payload = standard("OMM").writer.encode({"NORAD_CAT_ID": number})
    made = signed_publish(key, schema="OMM", payload=payload, message_id=f"m{number}", now=now)
    return msgspec.structs.replace(made, **changes)


class Bare:
    """A peer that speaks frames and nothing else: what it says is up to the test."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    async def say(self, *messages: Message | bytes) -> None:
        frames = [each if isinstance(each, bytes) else encode(each) for each in messages]
        await self.stream.send_many([frame[4:] for frame in frames])

    async def hear(self) -> Message:
        with anyio.fail_after(5):
            content = await self.stream.receive()
        assert content is not None, "the stream has ended"
        return wire.decode(len(content).to_bytes(4, "little") + content)

    async def error(self) -> Refusal:
        heard = await self.hear()
        assert isinstance(heard, Refusal), heard
        return heard


@asynccontextmanager
async def bare(place: Running, other: Running, *, greet: bool = True, most: int = 0) -> AsyncIterator[Bare]:
    """A stream from one node's host to another node, past the first one's service."""
    await place.host.connect(other.host.addresses[0])
    framing = msgspec.structs.replace(FRAMING, max_bytes=most or FRAMING.max_bytes)
    stream = await place.host.open_stream(other.peer_id, wire.PROTOCOL_ID, framing)
    try:
        peer = Bare(stream)
        assert isinstance(await peer.hear(), Hello)
        if greet:
            await peer.say(greeting(["OMM", "CDM"]))
        yield peer
    finally:
        await stream.close()


# gossip


async def test_a_publish_at_one_end_of_a_line_arrives_once_at_the_other_by_its_author(tmp_path: Path) -> None:
    async with nodes(tmp_path, 3) as [alice, bob, carol]:
        await line(alice, bob, carol)
        sent = await alice.sds.send("OMM", {"NORAD_CAT_ID": 25544, "OBJECT_NAME": "ISS (ZARYA)"})
        [record] = await carol.holds(1)
        assert (record.publisher, record.peer, record.key) == (alice.peer_id, bob.peer_id, "25544")
        assert (record.id, record.kind, record.topic) == (sent.record.id, "publish", OMM)
        await anyio.sleep(0.1)
        assert [len(each.records()) for each in (alice, bob, carol)] == [1, 1, 1]
        assert alice.records()[0].direction is Direction.OUT


async def test_a_forged_message_is_kept_as_rejected_and_goes_no_further(tmp_path: Path) -> None:
    async with nodes(tmp_path, 3) as [alice, bob, carol]:
        await line(alice, bob, carol)
        now = alice.node.clock.now()
        forged = message(STRANGER, now, publisher_id=alice.peer_id)
        await alice.host.gossip.publish(OMM, encode(forged))
        await alice.host.gossip.publish(OMM, encode(message(STRANGER, now, 2)))
        await carol.holds(1)
        rejected = bob.records(verdict="reject")
        assert [record.reason for record in rejected] == [Reason.INVALID_SIGNATURE]
        assert rejected[0].raw == encode(forged)
        assert [record.publisher for record in carol.records()] == [STRANGER.peer_id]
        assert bob.host.peers()[0].score < 0  # the neighbour that handed it on


async def test_every_kind_of_bad_message_is_refused_by_its_own_reason_and_kept_only_as_refused(tmp_path: Path) -> None:
    async with nodes(tmp_path, 3, memory_hours=24.0) as [alice, bob, carol]:
        await line(alice, bob, carol)
        now = alice.node.clock.now()
        good = message(STRANGER, now)
        cdm = standard("CDM").writer.encode({"MESSAGE_ID": "1"})
        large = message(STRANGER, now, 6, payload=bytes(SDS_MESSAGE_BYTES))
        bad: list[tuple[bytes, Reason]] = [
            (encode(message(STRANGER, now, 2, publisher_id=alice.peer_id)), Reason.INVALID_SIGNATURE),
            (encode(message(STRANGER, now + 301 * SECOND, 3)), Reason.FUTURE_TIMESTAMP),
            (encode(large), Reason.OVERSIZE),
            (encode(message(STRANGER, now, 4))[:-20], Reason.MALFORMED),
            (
                encode(signed_publish(STRANGER, schema="OMM", payload=cdm, message_id="5", now=now)),
                Reason.INVALID_PAYLOAD,
            ),
            (encode(message(STRANGER, now, 7, publisher_id="nobody")), Reason.INVALID_PUBLISHER),
        ]
        harmless: list[tuple[bytes, Reason]] = [
            (encode(message(STRANGER, now - 25 * HOUR, 8)), Reason.TOO_OLD),  # a replay from before the memory of ids
            (
                encode(
                    signed_publish(
                        STRANGER, schema="OMM", payload=good.payload, message_id="9", now=now - 60 * SECOND, ttl=30
                    )
                ),
                Reason.EXPIRED,
            ),
            (encode(good), Reason.DUPLICATE),  # a replay within it
        ]
        for raw in (encode(good), *(raw for raw, _ in bad), *(raw for raw, _ in harmless)):
            await alice.host.gossip.publish(OMM, raw)
        await _rows(bob, 1 + len(bad) + len(harmless))
        rejected, ignored = bob.records(verdict="reject"), bob.records(verdict="ignore")
        assert [(record.raw, record.reason) for record in rejected] == bad
        assert [record.reason for record in ignored] == [reason for _, reason in harmless]
        assert [record.raw for record in ignored] == [None] * len(harmless)
        assert [record.raw for record in bob.records(verdict="accept")] == [encode(good)]
        verdicts = await _verdicts(bob, 1 + len(bad) + len(harmless))
        assert {f"sds/reject/{reason}" for _, reason in bad} | {f"sds/ignore/{reason}" for _, reason in harmless} == {
            name for name, count in verdicts.items() if count == 1 and not name.startswith("sds/accept")
        }
        await carol.holds(1)
        assert [record.raw for record in carol.records()] == [encode(good)]  # nothing else went on


async def test_more_than_a_publishers_share_is_ignored_on_gossip(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, clock=FakeClock()) as [alice, bob]:
        await line(alice, bob)
        now = alice.node.clock.now()
        for number in range(1, 25):
            await alice.host.gossip.publish(OMM, encode(message(STRANGER, now, number)))
        await bob.holds(20)  # a second's share, and as much for what was bunched up on its way
        await _rows(bob, 24)
        await alice.host.gossip.publish(OMM, encode(message(STRANGER, now, 25)))  # what was taken before counts, too
        await _rows(bob, 25)
        ignored = [record for record in bob.records() if record.verdict is Outcome.IGNORE]
        assert {record.reason for record in ignored} == {Reason.RATE_LIMITED}
        assert len(ignored) == 5


async def test_a_publisher_that_keeps_to_the_rate_loses_nothing_on_its_way(tmp_path: Path) -> None:
    async with nodes(tmp_path, 3) as [alice, bob, carol]:
        await line(alice, bob, carol)
        for number in range(1, 41):
            with anyio.fail_after(5):
                while not await _published(alice, number):
                    await anyio.sleep(0.01)
        assert [int(record.key) for record in await carol.holds(40)] == list(range(1, 41))
        assert carol.records(verdict="ignore") == bob.records(verdict="ignore") == []


async def _published(place: Running, number: int) -> bool:
    """Whether the rate let the message through."""
    with suppress(RefusedError):
        await place.node.publish("OMM", {"NORAD_CAT_ID": number})
        return True
    return False


async def _rows(place: Running, count: int) -> None:
    with anyio.fail_after(10):
        while len(place.records()) < count:
            await anyio.sleep(0.01)


async def _verdicts(place: Running, count: int) -> dict[str, int]:
    """What the node counted, once it has counted so many: it does so after the commit."""
    with anyio.fail_after(10):
        while sum(place.node.statistics()["verdicts"].values()) < count:
            await anyio.sleep(0.01)
    counted: dict[str, int] = place.node.statistics()["verdicts"]
    return counted


async def test_forgeries_do_not_use_up_the_share_of_whom_they_claim_to_be(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, publish_rate=1.0) as [alice, bob]:
        await line(alice, bob)
        now = alice.node.clock.now()
        async with held_up(bob):  # so that all of them are judged together
            await alice.host.gossip.publish(OMM, encode(message(alice.node.key, now, 1)))
            for number in range(2, 31):
                forged = message(alice.node.key, now, number, publisher_id=STRANGER.peer_id)
                await alice.host.gossip.publish(OMM, encode(forged))
            await alice.host.gossip.publish(OMM, encode(message(STRANGER, now, 99)))
            with anyio.fail_after(10):
                while bob.host.statistics()["gossip_undecided"] < 31:
                    await anyio.sleep(0.01)
        assert [record.key for record in await bob.holds(2)] == ["1", "99"]
        assert len(bob.records(verdict="reject")) == 29


@asynccontextmanager
async def held_up(place: Running) -> AsyncIterator[None]:
    """What the node receives during the block is kept after it."""
    receiver, over = place.node.receiver, anyio.Event()
    receive = receiver.receive

    async def later(*arguments: Any) -> Any:
        await over.wait()
        return await receive(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receiver, "receive", later)
        try:
            yield
        finally:
            over.set()


# publishing


async def test_a_request_to_publish_says_what_became_of_it(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as [alice, bob]:
        await line(alice, bob)
        answer = await alice.sds.publish({"schema": "OMM.fbs", "data": {"NORAD_CAT_ID": "5", "REF_FRAME": "EME2000"}})
        [record] = await bob.holds(1)
        assert answer == {
            "id": record.id.hex(),
            "schema": "OMM",
            "topic": OMM,
            "record": str(alice.records()[0].name),
            "sent": 1,
        }
        decoded = PLUGIN.decoded(record)
        assert decoded["data"] == {"REFERENCE_FRAME": "J2000", "NORAD_CAT_ID": 5}
        assert (decoded["schema"], decoded["publisher_id"]) == ("OMM.fbs", alice.peer_id)


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ({"data": {}}, "schema"),
        ({"schema": "OMM"}, "either data or payload"),
        ({"schema": "OMM", "data": {}, "payload": ""}, "either data or payload"),
        ({"schema": "OMM", "data": {"WINGS": 2}}, "no keyword 'WINGS'"),
        ({"schema": "CDM", "data": {"WINGS": 2}}, "no field 'WINGS'"),
        ({"schema": "XYZ", "data": {}}, "no schema 'XYZ'"),
        ({"schema": "OMM", "payload": "?"}, "base64"),
        ({"schema": "OMM", "data": {}, "ttl": -1}, "a ttl is"),
        ({"schema": "OMM", "data": {}, "wings": 2}, "wings"),
    ],
)
async def test_a_request_that_cannot_be_published_is_the_callers_mistake(
    tmp_path: Path, request_: dict[str, Any], complaint: str
) -> None:
    async with nodes(tmp_path, 1) as [alice]:
        with pytest.raises(UsageError, match=complaint):
            await alice.sds.publish(request_)
        assert alice.records() == []


async def test_what_our_own_rules_refuse_is_not_sent(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as [alice, bob]:
        await line(alice, bob)
        with pytest.raises(RefusedError) as caught:
            await alice.sds.publish({"schema": "OMM", "payload": "AAAA"})
        assert caught.value.reason is Reason.INVALID_PAYLOAD
        with pytest.raises(RefusedError, match="does not know"):
            await alice.sds.publish({"schema": "TDM", "data": {}})
        await anyio.sleep(0.05)
        assert bob.records() == []


async def test_our_own_eleventh_publish_in_a_second_is_refused_here(tmp_path: Path) -> None:
    async with nodes(tmp_path, 1, clock=FakeClock()) as [alice]:
        for number in range(10):
            await alice.sds.send("OMM", {"NORAD_CAT_ID": number})
        with pytest.raises(RefusedError) as caught:
            await alice.sds.send("OMM", {})
        assert (caught.value.reason, caught.value.hint[:16]) == (Reason.RATE_LIMITED, "try again in 1 s")


# streams, as a bare peer sees them


async def test_hello_comes_first_both_ways_and_another_major_version_is_error_1(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as [alice, bob], bare(alice, bob, greet=False) as peer:
        await peer.say(Hello(protocol_version="2.0.0"))
        assert (await peer.error()).code == 1
        assert await peer.stream.receive() is None


async def test_a_publish_on_a_stream_is_acknowledged_and_told_to_the_network(tmp_path: Path) -> None:
    async with nodes(tmp_path, 3) as [alice, bob, carol], bare(alice, bob) as peer:
        await line(bob, carol)
        made = message(STRANGER, alice.node.clock.now())
        await peer.say(made)
        assert await peer.hear() == Ack(request_id="m1", stored=(wire.record_id(made).hex(),))
        [record] = await carol.holds(1)
        assert (record.publisher, record.raw) == (STRANGER.peer_id, encode(made))


async def test_every_limit_and_code_is_seen_on_the_wire(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, clock=FakeClock()) as [alice, bob], bare(alice, bob) as peer:
        now = alice.node.clock.now()
        # code 2
        await peer.say(message(STRANGER, now, signature=bytes(64)))
        forged = await peer.error()
        assert (forged.code, forged.request_id, forged.retry_after) == (2, "m1", 0)
        # publish rate: code 3 with the wait
        for number in range(2, 12):
            await peer.say(message(STRANGER, now, number))
        heard = [await peer.hear() for _ in range(10)]
        assert isinstance(heard[-1], Refusal)
        assert (heard[-1].code, heard[-1].request_id, heard[-1].retry_after) == (3, "m11", 1)
        # code 4
        await peer.say(Query(query_id="q4", schema="TDM"))
        assert await peer.error() == Refusal(code=4, message="unknown schema [TDM]", request_id="q4")
        # query rate: code 3 with the wait
        await peer.say(*(Query(query_id=f"r{number}", schema="TDM") for number in range(1, 101)))
        errors = [await peer.error() for _ in range(100)]
        assert [error.code for error in errors] == [4] * 99 + [3]
        assert (errors[-1].request_id, errors[-1].retry_after) == ("r100", 1)
        # subscriptions
        await peer.say(*(Subscribe(subscription_id=f"s{number}", schemas=("OMM",)) for number in range(101)))
        answers = [await peer.hear() for _ in range(101)]
        assert answers[:100] == [Ack(request_id=f"s{number}") for number in range(100)]
        assert answers[100] == Refusal(code=3, message="too many subscriptions", request_id="s100")
        # code 1, then the size of a message, which is also the end
        await peer.say(b"\x08\0\0\0nonsense")
        malformed = await peer.error()
        assert (malformed.code, malformed.request_id, malformed.retry_after) == (1, "", 0)
        huge = message(STRANGER, now, payload=bytes(SDS_MESSAGE_BYTES))
        await peer.say(encode(huge))
        oversize = await peer.error()
        assert (oversize.code, oversize.retry_after) == (1, 0)
        assert "1000000 are allowed" in oversize.message
        assert await peer.stream.receive() is None


async def test_a_query_that_takes_too_long_is_code_5_on_the_wire(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, query_seconds=0.000001) as [alice, bob], bare(alice, bob) as peer:
        await peer.say(Query(query_id="q5", schema="OMM"))
        error = await peer.error()
        assert (error.code, error.request_id, error.retry_after) == (5, "q5", 0)


async def test_a_frame_the_framing_itself_refuses_is_answered_too(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as [alice, bob], bare(alice, bob, most=10_000_000) as peer:
        await peer.say(encode(message(STRANGER, 0, payload=bytes(2_000_000))))
        assert (await peer.error()).code == 1
        assert await peer.stream.receive() is None


async def test_a_subscriber_on_a_stream_gets_history_then_news_then_nothing_after_it_ends(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, publish_rate=0) as [alice, bob], bare(alice, bob) as peer:
        for number in range(1, 6):
            await bob.sds.send("OMM", {"NORAD_CAT_ID": number})
        await peer.say(Subscribe(subscription_id="s", schemas=("OMM",), include_historical=True, historical_limit=2))
        assert await peer.hear() == Ack(request_id="s")
        past = [await peer.hear(), await peer.hear()]
        news = await bob.sds.send("OMM", {"NORAD_CAT_ID": 6})
        assert await peer.hear() == news.message
        assert [_number(each) for each in past] == [4, 5]
        await peer.say(wire.Unsubscribe(subscription_id="s"))
        assert await peer.hear() == Ack(request_id="s")
        await bob.sds.send("OMM", {"NORAD_CAT_ID": 7})
        await peer.say(Query(query_id="q", schema="OMM"))
        assert isinstance(await peer.hear(), wire.QueryResponse)
        assert bob.sds.statistics()["subscriptions"] == 0


def _number(each: Message) -> int:
    assert isinstance(each, Publish)
    return int(standard("OMM").reader.decode(each.payload)["NORAD_CAT_ID"])


async def test_the_end_of_a_stream_ends_its_subscriptions(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as [alice, bob], bare(alice, bob) as peer:
        await peer.say(Subscribe(subscription_id="s", schemas=("OMM",)))
        await peer.hear()
        assert bob.sds.statistics()["subscriptions"] == 1
        await peer.stream.close()
        with anyio.fail_after(5):
            while bob.sds.statistics()["subscriptions"]:
                await anyio.sleep(0.01)


# asking, following, catching up


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
async def test_a_query_brings_verified_records_in_pages(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, publish_rate=0) as [alice, bob]:
        for number in range(1, 31):
            await bob.sds.send("OMM", {"NORAD_CAT_ID": number, "MEAN_MOTION": number / 2})
        await alice.host.connect(bob.host.addresses[0])
        found = await alice.sds.query(bob.peer_id, "OMM", {"NORAD_CAT_ID": 25}, limit=10)
        assert [(each.fields["NORAD_CAT_ID"], each.verified) for each in found] == [(25, True)]
        many = await alice.sds.query(
            bob.peer_id, "OMM", {"MEAN_MOTION": {"gt": 10}}, order_by="NORAD_CAT_ID", order="desc", limit=4, offset=3
        )
        assert [each.fields["NORAD_CAT_ID"] for each in many] == [27, 26, 25, 24]
        assert len(await alice.sds.query(bob.peer_id, "OMM", limit=5_000)) == 30
        bare_ = await alice.sds.query(bob.peer_id, "OMM", limit=1, signatures=False)
        assert [each.verified for each in bare_] == [False]
        assert alice.records() == []


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
async def test_a_node_itself_publishes_subscribes_and_queries(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as [alice, bob]:
        await line(alice, bob)
        news = bob.node.subscribe("OMM", where={"MEAN_MOTION": {"gt": 15}})
        await alice.node.publish("OMM", {"NORAD_CAT_ID": 1, "MEAN_MOTION": 1.0})
        sent = await alice.node.publish("OMM", {"NORAD_CAT_ID": 25544, "MEAN_MOTION": 15.5}, ttl=60)
        [taken] = await _first(news, 1)
        assert (taken.record.id, taken.message.ttl, taken.fields["NORAD_CAT_ID"]) == (sent.record.id, 60, 25544)
        found = await bob.node.query(alice.peer_id, "OMM", where={"NORAD_CAT_ID": 25544}, limit=10)
        assert [(each.fields["MEAN_MOTION"], each.verified) for each in found] == [(15.5, True)]


async def test_a_peer_named_by_its_address_is_dialled(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as [alice, bob]:
        await alice.node.publish("OMM", {"NORAD_CAT_ID": 1})
        [address] = alice.host.addresses
        [found] = await bob.node.query(address, "OMM", keep=True)
        assert found.verified
        assert [record.peer for record in bob.records()] == [alice.peer_id]
        assert (await bob.sds.sync(address)).peer == alice.peer_id
        async with bob.sds.follow(address, ["OMM"], history=1) as pushes:
            [receipt] = await _first(pushes, 1)
        assert receipt.arrival.reason is Reason.DUPLICATE
        with pytest.raises(UnreachableError):
            await bob.node.query(f"/memory/nobody/p2p/{STRANGER.peer_id}", "OMM")


async def test_peers_that_ask_for_everything_and_read_nothing_keep_nobody_else_from_an_answer(tmp_path: Path) -> None:
    async with nodes(tmp_path, 3, publish_rate=0) as [alice, bob, carol], AsyncExitStack() as stack:
        for number in range(1, 61):
            await bob.sds.send("OMM", {"NORAD_CAT_ID": number, "COMMENT": "x" * 20_000})
        for number in range(6):
            peer = await stack.enter_async_context(bare(alice, bob))
            await peer.say(wire.Sync(sync_id=f"{number}"))
        await anyio.sleep(0.5)
        with anyio.fail_after(5):
            [found] = await carol.sds.query(bob.host.addresses[0], "OMM", {"NORAD_CAT_ID": 7})
        assert found.verified


async def test_found_records_are_kept_when_asked(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as [alice, bob]:
        sent = await bob.sds.send("OMM", {"NORAD_CAT_ID": 1}, ttl=1)
        await alice.host.connect(bob.host.addresses[0])
        await alice.sds.query(bob.peer_id, "OMM", keep=True)
        [record] = alice.records(verdict="accept")
        assert (record.id, record.kind, record.peer) == (sent.record.id, "record", bob.peer_id)
        await alice.sds.query(bob.peer_id, "OMM", signatures=False, keep=True)
        assert len(alice.records()) == 1


async def test_what_a_peer_refuses_and_who_cannot_be_reached_are_errors_of_their_own(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as [alice, bob]:
        with pytest.raises(UnreachableError):  # code 6 PEER_UNAVAILABLE is raised here and never sent
            await alice.sds.query(bob.peer_id, "OMM")
        await alice.host.connect(bob.host.addresses[0])
        with pytest.raises(RefusedError, match="SCHEMA_UNKNOWN") as caught:
            await alice.sds.query(bob.peer_id, "TDM")
        assert caught.value.reason is Reason.UNKNOWN_SCHEMA
        with pytest.raises(UsageError, match="no field 'WINGS'"):
            await alice.sds.query(bob.peer_id, "OMM", {"WINGS": 2})
        with pytest.raises(RefusedError, match="no order 'sideways'"):
            await alice.sds.query(bob.peer_id, "OMM", order="sideways")


async def test_a_program_follows_what_its_node_takes_in(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as [alice, bob]:
        await line(alice, bob)
        seen: list[int] = []

        async def follow() -> None:
            async for taken in bob.sds.subscribe("OMM", where={"NORAD_CAT_ID": {"gt": 2}}):
                seen.append(taken.fields["NORAD_CAT_ID"])
                if len(seen) == 2:
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await anyio.sleep(0.05)
            for number in range(1, 5):
                await alice.sds.send("OMM", {"NORAD_CAT_ID": number})
        assert seen == [3, 4]
        again = await _first(bob.sds.subscribe("OMM", after=0), 4)
        assert [taken.fields["NORAD_CAT_ID"] for taken in again] == [1, 2, 3, 4]


async def _first(source: Any, count: int) -> list[Any]:
    with anyio.fail_after(10):
        return [await anext(source) for _ in range(count)]


async def test_a_node_follows_a_peer_and_keeps_what_it_pushes(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, publish_rate=0) as [alice, bob]:
        for number in range(1, 20):
            await bob.sds.send("OMM", {"NORAD_CAT_ID": number})
        await alice.host.connect(bob.host.addresses[0])
        async with alice.sds.follow(bob.peer_id, ["OMM"], history=15) as pushes:
            assert all(receipt.accepted for receipt in await _first(pushes, 15))
        assert [record.key for record in alice.records()] == [str(number) for number in range(5, 20)]


async def test_a_node_that_was_off_catches_up_by_itself(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, publish_rate=0, sync_seconds=0.2) as [alice, bob]:
        for number in range(1, 51):
            await bob.sds.send("OMM", {"NORAD_CAT_ID": number})
        await alice.host.connect(bob.host.addresses[0])
        records = await alice.holds(50)
        assert {record.kind for record in records} == {"record"}
        assert {record.id for record in records} == {record.id for record in bob.records()}


async def test_a_peer_that_never_comes_to_an_end_keeps_nobody_from_catching_up_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.protocols.sds.service.catchup.TURN_SECONDS", 0.2)
    asked: list[Message] = []

    async def dawdle(stream: Stream) -> None:
        peer = Bare(stream)
        await peer.say(greeting(["OMM", "CDM"]))
        while not isinstance(message := await peer.hear(), wire.Sync):
            pass
        asked.append(message)
        await anyio.sleep(20)

    async with nodes(tmp_path, 2, publish_rate=0, sync_seconds=0.2) as [alice, bob]:
        for number in range(1, 6):
            await bob.sds.send("OMM", {"NORAD_CAT_ID": number})
        first = next(key for key in (NodeKey(bytes([9, n]) * 16) for n in range(256)) if key.peer_id < bob.peer_id)
        async with alice.fabric.host(first) as slow:
            slow.handle_stream(wire.PROTOCOL_ID, dawdle, FRAMING)
            await alice.host.connect(slow.addresses[0])
            await alice.host.connect(bob.host.addresses[0])
            with anyio.fail_after(10):
                await alice.holds(5)
                while len(asked) < 2:  # and it has its turn again
                    await anyio.sleep(0.01)


async def test_catching_up_brings_all_that_is_missing_and_hardly_more_bytes(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, publish_rate=0) as [alice, bob]:
        await line(alice, bob)
        for number in range(1, 41):
            await bob.sds.send("OMM", {"NORAD_CAT_ID": number})
        await alice.holds(40)
        await alice.host.disconnect(bob.peer_id)
        for number in range(41, 541):
            await bob.sds.send("OMM", {"NORAD_CAT_ID": number, "OBJECT_NAME": f"OBJECT {number}"})
        await alice.host.connect(bob.host.addresses[0])
        caught = await alice.sds.sync(bob.peer_id)
        missed = sum(len(record.raw or b"") for record in bob.records()[40:])
        assert caught.accepted == 500
        assert len(alice.records(verdict="accept")) == 540
        assert caught.bytes <= 1.1 * missed + 4_000  # and the hello
        assert caught.rounds >= 2
        again = await alice.sds.sync(bob.peer_id)
        assert (again.records, again.accepted) == (0, 0)


@pytest.mark.parametrize("hidden_rounds", [1, 2])
async def test_a_record_that_a_filter_hides_by_mistake_comes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden_rounds: int
) -> None:
    rounds: list[int] = []
    read = Bloom.holding

    def holding(self: Bloom, ids: list[bytes]) -> list[bool]:
        rounds.append(len(ids))
        return [
            said or (name == hidden and len(rounds) <= hidden_rounds)
            for name, said in zip(ids, read(self, ids), strict=True)
        ]

    async with nodes(tmp_path, 2, publish_rate=0) as [alice, bob]:
        await alice.sds.send("OMM", {"NORAD_CAT_ID": 1})  # else there is no filter
        sent = [await bob.sds.send("OMM", {"NORAD_CAT_ID": number}) for number in (2, 3)]
        hidden = sent[0].record.id
        monkeypatch.setattr(Bloom, "holding", holding)
        await alice.host.connect(bob.host.addresses[0])
        caught = await alice.sds.sync(bob.peer_id)
        assert caught.accepted == 2
        assert caught.rounds == hidden_rounds + 3  # two more that bring nothing


async def test_a_peer_that_answers_a_sync_with_what_nobody_asked_for_is_left(tmp_path: Path) -> None:
    """One that says there is more and sends nothing, and one that sends forgeries."""
    async with nodes(tmp_path, 1) as [alice]:
        fabric_key = NodeKey(bytes([9]) * 32)
        async with alice.fabric.host(fabric_key) as liar:
            answers: list[Message] = []

            async def lie(stream: Stream) -> None:
                peer = Bare(stream)
                await peer.say(greeting(["OMM", "CDM"]))
                while not isinstance(asked := await peer.hear(), wire.Sync):
                    pass
                await peer.say(*(msgspec.structs.replace(each, sync_id=asked.sync_id) for each in answers))
                await stream.receive()

            liar.handle_stream(wire.PROTOCOL_ID, lie, FRAMING)
            await alice.host.connect(liar.addresses[0])
            answers += [wire.SyncResponse(has_more=True)]
            with pytest.raises(DecodeError, match="nobody asked for"):
                await alice.sds.sync(liar.peer_id)
            forged = rules.held(message(STRANGER, alice.node.clock.now(), signature=bytes(64)), 0)
            answers[:] = [wire.SyncResponse(records=(forged,), has_more=True), wire.SyncResponse(has_more=True)]
            with pytest.raises(DecodeError, match="nobody asked for"):
                await alice.sds.sync(liar.peer_id)
        assert [record.reason for record in alice.records()] == [Reason.INVALID_SIGNATURE]


async def test_a_full_disk_refuses_publishes_for_now_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(tmp_path, 2) as [alice, bob], bare(alice, bob) as peer:

        async def full(*arguments: Any) -> Any:
            raise OverloadedError("the disk is almost full")

        with monkeypatch.context() as patched:
            patched.setattr(bob.node.receiver, "receive", full)
            await peer.say(message(STRANGER, alice.node.clock.now()))
            error = await peer.error()
            assert (error.code, error.request_id, error.retry_after) == (3, "m1", 1)
            await line(alice, bob)
            await alice.sds.send("OMM", {"NORAD_CAT_ID": 5})
            with anyio.fail_after(5):
                while not bob.sds.statistics()["gossip_overloaded"]:
                    await anyio.sleep(0.01)
        await peer.say(message(STRANGER, alice.node.clock.now(), 2))
        assert isinstance(await peer.hear(), Ack)


async def test_a_service_that_does_not_run_says_so(tmp_path: Path) -> None:
    async with nodes(tmp_path, 1) as [alice]:
        service = alice.sds
    with pytest.raises(ClosedError):
        await service.send("OMM", {})


@pytest.mark.parametrize(
    ("settings", "complaint"), [({"schemas": ["OMM", "XYZ"]}, "XYZ"), ({"network": "a/b"}, "network")]
)
async def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        SdsSettings(**settings).context()


async def test_statistics_count_what_happened(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as [alice, bob]:
        await line(alice, bob)
        await alice.sds.send("OMM", {})
        await bob.holds(1)
        assert alice.sds.statistics()["published"] == 1
        with anyio.fail_after(5):
            while bob.sds.statistics()["gossip_received"] != 1:
                await anyio.sleep(0.01)
        assert bob.sds.peers()[0]["peer"] == alice.peer_id
