"""Running hosts: dialling, limits, streams, bootstrap peers, and peers that behave badly below pubsub."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from syncline.core.errors import (
    DecodeError,
    RefusedError,
    SynclineError,
    UnavailableError,
    UnreachableError,
    UsageError,
)
from syncline.core.keys import NodeKey
from syncline.formats.framing import Framing
from syncline.networks.host import Cut, PeerEvent, Stream
from syncline.networks.libp2p import identify, yamux
from syncline.networks.libp2p.connection import Channel, Connection
from syncline.networks.libp2p.guard import Limits
from syncline.networks.libp2p.host import PING, HostSettings, Libp2pHost, running_host
from syncline.networks.libp2p.secure import SecureStream, secured
from syncline.networks.memory_host import MemoryFabric, PipeStream

pytestmark = pytest.mark.anyio
KEYS = [NodeKey(bytes(31) + bytes((number,))) for number in range(5)]
FRAMES = Framing("u32le", 1_000_000)


async def echo(stream: Stream) -> None:
    while (frame := await stream.receive()) is not None:
        await stream.send(frame)


@asynccontextmanager
async def two(
    fabric: MemoryFabric, settings: HostSettings | None = None
) -> AsyncIterator[tuple[Libp2pHost, Libp2pHost]]:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1], settings) as b:
        await a.connect(b.addresses[0])
        yield a, b


@asynccontextmanager
async def bare(fabric: MemoryFabric, victim: Libp2pHost, key: NodeKey) -> AsyncIterator[SecureStream]:
    """A peer that has shaken hands and does nothing by itself."""
    raw = fabric.connect(key.peer_id, victim.peer_id)
    stream = await secured(raw, key, initiator=True, timeout=5.0)
    try:
        yield stream
    finally:
        await stream.close()


# streams


@pytest.mark.parametrize("size", [0, 1, 65_536, 300_000, 1_000_000])
async def test_a_frame_comes_back_as_it_went(fabric: MemoryFabric, size: int) -> None:
    async with two(fabric) as (a, b):
        b.handle_stream("/echo/1", echo, FRAMES)
        data = os.urandom(size)
        for dialler, listener in ((a, b), (a, b)):
            stream = await dialler.open_stream(listener.peer_id, "/echo/1", FRAMES)
            assert (stream.peer, stream.protocol) == (listener.peer_id, "/echo/1")
            await stream.send_many([data, b"second"])
            assert [await stream.receive(), await stream.receive()] == [data, b"second"]
            await stream.end()
            assert await stream.receive() is None
            await stream.close()
            await stream.close()


async def test_many_streams_at_once_do_not_mix(fabric: MemoryFabric) -> None:
    async with two(fabric) as (a, b), anyio.create_task_group() as tasks:
        b.handle_stream("/echo/1", echo, FRAMES)

        async def talk(number: int) -> None:
            stream = await a.open_stream(b.peer_id, "/echo/1", FRAMES)
            for turn in range(20):
                frame = b"%d:%d" % (number, turn) * 50
                await stream.send(frame)
                assert await stream.receive() == frame
            await stream.close()

        for number in range(16):
            tasks.start_soon(talk, number)


async def test_what_a_peer_does_not_speak_is_refused_by_name(fabric: MemoryFabric) -> None:
    async with two(fabric) as (a, b):
        with pytest.raises(RefusedError, match="/nothing/1"):
            await a.open_stream(b.peer_id, "/nothing/1", FRAMES)
        with pytest.raises(UnreachableError):
            await a.open_stream(KEYS[4].peer_id, "/echo/1", FRAMES)
        with pytest.raises(UsageError):
            b.handle_stream("/floodsub/1.0.0", echo, FRAMES)


async def test_waits_on_a_stream_end_after_its_time_out(fabric: MemoryFabric) -> None:
    async def sulk(stream: Stream) -> None:
        await anyio.sleep(1_000)

    async with two(fabric) as (a, b):
        b.handle_stream("/sulk/1", sulk, FRAMES)
        stream = await a.open_stream(b.peer_id, "/sulk/1", FRAMES, timeout=2.0)
        before = anyio.current_time()
        with pytest.raises(UnavailableError):
            await stream.receive()
        assert anyio.current_time() - before == pytest.approx(2.0)
        with pytest.raises(UnavailableError):
            await stream.send(bytes(900_000))  # more than the window of one that does not read
        with pytest.raises(UnreachableError):
            await stream.send(b"after")


async def test_a_giant_or_cut_frame_ends_the_stream_and_nothing_else(fabric: MemoryFabric) -> None:
    seen: list[str] = []

    async def strict(stream: Stream) -> None:
        try:
            while (frame := await stream.receive()) is not None:
                await stream.send(frame)
        except DecodeError as error:
            seen.append(str(error.reason))
            raise

    async with two(fabric) as (a, b):
        b.handle_stream("/strict/1", strict, Framing("u32le", 1_000))
        giant = await a.open_channel(b.peer_id, ["/strict/1"])
        await giant.send(b"\xff\xff\xff\x7f")
        assert await giant.receive() == b""
        cut = await a.open_channel(b.peer_id, ["/strict/1"])
        await cut.send(b"\x05\x00\x00\x00abc")
        cut.end()
        assert await cut.receive() == b""
        assert seen == ["oversize", "malformed"]
        stream = await a.open_stream(b.peer_id, "/strict/1", FRAMES)
        await stream.send(b"still there")
        assert await stream.receive() == b"still there"


async def test_a_handler_that_raises_ends_its_stream_alone(fabric: MemoryFabric) -> None:
    async def broken(stream: Stream) -> None:
        raise ZeroDivisionError

    async with two(fabric) as (a, b):
        b.handle_stream("/broken/1", broken, FRAMES)
        b.handle_stream("/echo/1", echo, FRAMES)
        stream = await a.open_stream(b.peer_id, "/broken/1", FRAMES)
        assert await stream.receive() is None
        assert b.statistics()["handlers_failed"] == 1
        healthy = await a.open_stream(b.peer_id, "/echo/1", FRAMES)
        await healthy.send(b"x")
        assert await healthy.receive() == b"x"


async def test_one_peer_gets_so_many_streams_of_a_protocol_and_no_more(fabric: MemoryFabric) -> None:
    async with two(fabric) as (a, b):
        b.handle_stream("/echo/1", echo, FRAMES, per_peer=3)
        streams = [await a.open_stream(b.peer_id, "/echo/1", FRAMES) for _ in range(5)]
        answers = []
        for stream in streams:
            await stream.send(b"x")
            answers.append(await stream.receive())
        assert answers == [b"x"] * 3 + [None] * 2
        assert b.statistics()["streams_refused"] == 2
        for stream in streams:
            await stream.close()
        await anyio.sleep(0.1)
        again = await a.open_stream(b.peer_id, "/echo/1", FRAMES)
        await again.send(b"again")
        assert await again.receive() == b"again"


async def test_streams_opened_and_closed_by_the_thousand_leave_nothing_behind(fabric: MemoryFabric) -> None:
    async with two(fabric) as (a, b):
        b.handle_stream("/echo/1", echo, FRAMES)
        await anyio.sleep(1)
        [there] = a._peers[b.peer_id].connections
        [here] = b._peers[a.peer_id].connections
        before = len(there.session.streams), len(here.session.streams)
        for _ in range(1_000):
            stream = await a.open_stream(b.peer_id, "/echo/1", FRAMES)
            await stream.close()
        await anyio.sleep(60)
        assert (len(there.session.streams), len(here.session.streams)) == before
        assert (len(there._channels), len(there._closing), len(here._closing)) == (before[0], 0, 0)
        assert b._open == {}


async def test_pings_come_back(fabric: MemoryFabric) -> None:
    async with two(fabric) as (a, b):
        channel = await a.open_channel(b.peer_id, [PING])
        for _ in range(3):
            data = os.urandom(32)
            await channel.send(data)
            assert await channel.receive() == data


# connecting


async def test_identify_and_its_push_tell_what_is_spoken(fabric: MemoryFabric) -> None:
    async with two(fabric) as (a, b):
        await anyio.sleep(1)
        [info] = a.peers()
        assert (info.peer, info.direction, info.agent.partition("/")[0]) == (b.peer_id, "out", "syncline")
        assert "/echo/1" not in info.protocols
        [there] = b._peers[a.peer_id].connections
        before = set(there._channels)
        b.handle_stream("/echo/1", echo, FRAMES)
        await anyio.sleep(1)
        assert "/echo/1" in a.peers()[0].protocols
        assert set(there._channels) == before
        assert [peer.direction for peer in b.peers()] == ["in"]


@pytest.mark.parametrize(
    "address",
    ["nonsense", "/memory/nobody", f"/memory/x/p2p/{KEYS[0].peer_id}"],
)
async def test_an_address_that_cannot_be_dialled_is_the_callers_fault(fabric: MemoryFabric, address: str) -> None:
    async with fabric.host(KEYS[0]) as a:
        with pytest.raises(UsageError):
            await a.connect(address)


async def test_nobody_and_somebody_else_at_an_address_are_unreachable(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b:
        with pytest.raises(UnreachableError):
            await a.connect(f"/memory/nobody/p2p/{KEYS[2].peer_id}")
        with pytest.raises(UnreachableError):
            await a.connect(f"/memory/{b.peer_id}/p2p/{KEYS[2].peer_id}")
        assert (a.peers(), b.peers()) == ([], [])
        assert a.statistics()["connections"] == 0


async def test_dialling_twice_or_from_both_sides_leaves_one_peer(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b:
        events: list[PeerEvent] = []
        a.watch(events.append)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(a.connect, b.addresses[0])
                tasks.start_soon(b.connect, a.addresses[0])
        await anyio.sleep(1)
        assert (len(a.peers()), len(b.peers())) == (1, 1)
        assert a.statistics()["connections"] <= 2
        assert events == [PeerEvent(b.peer_id, True)]
        await a.disconnect(b.peer_id)
        assert events[1:] == [PeerEvent(b.peer_id, False, Cut.CLOSED)]
        await anyio.sleep(1)
        assert b.peers() == []


async def test_a_stream_is_opened_on_the_connection_that_lives(fabric: MemoryFabric) -> None:
    """Both dialled at once; the peer says goodbye on the newer connection."""
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b:
        b.handle_stream("/echo/1", echo, FRAMES)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(a.connect, b.addresses[0])
            tasks.start_soon(b.connect, a.addresses[0])
        await anyio.sleep(1)
        older, newer = a._peers[b.peer_id].connections
        newer.session.closing = True
        stream = await a.open_stream(b.peer_id, "/echo/1", FRAMES)
        await stream.send(b"x")
        assert await stream.receive() == b"x"
        older.session.closing = True
        with pytest.raises(UnreachableError, match="not connected"):
            await a.open_stream(b.peer_id, "/echo/1", FRAMES)


async def test_bootstrap_peers_are_dialled_again_with_growing_pauses(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[1]) as b:
        settings = HostSettings(bootstrap=(b.addresses[0],))
        async with fabric.host(KEYS[0], settings) as a:
            await anyio.sleep(1)
            assert [peer.peer for peer in a.peers()] == [b.peer_id]
            fabric.sever(a.peer_id, b.peer_id)
            await anyio.sleep(300)
            assert a.peers() == []
            fabric.mend(a.peer_id, b.peer_id)
            await anyio.sleep(61)
            assert [peer.peer for peer in a.peers()] == [b.peer_id]


async def test_a_bootstrap_peer_that_is_not_there_yet_is_found_later(fabric: MemoryFabric) -> None:
    address = f"/memory/{KEYS[1].peer_id}/p2p/{KEYS[1].peer_id}"
    async with fabric.host(KEYS[0], HostSettings(bootstrap=(address,))) as a:
        await anyio.sleep(100)
        async with fabric.host(KEYS[1]):
            await anyio.sleep(61)
            assert [peer.peer for peer in a.peers()] == [KEYS[1].peer_id]
    with pytest.raises(ExceptionGroup):
        async with fabric.host(KEYS[0], HostSettings(bootstrap=("/memory/x",))):
            pass


async def test_hundreds_of_connections_come_and_go_without_a_trace(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b:
        for _ in range(200):
            await anyio.sleep(1)
            await a.connect(b.addresses[0])
            await a.disconnect(b.peer_id)
        await anyio.sleep(60)
        assert (a.peers(), b.peers(), a.statistics()["connections"], b.statistics()["connections"]) == ([], [], 0, 0)
        assert len(a._guard._addresses) == len(b._guard._addresses) == 0
        assert (a.gossip._neighbours, b.flood._neighbours) == ({}, {})


async def test_connections_from_one_address_are_limited(fabric: MemoryFabric) -> None:
    settings = HostSettings(limits=Limits(per_address=3))
    async with fabric.host(KEYS[0], settings) as victim:
        streams: list[PipeStream] = []
        for _ in range(10):
            streams.append(fabric.connect("one address", victim.peer_id))
            await anyio.sleep(0.01)
        assert victim.statistics()["handshakes"] == 3
        assert victim.statistics()["refused_crowded"] == 7
        await anyio.sleep(11)  # and those that never shake hands are gone after ten seconds
        assert victim.statistics()["handshakes"] == 0
        assert victim.statistics()["handshakes_failed"] == 3


async def test_a_third_connection_of_one_peer_is_turned_away(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as victim:
        async with bare(fabric, victim, KEYS[1]), bare(fabric, victim, KEYS[1]), bare(fabric, victim, KEYS[1]) as third:
            assert await third.receive() == b""
            assert victim.statistics()["connections"] == 2
            assert victim.statistics()["refused_crowded"] == 1


# bad peers


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b"\x13/multistream/1.0.0\n\x03/x\n" * 100])
async def test_a_stranger_that_speaks_something_else_is_dropped(fabric: MemoryFabric, data: bytes) -> None:
    async with fabric.host(KEYS[0]) as victim:
        raw = fabric.connect("stranger", victim.peer_id)
        await raw.send(data)
        await anyio.sleep(11)
        assert victim.statistics()["handshakes_failed"] == 1
        assert victim.statistics()["handshakes"] == 0


async def test_garbage_inside_the_secure_channel_is_cut_as_malformed(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as victim:
        events: list[PeerEvent] = []
        victim.watch(events.append)
        async with bare(fabric, victim, KEYS[1]) as stream:
            await stream.send(b"this is not yamux at all")
            await anyio.sleep(0.1)
            assert events[-1] == PeerEvent(KEYS[1].peer_id, False, Cut.MALFORMED)


async def test_a_changed_message_of_the_secure_channel_ends_the_connection(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as victim:
        raw = fabric.connect(KEYS[1].peer_id, victim.peer_id)
        await secured(raw, KEYS[1], initiator=True, timeout=5.0)
        await raw.send(b"\x00\x20" + bytes(32))
        await anyio.sleep(0.1)
        assert victim.statistics()["cut_malformed"] == 1


async def test_a_peer_that_reads_nothing_is_cut_as_a_slow_reader(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as victim, bare(fabric, victim, KEYS[1]) as stream:
        session = yamux.Session(initiator=True)
        with anyio.move_on_after(60), suppress(SynclineError):
            while True:  # each ping asks for an answer that is never read
                for value in range(1_000):
                    session.ping(value)
                await stream.send(session.take(10**6))
        await anyio.sleep(0.1)
        assert victim.statistics()["cut_slow_reader"] == 1
        assert victim.peers() == []


async def test_a_mute_peer_is_given_up_after_a_minute(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as victim, bare(fabric, victim, KEYS[1]):
        await anyio.sleep(45)
        assert len(victim.peers()) == 1
        await anyio.sleep(20)
        assert victim.peers() == []
        assert victim.statistics()["cut_disconnected"] == 1


async def test_quiet_hosts_stay_connected(fabric: MemoryFabric) -> None:
    async with two(fabric) as (a, b):
        await anyio.sleep(3_600)
        assert len(a.peers()) == len(b.peers()) == 1


async def test_a_peer_that_opens_too_many_streams_keeps_its_first_ones(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as victim, bare(fabric, victim, KEYS[1]) as stream:
        session = yamux.Session(initiator=True)
        for _ in range(500):
            session.open()
        await stream.send(session.take(10**6))
        await anyio.sleep(0.1)
        [connection] = victim._peers[KEYS[1].peer_id].connections
        assert (connection.session.inbound, connection.session.refused) == (64, 436)
        await anyio.sleep(11)  # none of them says what it wants
        assert connection.session.inbound <= 64
        assert victim.statistics()["streams_failed"] == 64


async def test_a_lying_identity_is_only_a_hint(fabric: MemoryFabric) -> None:
    """A peer may claim anything in identify; its PeerID stays the one it has proven."""
    said = identify.Identity(public_key=b"not mine", agent="trust me", protocols=("/meshsub/1.2.0",))

    async def lie(channel: Channel) -> None:
        with suppress(SynclineError):
            await channel.connection.accept(channel, [identify.PROTOCOL])
            await channel.send(Framing("varint", 8_192).wrap(identify.encode(said)))

    async with fabric.host(KEYS[0]) as victim, bare(fabric, victim, KEYS[1]) as stream:
        address = victim._listening[0]
        connection = Connection(stream, initiator=True, address=address, on_stream=lie, on_over=lambda _: None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            await anyio.sleep(1)
            [info] = victim.peers()
            assert (info.peer, info.agent) == (KEYS[1].peer_id, "trust me")
            connection.cut(Cut.CLOSED)


# TCP, in real time


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_host_that_runs_out_of_files_takes_connections_again_when_it_has_some(backend: str) -> None:
    async def main() -> None:
        async with running_host(KEYS[0]) as a, running_host(KEYS[1]) as b:
            port = int(b.addresses[0].split("/")[4])
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            with socket.socket() as stranger:
                resource.setrlimit(resource.RLIMIT_NOFILE, (_open_files(), hard))
                try:
                    stranger.connect(("127.0.0.1", port))
                    await anyio.sleep(0.3)
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert await a.connect(b.addresses[0]) == b.peer_id

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_host_that_is_asked_something_while_it_says_goodbye_still_stops_in_peace(backend: str) -> None:
    async def main() -> None:
        async with running_host(KEYS[0]) as a, anyio.create_task_group() as tasks:
            async with running_host(KEYS[1]) as b:
                await a.connect(b.addresses[0])
                channel = await a.open_channel(b.peer_id, [PING])

                async def go_on() -> None:
                    with suppress(UnreachableError):
                        while True:
                            await channel.send(bytes(32))
                            await channel.receive()

                tasks.start_soon(go_on)
                await anyio.sleep(0.1)
            assert a.peers() == []

    anyio.run(main, backend=backend)


def _open_files() -> int:
    """The lowest limit of open files under which those that are open stay usable and no other can be opened."""
    with Path(os.devnull).open() as probe:
        return probe.fileno()


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_hosts_meet_over_tcp_on_either_event_loop(backend: str) -> None:
    async def main() -> None:
        async with running_host(KEYS[0]) as a, running_host(KEYS[1]) as b:
            await a.connect(b.addresses[0])
            b.handle_stream("/echo/1", echo, FRAMES)
            stream = await a.open_stream(b.peer_id, "/echo/1", FRAMES)
            await stream.send(bytes(1_000_000))
            assert await stream.receive() == bytes(1_000_000)
            async with b.gossip.subscribe("/t") as subscription:
                with anyio.fail_after(10):
                    await a.gossip.wait_for_neighbours("/t")
                    await a.gossip.publish("/t", b"over tcp")
                    [delivery] = await subscription.receive()
            assert (delivery.message.data, delivery.message.author) == (b"over tcp", a.peer_id)
            assert b.peers()[0].address.startswith("/ip4/127.0.0.1/tcp/")
            taken = HostSettings(listen=tuple(address.rpartition("/p2p/")[0] for address in b.addresses))
            with pytest.raises(ExceptionGroup) as refused:
                async with running_host(KEYS[2], taken):
                    pass
            assert refused.group_contains(UsageError, match="cannot listen")

    anyio.run(main, backend=backend)
