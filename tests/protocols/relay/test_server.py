"""The listening relay: who gets in, how it says no, and how it keeps, ends and drains connections."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from syncline.core.errors import ClosedError, RefusedError, SettingsError, UnavailableError
from syncline.core.keys import NodeKey
from syncline.networks.websocket import Message, Socket, WebSocket, connect
from syncline.protocols.relay.client import RelayClient
from syncline.protocols.relay.service.doors import audiences_of, check_settings
from syncline.protocols.relay.service.server import Conversation
from syncline.protocols.relay.settings import RelaySettings, peer_of
from syncline.protocols.relay.wire import rpc, tokens
from syncline.testing.clock import FakeClock
from tests.relays import MakeRelay, RunningRelay, topic_of

NEWS = topic_of("news")
KEY = NodeKey(bytes(range(32)))


def token_for(server: RunningRelay, **changes: Any) -> str:
    now = server.node.clock.now() // 1_000_000
    fields = {"audience": server.url, "subject": "nonce", "issued_at": now, "seconds": 3_600, **changes}
    return tokens.write(KEY, **fields)


@asynccontextmanager
async def entered(server: RunningRelay, **headers: str) -> AsyncIterator[WebSocket]:
    async with connect(f"{server.url}/?auth={token_for(server)}", headers=headers) as socket:
        yield socket


async def ask(socket: WebSocket, method: str, params: Any) -> Any:
    await socket.send(rpc.request(1, method, params).decode())
    with anyio.fail_after(5):
        return json.loads(await socket.receive())


async def farewell(socket: WebSocket) -> str:
    """What the server says when it ends the connection."""
    with anyio.fail_after(5):
        try:
            while True:
                await socket.receive()
        except ClosedError as error:
            return error.message


# -- who gets in ---------------------------------------------------------------------------------------------------


async def test_a_good_token_opens_the_door(relay: MakeRelay) -> None:
    async with relay() as server, entered(server) as socket:
        answer = await ask(socket, "irn_subscribe", {"topic": NEWS})
    assert len(answer["result"]) == 64


async def test_a_token_may_come_in_a_header(relay: MakeRelay) -> None:
    async with relay() as server:
        headers = {"Authorization": f"Bearer {token_for(server)}"}
        async with connect(server.url, headers=headers) as socket:
            assert "result" in await ask(socket, "irn_subscribe", {"topic": NEWS})


async def test_every_bad_token_gets_code_3000_and_its_reason(relay: MakeRelay) -> None:
    async with relay() as server:
        now = server.node.clock.now() // 1_000_000
        good = token_for(server)
        head, claims, _ = good.split(".")
        bad = {
            "unauthorised: a token is needed": "",
            "malformed: a token has three parts": "?auth=nonsense",
            "invalid_signature: only EdDSA": f"?auth=eyJhbGciOiJub25lIn0.{claims}.",
            "invalid_signature: the token is not signed": f"?auth={head}.{claims}.{'A' * 86}",
            "expired: the token has expired": f"?auth={token_for(server, issued_at=now - 9_000)}",
            "future_timestamp: the token is not valid yet": f"?auth={token_for(server, issued_at=now + 9_000)}",
            "unauthorised: the token is for another relay": f"?auth={token_for(server, audience='wss://x.example')}",
            "invalid_field: a token may live": f"?auth={token_for(server, seconds=10**7)}",
            "unauthorised: a token is needed: ?auth": f"?auth={good}&auth={good}",
        }
        for reason, query in bad.items():
            async with connect(f"{server.url}/{query}") as socket:
                said = await farewell(socket)
            assert said.startswith(f"the WebSocket was closed (3000: {reason}"), (reason, said)
        assert server.service.statistics()["turned_away"] == len(bad)
        assert server.service.hub.connections == 0


async def test_pages_of_strangers_may_not_connect_unless_listed(relay: MakeRelay) -> None:
    async with relay("a") as server:
        with pytest.raises(RefusedError):
            async with entered(server, Origin="https://evil.example"):
                pass
        async with entered(server, Origin=f"http://127.0.0.1:{server.service.address[1]}"):
            pass
    async with relay("b", **{"relay.origins": ["https://app.example"]}) as server:
        async with entered(server, Origin="https://app.example"):
            pass
        with pytest.raises(RefusedError):
            async with entered(server, Origin="https://app.example.evil.example"):
                pass
    async with relay("c", **{"relay.origins": ["*"]}) as server, entered(server, Origin="https://any.example"):
        pass


async def test_there_is_room_for_so_many_connections(relay: MakeRelay) -> None:
    async with relay("a", **{"relay.connections": 1}) as server, entered(server) as socket:
        with pytest.raises(UnavailableError, match="503"):
            async with entered(server):
                pass
        assert "result" in await ask(socket, "irn_subscribe", {"topic": NEWS})
    async with relay("b", **{"relay.connections_per_address": 1}) as server, entered(server):
        with pytest.raises(UnavailableError, match="429"):
            async with entered(server):
                pass
    async with relay("c", **{"relay.connections_per_client": 1}) as server, entered(server) as first:
        await ask(first, "irn_subscribe", {"topic": NEWS})
        async with connect(f"{server.url}/?auth={token_for(server)}") as socket:
            assert "3000: quota_exceeded: a client may have 1 connections" in await farewell(socket)


async def test_behind_a_proxy_addresses_are_counted_by_its_header(relay: MakeRelay) -> None:
    flags = {"relay.connections_per_address": 1, "relay.forwarded": True}
    async with relay(**flags) as server:
        async with entered(server, **{"X-Forwarded-For": "9.9.9.9, 1.2.3.4"}):
            with pytest.raises(UnavailableError, match="429"):
                async with entered(server, **{"X-Forwarded-For": "8.8.8.8, 1.2.3.4"}):
                    pass
            async with entered(server, **{"X-Forwarded-For": "1.2.3.4, 5.6.7.8"}):
                pass


async def test_plain_http_gets_plain_answers(relay: MakeRelay) -> None:
    async with relay() as server, httpx.AsyncClient(base_url=server.url.replace("ws", "http")) as client:
        assert (await client.get("/health")).text == "ok\n"
        assert (await client.get("/")).status_code == 426
        assert (await client.get("/elsewhere")).status_code == 404
        assert (await client.post("/")).status_code >= 400


# -- what it speaks ------------------------------------------------------------------------------------------------


async def test_a_request_too_large_to_be_read_ends_the_connection_with_the_limit(relay: MakeRelay) -> None:
    async with relay() as server, entered(server) as socket:
        await socket.send("x" * (2 * 1024 * 1024 + 1))
        assert "1009" in await farewell(socket)


async def test_binary_from_a_client_ends_the_connection(relay: MakeRelay) -> None:
    async with relay() as server, entered(server) as socket:
        await socket.send(b"binary")
        assert "(1003: requests are text)" in await farewell(socket)


async def test_requests_sent_in_one_go_are_answered_in_order(relay: MakeRelay) -> None:
    async with relay() as server, entered(server) as socket:
        for number in range(50):
            params = {"topic": NEWS, "message": str(number), "ttl": 60}
            socket.put(rpc.request(number, "irn_publish", params), is_text=True)
        await socket.flush()
        with anyio.fail_after(5):
            answers = [json.loads(await socket.receive()) for _ in range(50)]
    assert [(each["id"], each["result"]) for each in answers] == [(number, True) for number in range(50)]


async def test_a_flood_is_answered_and_then_cut_off(relay: MakeRelay) -> None:
    flags = {"relay.requests_per_second": 1.0, "relay.request_burst": 1}
    async with relay(**flags) as server, entered(server) as socket:
        for number in range(1_100):
            socket.put(rpc.request(number, "irn_subscribe", {"topic": NEWS}), is_text=True)
        await socket.flush()
        answers = []
        with anyio.fail_after(5):
            try:
                while True:
                    answers.append(json.loads(await socket.receive()))
            except ClosedError as error:
                said = str(error)
    assert "(3001: more than 1000 refused requests)" in said
    refused = [each for each in answers if each.get("error", {}).get("code") == 3001]
    assert len(refused) == 1_001


async def test_clients_are_pinged_before_they_lose_patience_and_dropped_when_silent(
    relay: MakeRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    pings: list[float] = []
    from syncline.networks import websocket

    real = websocket.Socket.ping

    def ping(socket: websocket.Socket) -> None:
        pings.append(clock.monotonic())
        real(socket)

    monkeypatch.setattr(websocket.Socket, "ping", ping)
    async with relay(clock=clock) as server, entered(server) as socket:
        await ask(socket, "irn_subscribe", {"topic": NEWS})
        for _ in range(3):
            clock.advance(20)
            server.service._server.tick()
        assert pings == [20.0, 40.0, 60.0]
        clock.advance(61)
        server.service._server.tick()
        server.service._driver.pump()
        assert "(1001: silent for 60 s)" in await farewell(socket)


class Deaf(Socket):
    """A socket whose other side neither says nor reads anything."""

    def __init__(self) -> None:
        self.closed: tuple[int, str] | None = None
        self.messages: list[Message] = []

    async def read(self) -> list[Message]:
        await anyio.sleep_forever()
        return []

    def put_all(self, messages: Iterable[Message]) -> None:
        self.messages += messages

    def ping(self) -> None:
        pass

    def flush_now(self) -> bool:
        return False

    async def flush(self) -> None:
        await anyio.sleep_forever()

    async def close(self, code: int = 1000, reason: str = "", *, linger: float = 0.0) -> None:
        self.closed = (code, reason)


async def test_a_client_that_does_not_read_is_cut_off(relay: MakeRelay) -> None:
    async with relay() as server:
        clock, deaf = FakeClock(), Deaf()
        connection = server.service.hub.connect(KEY.did)
        conversation = Conversation(deaf, connection, lambda payload, is_text: None, server.service._driver)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(conversation.run, clock)
                await anyio.wait_all_tasks_blocked()
                connection.text(b"hello")
                server.service._driver.pump()
                await anyio.wait_all_tasks_blocked()
                assert deaf.messages == [(True, b"hello")]
                for _ in range(6):
                    conversation.heard_at = clock.monotonic()  # it does answer pings
                    clock.advance(10)
                    conversation.tick(clock.monotonic())
                await anyio.wait_all_tasks_blocked()
                assert deaf.closed is None
                clock.advance(1)
                conversation.tick(clock.monotonic())
        assert deaf.closed == (1000, "")


# -- how it ends ---------------------------------------------------------------------------------------------------


async def test_a_stopping_relay_answers_what_was_asked_and_says_goodbye(relay: MakeRelay) -> None:
    async with anyio.create_task_group() as tasks:
        said: list[str] = []
        async with relay() as server:
            opened = anyio.Event()

            async def client() -> None:
                async with entered(server) as socket:
                    for number in range(200):
                        params = {"topic": NEWS, "message": str(number), "ttl": 60}
                        socket.put(rpc.request(number, "irn_publish", params), is_text=True)
                    await socket.flush()
                    opened.set()
                    answers = []
                    try:
                        while True:
                            answers.append(json.loads(await socket.receive()))
                    except ClosedError as error:
                        said.append(str(error.message))
                    kept = [each["id"] for each in answers if each.get("result") is True]
                    told = [each["id"] for each in answers if each.get("error", {}).get("code") == -32603]
                    assert sorted(kept + told) == list(range(len(kept) + len(told)))
                    assert len(kept) >= 1

            tasks.start_soon(client)
            await opened.wait()
            while server.service.hub.publishing.cached == 0:
                await anyio.sleep(0)
    assert said == ["the WebSocket was closed (1012: this server is stopping)"]


# -- settings ------------------------------------------------------------------------------------------------------


def test_listening_beyond_loopback_in_the_clear_must_be_meant() -> None:
    with pytest.raises(SettingsError, match="open to others"):
        check_settings(RelaySettings(host="0.0.0.0"))
    check_settings(RelaySettings(host="0.0.0.0", plain=True))
    check_settings(RelaySettings(host="0.0.0.0", tls_certificate="c.pem", tls_key="k.pem"))
    check_settings(RelaySettings(host="::1"))
    with pytest.raises(SettingsError, match="go together"):
        check_settings(RelaySettings(tls_certificate="c.pem"))


def test_audiences_are_the_given_addresses_and_loopback() -> None:
    local = audiences_of(RelaySettings(url="wss://relay.example.org/"), "127.0.0.1", 7072)
    assert local == {"wss://relay.example.org", "ws://127.0.0.1:7072", "ws://localhost:7072"}
    public = audiences_of(RelaySettings(url="wss://a.example", audiences=["wss://b.example"]), "0.0.0.0", 7072)
    assert public == {"wss://a.example", "wss://b.example"}


@pytest.mark.parametrize("text", ["ws://host/link", "12D3KooW@ws://host/link", f"{KEY.peer_id}@http://host/link"])
def test_a_peer_that_names_no_server_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        peer_of(text)


def test_a_peer_may_have_an_old_and_a_new_key() -> None:
    other = NodeKey(bytes(32))
    found = peer_of(f"{KEY.peer_id}|{other.peer_id}@wss://host/link")
    assert (found.keys, found.url) == ((KEY.peer_id, other.peer_id), "wss://host/link")


# -- TLS -----------------------------------------------------------------------------------------------------------


def make_certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "c.pem").write_bytes(certificate.public_bytes(pem))
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "k.pem").write_bytes(secret)
    return folder / "c.pem", folder / "k.pem"


async def test_clients_and_servers_speak_tls(relay: MakeRelay, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    flags = {"relay.tls_certificate": str(certificate), "relay.tls_key": str(key)}
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with relay("a", **flags) as server:
        assert server.url.startswith("wss://")
        with anyio.fail_after(10):
            async with RelayClient(server.url, tls=trusting) as alice, RelayClient(server.url, tls=trusting) as bob:
                async with bob.subscribe(NEWS) as messages:
                    await alice.publish(NEWS, "secret")
                    assert (await anext(aiter(messages))).message == "secret"
