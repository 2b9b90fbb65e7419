"""The forwarder on real sockets: every kind of face, reconnecting, linked hubs, and connections that misbehave."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from syncline.core.clock import SystemClock
from syncline.core.errors import RefusedError, UnavailableError, UnreachableError, UsageError
from syncline.core.keys import NodeKey
from syncline.core.limits import NDN_FACE_MALFORMED
from syncline.formats.ndn import names
from syncline.formats.ndn.packets import encode_data, encode_interest
from syncline.formats.ndn.signing import Digest, Ed25519Signer, Ed25519Verifier
from syncline.networks.ndn import client as clients
from syncline.networks.ndn import doors
from syncline.networks.ndn import hub as hubs
from syncline.networks.ndn.client import Client, attached
from syncline.networks.ndn.doors import DoorOptions
from syncline.networks.ndn.endpoint import Endpoint, Request
from syncline.networks.ndn.forwarder import Limits
from syncline.networks.ndn.hub import Hub, HubOptions, running
from syncline.networks.ndn.routes import Route
from syncline.networks.ndn.transports import CLIENT_VARIABLE, Transport, connect
from syncline.networks.ndn.websocket import WebSocketTransport

pytestmark = pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
DOORS = DoorOptions(tcp_port=0, udp_port=0, websocket_port=0, websocket_origins=("http://good.example",))


@asynccontextmanager
async def hub(tmp_path: Path | None = None, **options: object) -> AsyncIterator[Hub]:
    doors = DOORS
    if tmp_path is not None:
        doors = DoorOptions(tcp_port=0, udp_port=0, websocket_port=0, unix_path=str(tmp_path / "ndn.sock"))
    async with running(HubOptions(doors=doors, **options), SystemClock()) as found:  # type: ignore[arg-type]
        yield found


async def serve(client: Client, prefix: str, content: bytes) -> None:
    """Answer every Interest below a prefix."""

    def answer(request: Request) -> None:
        client.endpoint.reply(request, encode_data(request.interest.name, content, Digest()))

    client.endpoint.serve(names.parse(prefix), answer)
    await client.register(names.parse(prefix))


async def ask(client: Client, name: str, lifetime: int = 4_000) -> bytes:
    return (await client.ask(names.parse(name), lifetime=lifetime)).content


@pytest.mark.parametrize("kind", ["tcp", "udp", "ws", "unix"])
async def test_applications_meet_over_every_kind_of_face(tmp_path: Path, kind: str) -> None:
    content = os.urandom(8_000)  # more than a datagram takes
    async with (
        hub(tmp_path) as found,
        attached(found.addresses[kind]) as producer,
        attached(found.addresses["tcp"]) as consumer,
    ):
        await serve(producer, "/a", content)
        assert await ask(consumer, "/a/b") == content
        await serve(consumer, "/c", b"the other way")
        assert await ask(producer, "/c/d") == b"the other way"
        assert {face.uri.split(":")[0] for face in found.forwarder.faces.values()} == {kind, "tcp"}


async def test_an_application_inside_meets_one_outside() -> None:
    async with hub() as found, attached(found.addresses["tcp"]) as outside:
        inside = found.attach()
        got: list[tuple[bytes, str]] = []
        done = anyio.Event()
        await serve(outside, "/out", b"from outside")
        await inside.register(names.parse("/in"))
        inside.endpoint.serve(
            names.parse("/in"),
            lambda request: inside.endpoint.reply(request, encode_data(request.interest.name, b"in", Digest())),
        )

        def answered(data: object, face: int) -> None:
            got.append((data.content, inside.peer(face)))  # type: ignore[attr-defined]
            done.set()

        assert await ask(outside, "/in/1") == b"in"
        inside.endpoint.ask(names.parse("/out/1"), answered, anyio.current_time())
        with anyio.fail_after(5):
            await done.wait()
        [(content, peer)] = got
        assert content == b"from outside"
        assert peer.startswith("tcp://127.0.0.1:")


async def test_a_question_without_an_answer_ends() -> None:
    async with hub() as found, attached(found.addresses["tcp"]) as client:
        with pytest.raises(UnavailableError, match=r"the network said no \(150\)"):
            await ask(client, "/nowhere")
        client.endpoint.serve(names.parse("/mute"), lambda request: None)
        await client.register(names.parse("/mute"))
        async with attached(found.addresses["tcp"]) as other:
            with pytest.raises(UnavailableError, match="nobody answered in time"):
                await ask(other, "/mute/1", lifetime=100)


async def test_a_client_comes_back_after_its_connection_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Transport] = []

    async def remember(address: str | None = None) -> Transport:
        opened.append(await connect(address))
        return opened[-1]

    monkeypatch.setattr(clients, "connect", remember)
    async with (
        hub() as found,
        attached(found.addresses["tcp"]) as producer,
        attached(found.addresses["tcp"]) as consumer,
    ):
        await serve(producer, "/a", b"still here")
        await opened[0].aclose()
        with anyio.fail_after(10):
            while True:
                try:
                    assert await ask(consumer, "/a/b", lifetime=200) == b"still here"
                    break
                except UnavailableError:
                    await anyio.sleep(0.05)
        assert len(opened) == 3


async def test_what_is_asked_while_the_forwarder_is_away_ends_and_nothing_piles_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Transport] = []

    async def only_once(address: str | None = None) -> Transport:
        if opened:
            raise UnreachableError("the forwarder is away", about=str(address))
        opened.append(await connect(address))
        return opened[0]

    monkeypatch.setattr(clients, "connect", only_once)
    async with hub() as found, attached(found.addresses["tcp"]) as client:
        await opened[0].aclose()
        with anyio.fail_after(10):
            for _ in range(3):
                client.endpoint.send(bytes(1_000))
                with pytest.raises(UnavailableError, match="nobody answered in time"):
                    await ask(client, "/a", lifetime=60_000)
        assert (len(client.endpoint), client.endpoint.outgoing) == (0, [])


async def test_a_prefix_is_registered_again_until_the_forwarder_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Transport] = []

    async def remember(address: str | None = None) -> Transport:
        opened.append(await connect(address))
        return opened[-1]

    monkeypatch.setattr(clients, "connect", remember)
    monkeypatch.setattr(clients, "REGISTER_SECONDS", 0.1)
    async with hub() as found, attached(found.addresses["tcp"]) as producer:
        await serve(producer, "/a", b"still here")
        answer, refused = found.forwarder.commander, 0

        def refuse_twice(*command: Any) -> bytes | None:
            nonlocal refused
            refused += 1
            assert answer is not None
            return None if refused <= 2 else answer(*command)

        found.forwarder.commander = refuse_twice
        await opened[0].aclose()
        with anyio.fail_after(10):
            while refused < 3:
                await anyio.sleep(0.02)
            while not found.forwarder.routes.of(names.parse("/a")):
                await anyio.sleep(0.02)
        await anyio.sleep(0.3)
        assert refused == 3  # and then no more


async def test_packets_a_connection_has_no_room_for_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.networks.ndn.endpoint.NDN_ENDPOINT_BYTES", 1_000)
    endpoint = Endpoint(Random(1))
    for _ in range(20):
        endpoint.send(bytes(100))
    assert (len(endpoint.take()), endpoint.dropped) == (10, 10)
    endpoint.send(bytes(100))
    assert len(endpoint.take()) == 1


async def test_two_hubs_are_one_network() -> None:
    async with hub() as center, attached(center.addresses["tcp"]) as far:
        async with (
            hub(uplinks=(center.addresses["tcp"],)) as branch,
            attached(branch.addresses["tcp"]) as near,
        ):
            await serve(far, "/far", b"far")
            await serve(near, "/near", b"near")
            with anyio.fail_after(5):
                while not branch.uplinks or center.forwarder.routes.of(names.parse("/near")) == []:
                    await anyio.sleep(0.01)
            assert await ask(near, "/far/1") == b"far"
            assert await ask(far, "/near/1") == b"near"
            heard: list[str] = []
            for client, name in ((far, "far"), (near, "near")):
                client.endpoint.serve(names.parse("/group"), lambda request, name=name: heard.append(name))  # type: ignore[misc]
                await client.register(names.parse("/group"))
            with anyio.fail_after(5):
                while len(center.forwarder.routes.of(names.parse("/group"))) < 2:
                    await anyio.sleep(0.01)
            for client, nonce in ((far, b"0001"), (near, b"0002")):
                client.endpoint.send(
                    encode_interest(
                        names.parse("/group/v=2"), nonce=nonce, lifetime=1_000, parameters=nonce, signer=Digest()
                    )
                )
            with anyio.fail_after(5):
                while len(heard) < 2:
                    await anyio.sleep(0.01)
            assert sorted(heard) == ["far", "near"]
        with anyio.fail_after(5):
            while center.forwarder.routes.of(names.parse("/near")):
                await anyio.sleep(0.01)


async def test_a_route_that_expires_is_withdrawn_from_other_forwarders_too() -> None:
    async with hub() as center, hub(uplinks=(center.addresses["tcp"],)) as branch:
        inside, prefix = branch.attach(), names.parse("/brief")
        with anyio.fail_after(5):
            while not branch.uplinks:
                await anyio.sleep(0.01)
            branch.forwarder.routes.add(prefix, Route(inside._face.id, expires=anyio.current_time() + 0.5))
            branch.uplinks.routes_changed(prefix)
            while not center.forwarder.routes.of(prefix):
                await anyio.sleep(0.01)
            while center.forwarder.routes.of(prefix):
                await anyio.sleep(0.01)
        assert branch.forwarder.routes.of(prefix) == []


async def test_a_stream_that_cannot_be_read_ends_alone() -> None:
    async with (
        hub() as found,
        attached(found.addresses["tcp"]) as honest,
        attached(found.addresses["tcp"]) as other,
    ):
        await serve(honest, "/a", b"fine")
        host, port = found.addresses["tcp"].removeprefix("tcp://").split(":")
        stream = await anyio.connect_tcp(host, int(port))
        await stream.send(b"\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff")  # a giant length
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            with anyio.fail_after(5):
                await stream.receive()
        await stream.aclose()
        second = await anyio.connect_tcp(host, int(port))
        await second.send(b"\x06\x00" * NDN_FACE_MALFORMED)
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            with anyio.fail_after(5):
                await second.receive()
        await second.aclose()
        assert await ask(other, "/a/b") == b"fine"


def hang_up_at_once(address: str) -> None:
    """Connect and reset the connection, before the other side has had a chance to look at it."""
    host, port = address.split("//")[1].split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("kind", ["tcp", "ws"])
async def test_a_peer_that_hangs_up_at_the_door_ends_alone(kind: str) -> None:
    async with hub() as found:
        for _ in range(3):
            hang_up_at_once(found.addresses[kind])
        await anyio.sleep(0.05)
        async with attached(found.addresses["tcp"]) as client:
            await serve(client, "/a", b"still here")
            assert len(found.forwarder.routes.of(names.parse("/a"))) == 1


async def test_packets_for_a_websocket_that_says_farewell_end_that_one_alone() -> None:
    async with hub() as found:
        leaving = await connect(found.addresses["ws"])
        assert isinstance(leaving, WebSocketTransport)
        with anyio.fail_after(5):
            while not found.forwarder.faces:
                await anyio.sleep(0.01)
            [face] = found.forwarder.faces.values()
            leaving._core.send_close(1000)
            await leaving._flush()
            while found.forwarder.faces:
                face.send(b"\x05\x00")
                await anyio.sleep(0)
            with pytest.raises(anyio.EndOfStream):  # the server answers the farewell and hangs up
                await leaving.receive()
        await leaving.aclose()
        async with attached(found.addresses["tcp"]) as client:
            await serve(client, "/a", b"still here")
            assert len(found.forwarder.faces) == 1


async def test_an_uplink_that_hangs_up_during_its_handshake_is_tried_again() -> None:
    tried = 0

    async def turn_away(stream: SocketStream) -> None:
        nonlocal tried
        async with stream:
            await stream.receive()
            tried += 1

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, turn_away)
        async with hub(uplinks=(f"ws://127.0.0.1:{port}",)) as found:
            with anyio.fail_after(10):
                while tried < 2:
                    await anyio.sleep(0.02)
            assert len(found.uplinks) == 0
        tasks.cancel_scope.cancel()


async def test_udp_peers_that_have_gone_are_forgotten_even_while_packets_go_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doors, "NDN_UDP_IDLE_SECONDS", 0.2)
    async with hub() as found:
        silent = [await connect(found.addresses["udp"]) for _ in range(3)]
        for each in silent:
            await each.send([b"\x64\x00"])
        with anyio.fail_after(5):
            while len(faces := list(found.forwarder.faces.values())) < 3:
                await anyio.sleep(0.01)
            while found.forwarder.faces:  # the door sends all the while
                for face in faces:
                    face.send(b"\x64\x00")
                await anyio.sleep(0.001)
        newcomer = await connect(found.addresses["udp"])
        await newcomer.send([b"\x64\x00"])
        with anyio.fail_after(5):
            while not found.forwarder.faces:
                await anyio.sleep(0.01)
        for each in [*silent, newcomer]:
            await each.aclose()


async def test_datagrams_take_at_most_half_of_the_faces() -> None:
    async with hub(limits=Limits(faces=4)) as found:
        peers = [await connect(found.addresses["udp"]) for _ in range(5)]
        for peer in peers:
            await peer.send([b"\x64\x00"])
        async with attached(found.addresses["tcp"]) as one, attached(found.addresses["tcp"]) as two:
            await serve(one, "/a", b"a")
            assert await ask(two, "/a/1") == b"a"
            kinds = sorted(face.uri.split(":")[0] for face in found.forwarder.faces.values())
            assert kinds == ["tcp", "tcp", "udp", "udp"]
        for peer in peers:
            await peer.aclose()


async def test_a_peer_that_neither_speaks_nor_reads_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "LINGER_SECONDS", 0.05)
    async with hub() as found, await anyio.connect_tcp("127.0.0.1", int(found.addresses["tcp"].split(":")[-1])) as raw:
        with anyio.fail_after(5):
            while not found.forwarder.faces:
                await anyio.sleep(0.01)
            [face] = found.forwarder.faces.values()
            while face.send(b"\x64\xfd\x20\x00" + bytes(8192)):  # until our side of the connection is full
                await anyio.sleep(0)
            await raw.send_eof()
            while found.forwarder.faces:
                await anyio.sleep(0.01)
        assert face.closed


async def test_a_web_page_may_connect_only_if_its_origin_is_allowed() -> None:
    async with hub() as found:
        port = found.addresses["ws"].rsplit(":", 1)[1]

        async def status(host: str, origin: str | None) -> bytes:
            stream = await anyio.connect_tcp("127.0.0.1", int(port))
            lines = [
                "GET / HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
            ]  # fmt: skip
            if origin is not None:
                lines.append(f"Origin: {origin}")
            await stream.send(("\r\n".join(lines) + "\r\n\r\n").encode())
            with anyio.fail_after(5):
                answer = await stream.receive()
            await stream.aclose()
            return answer.split(b" ")[1]

        assert await status(f"127.0.0.1:{port}", None) == b"101"
        assert await status(f"localhost:{port}", "http://good.example") == b"101"
        assert await status(f"127.0.0.1:{port}", "http://evil.example") == b"403"
        assert await status(f"rebound.example:{port}", None) == b"403"


async def test_the_client_variable_names_the_forwarder(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hub() as found:
        monkeypatch.setenv(CLIENT_VARIABLE, found.addresses["tcp"])
        async with attached() as client:
            await serve(client, "/a", b"x")
            assert len(found.forwarder.faces) == 1


async def test_an_address_nobody_answers_at_is_said_to_be_unreachable() -> None:
    with pytest.raises(UnreachableError):
        await connect("tcp://127.0.0.1:1")
    with pytest.raises(UnreachableError):
        await connect("unix:///nowhere/ndn.sock")
    with pytest.raises(UsageError):
        await connect("carrier-pigeon://127.0.0.1")


async def test_registering_may_need_a_key() -> None:
    key = NodeKey(bytes(range(32)))
    options = HubOptions(doors=DOORS, need_key=True)
    async with running(options, SystemClock(), command_keys=[Ed25519Verifier(key.public)]) as found:
        async with attached(found.addresses["tcp"]) as stranger:
            with pytest.raises(RefusedError, match="403"):
                await stranger.register(names.parse("/a"))
        async with attached(found.addresses["tcp"], signer=Ed25519Signer(key)) as known:
            await known.register(names.parse("/a"))
            assert len(found.forwarder.routes) == 1


async def test_an_uplink_shows_its_key_where_one_is_asked_for() -> None:
    key = NodeKey(bytes(range(32)))
    asking = HubOptions(doors=DOORS, need_key=True)
    async with running(asking, SystemClock(), command_keys=[Ed25519Verifier(key.public)]) as center:
        options = HubOptions(doors=DOORS, uplinks=(center.addresses["tcp"],))
        async with running(options, SystemClock(), command_signer=Ed25519Signer(key)) as branch:
            async with attached(branch.addresses["tcp"]) as near:
                await serve(near, "/near", b"near")
                with anyio.fail_after(5):
                    while center.forwarder.routes.of(names.parse("/near")) == []:
                        await anyio.sleep(0.01)


async def test_a_socket_file_left_behind_is_replaced_but_a_living_one_is_not(tmp_path: Path) -> None:
    async with hub(tmp_path):
        with pytest.raises(UnavailableError, match="another forwarder listens"):
            async with hub(tmp_path):
                pass
    assert not (tmp_path / "ndn.sock").exists()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "ndn.sock"))
    dead.close()
    async with hub(tmp_path) as found, attached(found.addresses["unix"]) as client:
        await serve(client, "/a", b"x")
