"""ShrEx on real nodes: journal, FloodSub, header source; on an in-process fabric."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from syncline.core.errors import (
    ClosedError,
    ConflictError,
    OverloadedError,
    RefusedError,
    SettingsError,
    UnavailableError,
    UsageError,
)
from syncline.core.keys import NodeKey
from syncline.core.limits import SHREX_LISTENER_QUEUE
from syncline.core.record import Direction
from syncline.core.verdict import Outcome, Reason
from syncline.formats.pubsub import compose
from syncline.networks.memory_host import MemoryFabric
from syncline.networks.pubsub.outbox import message_frame
from syncline.protocols.shrex.plugin import plugin
from syncline.protocols.shrex.rules.judge import ShrexJudge
from syncline.protocols.shrex.service.listen import Listeners
from syncline.protocols.shrex.service.sources import MemorySource, RpcSource
from syncline.protocols.shrex.settings import ShrexSettings
from syncline.protocols.shrex.wire.header import Header
from syncline.protocols.shrex.wire.notification import TOPIC, Notification, encode
from syncline.protocols.shrex.wire.result import Outcome as Result
from syncline.testing.headers import chain
from tests.protocols.shrex.nodes import announce, decided, note, shrex_node, until

pytestmark = pytest.mark.anyio
BRIDGE, OTHER, THIRD = (NodeKey(bytes(31) + bytes((number,))) for number in (1, 2, 3))


@pytest.fixture
def fabric() -> MemoryFabric:
    return MemoryFabric()


async def test_a_true_notification_is_kept_told_and_credited_to_its_forwarder(
    fabric: MemoryFabric, tmp_path: Path
) -> None:
    headers = chain(5)
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers)) as a, fabric.host(BRIDGE) as bridge:
        listener = a.service.subscribe()
        await until(lambda: a.service.follower.head == 5)
        await bridge.connect(a.host.addresses[0])
        await announce(bridge, note(headers[-1]))
        with anyio.fail_after(10):
            assert await listener.next() == note(headers[-1])
        [record] = a.records()
        assert (record.verdict, record.publisher, record.peer) == (Outcome.ACCEPT, bridge.peer_id, bridge.peer_id)
        assert (record.seq, record.key, record.topic) == (5, headers[-1].data_hash.hex(), TOPIC)
        assert plugin.decoded(record)["height"] == "5"
        assert a.service.session.manager.pool_peers(headers[-1].data_hash) == [bridge.peer_id]
        await until(lambda: a.service.peers())
        [peer] = a.service.peers()
        assert (peer["peer"], peer["announced"], peer["direction"]) == (bridge.peer_id, 1, "in")
        assert a.service.statistics()["accept"] == 1


async def test_headers_are_kept_as_records_and_linked(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers = chain(5)
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers)) as a:
        await until(lambda: a.service.follower.head == 5)
        found = a.records("header")
        assert [record.seq for record in found] == [1, 2, 3, 4, 5]
        assert [record.id for record in found] == [header.hash for header in headers]
        assert {record.verdict for record in found} == {Outcome.ACCEPT}
        assert plugin.decoded(found[0])["hash"] == headers[0].hash.hex()
        assert a.service.follower.synced


async def test_a_notification_ahead_of_our_head_is_forwarded_only_when_its_header_is_known(
    fabric: MemoryFabric, tmp_path: Path
) -> None:
    headers = chain(6)
    source = MemorySource(*headers[:5])
    async with (
        shrex_node(fabric, tmp_path / "a", source) as a,
        fabric.host(BRIDGE) as bridge,
        fabric.host(OTHER) as other,
    ):
        await until(lambda: a.service.follower.head == 5)
        await bridge.connect(a.host.addresses[0])
        await other.connect(a.host.addresses[0])
        async with other.flood.subscribe(TOPIC) as heard:
            with anyio.fail_after(10):
                await a.host.flood.wait_for_neighbours(TOPIC)
            await announce(bridge, note(headers[5]))
            await until(lambda: a.service.session.held == 1)
            assert a.records() == []
            with anyio.move_on_after(0.2) as waited:
                await heard.receive()
            assert waited.cancelled_caught
            source.add(headers[5])
            with anyio.fail_after(10):
                [delivery] = await heard.receive()
            assert delivery.message.author == bridge.peer_id
            assert [record.verdict for record in a.records()] == [Outcome.ACCEPT]


async def test_a_wrong_hash_is_rejected_kept_and_held_against_who_brought_it(
    fabric: MemoryFabric, tmp_path: Path
) -> None:
    headers = chain(5)
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers)) as a, fabric.host(BRIDGE) as bridge:
        listener = a.service.subscribe()
        await until(lambda: a.service.follower.head == 5)
        await bridge.connect(a.host.addresses[0])
        await announce(bridge, note(headers[4], headers[3].data_hash))
        await until(lambda: decided(a) == 1)
        [record] = a.records()
        assert (record.verdict, record.reason) == (Outcome.REJECT, Reason.HEADER_MISMATCH)
        assert record.raw is not None
        assert a.host._guard.faults(bridge.peer_id, anyio.current_time()) > 0.9
        assert a.service.session.manager.is_bad_hash(headers[3].data_hash)
        with anyio.move_on_after(0.1) as waited:
            await listener.next()
        assert waited.cancelled_caught


async def test_an_unknown_height_is_ignored_after_its_time_and_blames_nobody(
    fabric: MemoryFabric, tmp_path: Path
) -> None:
    headers = chain(6)
    source, flags = MemorySource(*headers[:5]), {"shrex.validation_seconds": 0.2}
    async with shrex_node(fabric, tmp_path / "a", source, **flags) as a, fabric.host(BRIDGE) as bridge:
        await until(lambda: a.service.follower.head == 5)
        await bridge.connect(a.host.addresses[0])
        await announce(bridge, note(headers[5]))
        await until(lambda: decided(a) == 1)
        [record] = a.records()
        assert (record.verdict, record.reason, record.raw) == (Outcome.IGNORE, Reason.HEADER_UNKNOWN, None)
        assert a.host._guard.faults(bridge.peer_id, anyio.current_time()) == 0


async def test_a_notification_ignored_for_want_of_its_header_is_forwarded_when_a_later_copy_is_accepted(
    fabric: MemoryFabric, tmp_path: Path
) -> None:
    headers = chain(6)
    source, flags = MemorySource(*headers[:5]), {"shrex.validation_seconds": 0.2}
    raw = compose(BRIDGE, TOPIC, encode(note(headers[5])), 1)
    hosts = fabric.host(OTHER), fabric.host(THIRD)
    async with shrex_node(fabric, tmp_path / "a", source, **flags) as a, hosts[0] as bringer, hosts[1] as other:
        await until(lambda: a.service.follower.head == 5)
        await bringer.connect(a.host.addresses[0])
        await other.connect(a.host.addresses[0])
        async with other.flood.subscribe(TOPIC) as heard:
            with anyio.fail_after(10):
                await a.host.flood.wait_for_neighbours(TOPIC)
            channel = await bringer.open_channel(a.host.peer_id, ["/floodsub/1.0.0"])
            await channel.send(message_frame(raw))
            await until(lambda: decided(a) == 1)
            source.add(headers[5])
            await until(lambda: a.service.follower.head == 6)
            for count in (2, 3):
                await channel.send(message_frame(raw))
                await until(lambda count=count: decided(a) == count)  # type: ignore[misc]
            assert [(record.verdict, record.reason) for record in a.records()] == [
                (Outcome.IGNORE, Reason.HEADER_UNKNOWN),
                (Outcome.ACCEPT, None),
                (Outcome.IGNORE, Reason.DUPLICATE),
            ]
            with anyio.fail_after(10):
                [delivery] = await heard.receive()
            assert delivery.message.raw == raw
            await until(lambda: a.host.statistics().get("flood_forwarded", 0) == 1)


async def test_a_forged_notification_is_kept_as_rejected(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers = chain(5)
    raw = bytearray(compose(BRIDGE, TOPIC, encode(note(headers[4])), 1))
    raw[70] ^= 1
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers)) as a, fabric.host(OTHER) as other:
        await until(lambda: a.service.follower.head == 5)
        await other.connect(a.host.addresses[0])
        with anyio.fail_after(10):
            await other.flood.wait_for_neighbours(TOPIC)
        channel = await other.open_channel(a.host.peer_id, ["/floodsub/1.0.0"])
        await channel.send(message_frame(bytes(raw)))
        await until(lambda: decided(a) == 1)
        [record] = a.records()
        assert (record.verdict, record.reason, record.raw) == (Outcome.REJECT, Reason.INVALID_SIGNATURE, bytes(raw))
        assert record.peer == other.peer_id


async def test_every_announcer_is_credited_and_listeners_hear_once(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers = chain(5)
    raw = compose(BRIDGE, TOPIC, encode(note(headers[4])), 1)
    hosts = fabric.host(BRIDGE), fabric.host(OTHER)
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers)) as a, hosts[0] as one, hosts[1] as two:
        await until(lambda: a.service.follower.head == 5)
        listener = a.service.subscribe()
        for host in (one, two):  # the same message, brought by two
            await host.connect(a.host.addresses[0])
            with anyio.fail_after(10):
                await host.flood.wait_for_neighbours(TOPIC)
            channel = await host.open_channel(a.host.peer_id, ["/floodsub/1.0.0"])
            await channel.send(message_frame(raw))
        await announce(two, note(headers[4]))  # and a message of its own about the same block
        await until(lambda: decided(a) == 3)
        assert sorted((record.verdict, record.reason or "") for record in a.records()) == [
            (Outcome.ACCEPT, ""),
            (Outcome.ACCEPT, ""),
            (Outcome.IGNORE, Reason.DUPLICATE),
        ]
        pool = a.service.session.manager.pool_peers(headers[4].data_hash)
        assert sorted(pool) == sorted([one.peer_id, two.peer_id])
        assert await listener.next() == note(headers[4])
        with anyio.move_on_after(0.1) as waited:
            await listener.next()
        assert waited.cancelled_caught


async def test_who_brings_a_mere_copy_is_asked_when_the_first_does_not_serve(
    fabric: MemoryFabric, tmp_path: Path
) -> None:
    headers = chain(5)
    raw, wanted = compose(BRIDGE, TOPIC, encode(note(headers[4])), 1), headers[4].data_hash
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers)) as a:
        await until(lambda: a.service.follower.head == 5)
        async with fabric.host(OTHER) as one, fabric.host(THIRD) as two:
            for count, host in enumerate((one, two), 1):
                await host.connect(a.host.addresses[0])
                channel = await host.open_channel(a.host.peer_id, ["/floodsub/1.0.0"])
                await channel.send(message_frame(raw))
                await until(lambda count=count: decided(a) == count)  # type: ignore[misc]
            assert [record.reason for record in a.records()] == [None, Reason.DUPLICATE]
            first, done = await a.service.peer(wanted, 5, timeout=1)
            done(Result.COOLDOWN)
            second, _ = await a.service.peer(wanted, 5, timeout=1)
            assert (first, second) == (one.peer_id, two.peer_id)
            assert a.service.statistics()["offered_pool"] == 2


@pytest.mark.parametrize("relay", [True, False])
async def test_the_relay_setting_says_whether_others_get_it_from_us(
    fabric: MemoryFabric, tmp_path: Path, relay: bool
) -> None:
    headers = chain(5)
    source = MemorySource(*headers)
    hosts = fabric.host(BRIDGE), fabric.host(OTHER)
    async with (
        shrex_node(fabric, tmp_path / "a", source, **{"shrex.relay": relay}) as a,
        hosts[0] as one,
        hosts[1] as two,
    ):
        await until(lambda: a.service.follower.head == 5)
        await one.connect(a.host.addresses[0])
        await two.connect(a.host.addresses[0])
        async with two.flood.subscribe(TOPIC) as heard:
            with anyio.fail_after(10):
                await a.host.flood.wait_for_neighbours(TOPIC)
            await announce(one, note(headers[4]))
            await until(lambda: decided(a) == 1)
            with anyio.move_on_after(0.5) as waited:
                await heard.receive()
            assert waited.cancelled_caught is not relay


async def test_the_topic_of_the_real_network_can_be_chosen(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers = chain(5)
    flags = {"shrex.profile": "celestia", "shrex.network": "mocha-4"}
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers), **flags) as a, fabric.host(BRIDGE) as bridge:
        await until(lambda: a.service.follower.head == 5)
        await bridge.connect(a.host.addresses[0])
        await announce(bridge, note(headers[4]), "mocha-4/eds-sub/v0.2.0")
        await until(lambda: decided(a) == 1)
        assert [record.verdict for record in a.records()] == [Outcome.ACCEPT]


# the header source


async def test_a_failing_header_source_punishes_nobody_and_is_tried_again(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers = chain(6)
    source, flags = MemorySource(*headers[:5]), {"shrex.validation_seconds": 0.1, "shrex.blacklist_peers": True}
    async with shrex_node(fabric, tmp_path / "a", source, **flags) as a, fabric.host(BRIDGE) as bridge:
        await until(lambda: a.service.follower.head == 5)
        source.broken = True
        await until(lambda: a.service.follower.failures > 0)
        assert not a.service.follower.synced
        await bridge.connect(a.host.addresses[0])
        await announce(bridge, note(headers[5]))
        await until(lambda: decided(a) == 1)
        assert [record.reason for record in a.records()] == [Reason.HEADER_UNKNOWN]
        assert bridge.peer_id in [peer.peer for peer in a.host.peers()]
        assert a.service.statistics()["blacklisted_peers"] == 0
        source.broken = False
        source.add(headers[5])
        await until(lambda: a.service.follower.head == 6, 20)


async def test_a_header_that_does_not_continue_our_chain_is_refused_and_kept_as_rejected(
    fabric: MemoryFabric, tmp_path: Path
) -> None:
    headers = chain(5)
    forged = chain(1, after=chain(5, seed="another")[4])[0]
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers, forged)) as a:
        await until(lambda: a.service.follower.refused > 0)
        assert (a.service.follower.head, a.service.follower.synced) == (5, False)
        refused = a.records("header", verdict="reject")
        assert {(record.seq, record.reason) for record in refused} == {(6, Reason.HEADER_MISMATCH)}


async def test_only_the_trusted_header_begins_the_chain(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers = chain(8)
    trusted = {"shrex.trusted_height": 3, "shrex.trusted_hash": headers[2].hash.hex()}
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers), **trusted) as a:
        await until(lambda: a.service.follower.head == 8)
        assert a.service.follower.first == 3
    other = {"shrex.trusted_height": 3, "shrex.trusted_hash": headers[3].hash.hex()}
    async with shrex_node(fabric, tmp_path / "b", MemorySource(*headers), **other) as b:
        await until(lambda: b.service.follower.refused > 0)
        assert b.service.follower.head == 0


@pytest.mark.parametrize("where", [3, 6, 8])
async def test_a_chain_that_does_not_hold_the_trusted_header_is_begun_anew(
    fabric: MemoryFabric, tmp_path: Path, where: int
) -> None:
    """Somebody believed a source at first, and names a header to trust later."""
    false, true = chain(6, seed="false"), chain(8)
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*false)) as a:
        await until(lambda: a.service.follower.synced)
        await a.service.publish({"height": 6, "data_hash": false[5].data_hash.hex()})
    trusted = {"shrex.trusted_height": where, "shrex.trusted_hash": true[where - 1].hash.hex()}
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*true), **trusted) as a, fabric.host(BRIDGE) as bridge:
        await until(lambda: a.service.follower.head == 8)
        assert a.service.follower.first == where
        assert len(a.node.journal.scan_state("shrex.headers")) == 9 - where
        assert len(a.node.journal.scan_state("shrex.published")) == 1  # no height is announced twice on any chain
        await bridge.connect(a.host.addresses[0])
        await announce(bridge, note(true[7]))
        await until(lambda: decided(a) == 1)
        assert a.service.statistics()["accept"] == 1


async def test_a_chain_that_holds_the_trusted_header_is_kept_also_when_that_header_is_forgotten(
    fabric: MemoryFabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.protocols.shrex.service.follow.SHREX_HEADERS", 4)
    headers = chain(12)
    source = MemorySource(*headers[:5])
    async with shrex_node(fabric, tmp_path / "a", source) as a:  # believes the source
        await until(lambda: a.service.follower.head == 5)
        assert a.service.follower.first == 2
    trusted = {"shrex.trusted_height": 3, "shrex.trusted_hash": headers[2].hash.hex()}
    for head in (5, 9, 9, 12):
        source.add(*headers[:head])
        async with shrex_node(fabric, tmp_path / "a", source, **trusted) as a:
            await until(lambda head=head: a.service.follower.head == head)  # type: ignore[misc]
            assert a.service.follower.first == head - 3


async def test_a_source_that_falls_back_is_not_at_the_tip_and_our_chain_stays(
    fabric: MemoryFabric, tmp_path: Path
) -> None:
    headers = chain(6)
    source = MemorySource(*headers[:5])
    async with shrex_node(fabric, tmp_path / "a", source) as a:
        await until(lambda: a.service.follower.synced)
        del source.headers[5], source.headers[4]
        await until(lambda: a.service.follower.source_head == 3)
        assert (a.service.follower.head, a.service.follower.synced) == (5, False)
        with pytest.raises(UnavailableError, match="not synced"):
            await a.service.publish({"height": 5, "data_hash": headers[4].data_hash.hex()})
        source.add(*headers)
        await until(lambda: a.service.follower.synced)
        assert (a.service.follower.head, a.service.follower.failures) == (6, 0)


async def test_a_source_that_changes_its_chain_is_refused_and_punishes_nobody(
    fabric: MemoryFabric, tmp_path: Path
) -> None:
    headers = chain(6)
    source, flags = MemorySource(*headers[:5]), {"shrex.blacklist_peers": True, "shrex.validation_seconds": 0.1}
    async with shrex_node(fabric, tmp_path / "a", source, **flags) as a, fabric.host(BRIDGE) as bridge:
        await until(lambda: a.service.follower.synced)
        source.headers.clear()
        source.add(*headers[:3], *chain(4, after=headers[2], seed="fork"))
        await until(lambda: a.service.follower.refused > 0)
        assert (a.service.follower.head, a.service.follower.source_head, a.service.follower.synced) == (5, 7, False)
        await bridge.connect(a.host.addresses[0])
        await announce(bridge, note(headers[5]))  # true on our chain, whatever the source says
        await until(lambda: decided(a) == 1)
        assert [record.verdict for record in a.records()] == [Outcome.IGNORE]
        assert a.host._guard.faults(bridge.peer_id, anyio.current_time()) == 0


class Odd(MemorySource):
    """A plug-in's source that does what it likes."""

    def __init__(self, doing: Callable[[int], Awaitable[Header | None]], *headers: Header) -> None:
        super().__init__(*headers)
        self._doing = doing

    async def by_height(self, height: int) -> Header | None:
        return await self._doing(height) if height > 3 else await super().by_height(height)


async def test_whatever_a_source_does_the_node_goes_on(
    fabric: MemoryFabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = chain(5)

    async def raises(height: int) -> Header:
        raise KeyError(height)

    async def says_nothing(height: int) -> Header:
        await anyio.sleep_forever()
        raise AssertionError

    async def gives_another(height: int) -> Header:
        return headers[2]  # which continues our chain, but is not what was asked for

    async def gives_no_header(height: int) -> Any:
        return {"height": height}

    monkeypatch.setattr("syncline.protocols.shrex.service.follow.SHREX_SOURCE_SECONDS", 0.05)
    for number, doing in enumerate((raises, says_nothing, gives_another, gives_no_header)):
        async with shrex_node(fabric, tmp_path / str(number), Odd(doing, *headers)) as a:
            await until(lambda: a.service.follower.failures > 0)
            assert (a.service.follower.head, a.service.follower.synced) == (3, False)
            assert [record.seq for record in a.records("header")] == [1, 2, 3]


@pytest.mark.parametrize("head", [None, "5", -1, 2**63, 2.5])
async def test_a_head_that_is_no_height_is_a_failure_of_the_source(
    fabric: MemoryFabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: Any
) -> None:
    source = MemorySource(*chain(5))

    async def nonsense() -> Any:
        return head

    monkeypatch.setattr(source, "head", nonsense)
    async with shrex_node(fabric, tmp_path / "a", source) as a:
        await until(lambda: a.service.follower.failures > 0)
        assert (a.service.follower.head, a.service.follower.synced) == (0, False)


async def test_a_source_that_does_not_have_the_trusted_header_yet_is_asked_at_the_usual_pace(
    fabric: MemoryFabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = chain(8)
    source = MemorySource(*headers[:5])
    asked = 0

    async def head() -> int:
        nonlocal asked
        asked += 1
        return await MemorySource.head(source)

    monkeypatch.setattr(source, "head", head)
    trusted = {"shrex.trusted_height": 8, "shrex.trusted_hash": headers[7].hash.hex(), "shrex.poll_seconds": 0.05}
    async with shrex_node(fabric, tmp_path / "a", source, **trusted) as a:
        await anyio.sleep(0.5)
        assert 1 <= asked <= 11
        source.add(*headers)
        await until(lambda: a.service.follower.synced)
        assert (a.service.follower.first, a.service.follower.head) == (8, 8)


async def test_a_node_that_answers_byte_by_byte_is_given_up(
    fabric: MemoryFabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.protocols.shrex.service.follow.SHREX_SOURCE_SECONDS", 0.3)

    async def drip(stream: SocketStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
            async with stream:
                await stream.receive()
                await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
                while True:
                    await stream.send(b" ")
                    await anyio.sleep(0.02)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, drip)
        port = listener.extra(SocketAttribute.local_port)
        async with shrex_node(fabric, tmp_path / "a", RpcSource(f"http://127.0.0.1:{port}")) as a:
            await until(lambda: a.service.follower.failures > 0)
            assert not a.service.follower.synced
        tasks.cancel_scope.cancel()


def test_a_trusted_header_needs_height_and_hash() -> None:
    for settings in (
        ShrexSettings(trusted_hash="00" * 32),
        ShrexSettings(trusted_height=3),
        ShrexSettings(trusted_height=3, trusted_hash="xy"),
    ):
        with pytest.raises(SettingsError):
            _ = settings.trusted
    with pytest.raises(SettingsError):
        _ = ShrexSettings(refused_roots=["00"]).roots


async def test_after_a_restart_old_heights_are_still_known_though_the_source_is_away(
    fabric: MemoryFabric, tmp_path: Path
) -> None:
    headers = chain(5)
    source = MemorySource(*headers)
    async with shrex_node(fabric, tmp_path / "a", source) as a:
        await until(lambda: a.service.follower.head == 5)
    source.broken = True
    async with shrex_node(fabric, tmp_path / "a", source) as a, fabric.host(BRIDGE) as bridge:
        assert (a.service.follower.first, a.service.follower.head) == (1, 5)
        await bridge.connect(a.host.addresses[0])
        await announce(bridge, note(headers[2]))
        await until(lambda: decided(a) == 1)
        assert [record.verdict for record in a.records()] == [Outcome.ACCEPT]
        assert a.service.session.manager.pool_peers(headers[2].data_hash) == [bridge.peer_id]


async def test_the_state_of_old_headers_is_removed(
    fabric: MemoryFabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.protocols.shrex.service.follow.SHREX_HEADERS", 10)
    headers = chain(40)
    source = MemorySource(*headers[:20])
    async with shrex_node(fabric, tmp_path / "a", source) as a:
        await until(lambda: a.service.follower.head == 20)
        source.add(*headers)
        await until(lambda: a.service.follower.head == 40)
        assert (a.service.follower.first, a.service.follower.head) == (31, 40)
        assert len(a.node.journal.scan_state("shrex.headers")) == 10


# publishing


async def test_a_block_is_published_once_when_synced_and_at_the_tip(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers = chain(6)
    source = MemorySource(*headers[:5])
    request = {"height": 5, "data_hash": headers[4].data_hash.hex()}
    async with fabric.host(OTHER) as other, other.flood.subscribe(TOPIC) as heard:
        async with shrex_node(fabric, tmp_path / "a", source) as a:
            await until(lambda: a.service.follower.synced)
            await other.connect(a.host.addresses[0])
            with anyio.fail_after(10):
                await a.host.flood.wait_for_neighbours(TOPIC)
            answer = await a.service.publish(request)
            assert (answer["height"], answer["sent"], answer["dropped"]) == ("5", 1, [])
            with anyio.fail_after(10):
                [delivery] = await heard.receive()
            assert (delivery.message.data, delivery.message.author) == (encode(note(headers[4])), a.host.peer_id)
            [record] = a.records()
            assert (record.direction, record.verdict, record.raw) == (
                Direction.OUT,
                Outcome.ACCEPT,
                delivery.message.raw,
            )
            with pytest.raises(ConflictError, match="published already"):
                await a.service.publish(request)
        async with shrex_node(fabric, tmp_path / "a", source) as a:  # nor after a restart
            await until(lambda: a.service.follower.synced)
            with pytest.raises(ConflictError):
                await a.service.publish({**request, "height": "5"})
            source.add(headers[5])
            await until(lambda: a.service.follower.head == 6)
            await a.service.publish({"height": 6, "data_hash": headers[5].data_hash.hex()})


@pytest.mark.parametrize(
    ("request_", "error", "reason"),
    [
        ({}, UsageError, None),
        ({"height": 5}, UsageError, None),
        ({"height": 5, "data_hash": "00"}, UsageError, None),
        ({"height": 5, "data_hash": "zz" * 32}, UsageError, None),
        ({"height": -1, "data_hash": "11" * 32}, UsageError, None),
        ({"height": 2**64, "data_hash": "11" * 32}, UsageError, None),
        ({"height": True, "data_hash": "11" * 32}, UsageError, None),
        ({"height": "5x", "data_hash": "11" * 32}, UsageError, None),
        ({"height": 5, "data_hash": "11" * 32, "more": 1}, UsageError, None),
        ({"height": 0, "data_hash": "11" * 32}, RefusedError, Reason.INVALID_FIELD),
        ({"height": 5, "data_hash": "00" * 32}, RefusedError, Reason.INVALID_FIELD),
        ({"height": 4, "data_hash": "11" * 32}, RefusedError, Reason.OUT_OF_WINDOW),
        ({"height": 6, "data_hash": "11" * 32}, RefusedError, Reason.OUT_OF_WINDOW),
        ({"height": 5, "data_hash": "11" * 32}, RefusedError, Reason.HEADER_MISMATCH),
        ({"height": 5, "data_hash": "22" * 32}, RefusedError, Reason.UNAUTHORISED),
    ],
)
async def test_what_may_not_be_published_is_refused_before_anything_is_marked(
    fabric: MemoryFabric, tmp_path: Path, request_: dict[str, Any], error: type[Exception], reason: Reason | None
) -> None:
    flags = {"shrex.refused_roots": ["22" * 32]}
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*chain(5)), **flags) as a:
        await until(lambda: a.service.follower.synced)
        with pytest.raises(error) as refused:
            await a.service.publish(request_)
        assert getattr(refused.value, "reason", None) is reason
        assert a.node.journal.scan_state("shrex.published") == []
        assert a.records() == []


async def test_nothing_is_published_while_not_synced(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers = chain(6)
    source = MemorySource(*headers[:5])
    async with shrex_node(fabric, tmp_path / "a", source) as a:
        await until(lambda: a.service.follower.synced)
        source.broken = True
        await until(lambda: not a.service.follower.synced)
        with pytest.raises(UnavailableError, match="not synced"):
            await a.service.publish({"height": 5, "data_hash": headers[4].data_hash.hex()})


# asking peers


async def test_a_peer_is_waited_for_and_its_result_kept(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers = chain(5)
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers)) as a, fabric.host(BRIDGE) as bridge:
        await until(lambda: a.service.follower.head == 5)
        wanted = headers[4].data_hash
        with pytest.raises(UnavailableError):
            await a.service.peer(wanted, 5, timeout=0.05)
        await bridge.connect(a.host.addresses[0])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(announce, bridge, note(headers[4]))
            peer, done = await a.service.peer(wanted, 5, timeout=10)
        assert peer == bridge.peer_id
        done(Result.COOLDOWN)
        await until(lambda: a.records("peer_result"))
        [record] = a.records("peer_result")
        assert (record.peer, record.seq, record.key) == (bridge.peer_id, 5, wanted.hex())
        assert plugin.decoded(record)["result"] == "cooldown"
        assert a.service.pools()["pools"][0]["resting"] == [bridge.peer_id]
        again, _ = await a.service.peer(wanted, 5, timeout=5)  # from the nodes, while it rests in the pool
        assert again == bridge.peer_id
        await a.host.disconnect(bridge.peer_id)
        with pytest.raises(UnavailableError):
            await a.service.peer(wanted, 5, timeout=0.05)


async def test_what_is_no_block_is_not_asked_for_and_a_result_counts_once(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers = chain(5)
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers)) as a:
        await until(lambda: a.service.follower.head == 5)
        for data_hash, height in ((b"", 5), (bytes(31), 5), (bytes(32), 0), (bytes(32), 2**64)):
            with pytest.raises(UsageError):
                await a.service.peer(data_hash, height, timeout=0.0)
        a.service.discovered(BRIDGE.peer_id)
        _, done = await a.service.peer(b"\x77" * 32, 2**64 - 1, timeout=1)
        done(Result.NOOP)
        done(Result.BLACKLIST)
        await until(lambda: a.records("peer_result"))
        assert [(each.seq, plugin.decoded(each)["result"]) for each in a.records("peer_result")] == [
            (2**64 - 1, "noop")
        ]


async def test_a_peer_that_rests_is_given_as_soon_as_it_has_rested(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers = chain(5)
    flags = {"shrex.cooldown_seconds": 0.2}
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers), **flags) as a:
        await until(lambda: a.service.follower.head == 5)
        a.service.discovered(BRIDGE.peer_id)
        _, done = await a.service.peer(headers[4].data_hash, 5, timeout=1)
        done(Result.COOLDOWN)
        began = anyio.current_time()
        peer, _ = await a.service.peer(headers[4].data_hash, 5, timeout=5)
        assert (peer, anyio.current_time() - began >= 0.19) == (BRIDGE.peer_id, True)
        assert a.service.statistics().get("waited_in_vain", 0) == 0


async def test_a_peer_that_left_before_its_announcement_was_decided_is_credited_no_more(
    fabric: MemoryFabric, tmp_path: Path
) -> None:
    headers = chain(6)
    source = MemorySource(*headers[:5])
    async with shrex_node(fabric, tmp_path / "a", source) as a:
        listener = a.service.subscribe()
        await until(lambda: a.service.follower.head == 5)
        async with fabric.host(BRIDGE) as bridge:
            await bridge.connect(a.host.addresses[0])
            await announce(bridge, note(headers[5]))
            await until(lambda: a.service.session.held == 1)
        await until(lambda: a.host.peers() == [])
        source.add(headers[5])
        with anyio.fail_after(10):
            assert await listener.next() == note(headers[5])  # it was true all the same
        assert a.service.pools()["nodes"] == []
        assert a.service.session.manager.pool_peers(headers[5].data_hash) == []
        with pytest.raises(UnavailableError):
            await a.service.peer(headers[5].data_hash, 6, timeout=0.05)


async def test_listeners_are_told_when_the_node_stops(fabric: MemoryFabric, tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        async with shrex_node(fabric, tmp_path / "a", MemorySource(*chain(5))) as a:
            listener, ended = a.service.subscribe(), []

            async def listen() -> None:
                with pytest.raises(ClosedError):
                    await listener.next()
                ended.append(True)

            tasks.start_soon(listen)
            await until(lambda: a.service.follower.synced)
        await until(lambda: ended)


async def test_a_blacklisted_peer_is_disconnected_and_stays_out(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers, flags = chain(5), {"shrex.blacklist_peers": True}
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers), **flags) as a, fabric.host(BRIDGE) as bridge:
        await until(lambda: a.service.follower.head == 5)
        await bridge.connect(a.host.addresses[0])
        await announce(bridge, note(headers[4]))
        _, done = await a.service.peer(headers[4].data_hash, 5, timeout=10)
        done(Result.BLACKLIST)
        await until(lambda: a.host.peers() == [] == bridge.peers())  # else it would not dial again
        await bridge.connect(a.host.addresses[0])
        await until(lambda: a.host.statistics().get("refused_banned", 0) > 0)
        assert a.service.statistics()["blacklisted_peers"] == 1


async def test_a_liar_is_disconnected_if_blacklisting_is_on(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers, flags = chain(5), {"shrex.blacklist_peers": True}
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers), **flags) as a, fabric.host(BRIDGE) as bridge:
        await until(lambda: a.service.follower.head == 5)
        await bridge.connect(a.host.addresses[0])
        await announce(bridge, Notification(5, b"\x11" * 32))
        await until(lambda: a.host.peers() == [])
        assert a.service.session.manager.is_blacklisted(bridge.peer_id)


async def test_discovered_nodes_are_asked_too(fabric: MemoryFabric, tmp_path: Path) -> None:
    headers = chain(5)
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers)) as a:
        await until(lambda: a.service.follower.head == 5)
        a.service.discovered(BRIDGE.peer_id)
        peer, _ = await a.service.peer(headers[4].data_hash, 5, timeout=1)
        assert peer == BRIDGE.peer_id
        a.service.lost(BRIDGE.peer_id)
        with pytest.raises(UnavailableError):
            await a.service.peer(headers[4].data_hash, 5, timeout=0.05)


# faults of our own


async def test_a_judge_that_raises_is_a_reject_without_blame_and_no_outage(
    fabric: MemoryFabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = chain(5)
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers)) as a, fabric.host(BRIDGE) as bridge:
        await until(lambda: a.service.follower.head == 5)
        await bridge.connect(a.host.addresses[0])
        with monkeypatch.context() as patch:
            patch.setattr(ShrexJudge, "_verify", lambda *_: 1 / 0)
            await announce(bridge, note(headers[4]))
            await until(lambda: a.node.judges.failures == 1)
        await until(lambda: a.service.statistics().get("reject", 0) == 1)
        assert a.host._guard.faults(bridge.peer_id, anyio.current_time()) == 0
        await announce(bridge, note(headers[3]))
        await until(lambda: decided(a) == 2)
        assert [record.seq for record in a.records(verdict="accept")] == [4]


async def test_what_cannot_be_kept_is_ignored_and_counted(
    fabric: MemoryFabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = chain(5)
    async with shrex_node(fabric, tmp_path / "a", MemorySource(*headers)) as a, fabric.host(BRIDGE) as bridge:
        await until(lambda: a.service.follower.head == 5)
        await bridge.connect(a.host.addresses[0])

        async def full(*_: object) -> list[object]:
            raise OverloadedError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(a.node.receiver, "receive", full)
            await announce(bridge, note(headers[4]))
            await until(lambda: a.service.statistics().get("not_kept", 0) == 1)
        assert a.host._guard.faults(bridge.peer_id, anyio.current_time()) == 0
        assert a.service.session.manager.pool_peers(headers[4].data_hash) == []


async def test_a_slow_listener_is_told_how_many_it_missed() -> None:
    listeners = Listeners()
    slow = listeners.subscribe()
    for height in range(1, SHREX_LISTENER_QUEUE + 6):
        listeners.tell(Notification(height, b""))
    with pytest.raises(OverloadedError, match="5 notifications"):
        await slow.next()
    assert (await slow.next()).height == 6
    slow.close()
    assert len(listeners) == 0
    for _ in range(64):
        listeners.subscribe()
    with pytest.raises(OverloadedError):
        listeners.subscribe()
