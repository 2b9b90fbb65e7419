"""Peers that misbehave on purpose, one plan each, against the listening sockets of any node: ours or yours.

A plan sends until it is cut off or told to stop, and says how much it got rid of before. It uses real connections and real
handshakes; only what it says is wrong. Loopback only: these are weapons. As a program, one plan in a process of its own:

    python -m syncline.testing.badpeers "forged flood" 5 '{"libp2p": "/ip4/127.0.0.1/tcp/…/p2p/…", "topic": "…"}'
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx
import msgspec
from anyio.abc import SocketStream

from syncline.core.errors import SynclineError, UsageError
from syncline.core.keys import NodeKey
from syncline.core.limits import MIB
from syncline.formats import pubsub, tlv
from syncline.formats.framing import Framing, encode_varint
from syncline.formats.ndn import names
from syncline.formats.ndn import types as ndn
from syncline.formats.ndn.packets import encode_interest
from syncline.formats.ndn.signing import Digest
from syncline.networks.libp2p.connection import Channel
from syncline.networks.libp2p.host import Libp2pHost, running_host
from syncline.networks.websocket import connect as connect_websocket
from syncline.protocols.relay.wire.tokens import write as write_token
from syncline.protocols.sds.session.greeting import greeting
from syncline.protocols.sds.wire import PROTOCOL_ID as SDS_STREAM
from syncline.protocols.sds.wire import Query, Sync
from syncline.protocols.sds.wire import encode as encode_sds
from syncline.protocols.shrex.wire import notification as shrex
from syncline.protocols.svs.wire.naming import sync_name
from syncline.protocols.svs.wire.vector import encode_vector

MESHSUB: Final = "/meshsub/1.1.0"
FLOODSUB: Final = "/floodsub/1.0.0"
GONE: Final = (
    SynclineError,
    OSError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    TimeoutError,
)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node listens. What is empty is not attacked."""

    libp2p: str = ""  # a multiaddr with its PeerID
    topic: str = ""  # a GossipSub topic it takes part in
    relay: str = ""  # ws://…
    ndn: str = ""  # tcp://…
    group: str = ""  # an SVS-PS group it takes part in
    api: str = ""  # http://…


class Attack:
    """One running plan: what it has sent, and whether the node has cut it off."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.sent = 0
        self.refused = 0  # answers that said no
        self.cut_after: int | None = None  # what had been sent when the node hung up
        self.stopping = False

    def going(self) -> bool:
        return not self.stopping

    def cut(self) -> None:
        if self.cut_after is None:
            self.cut_after = self.sent


Plan = Callable[[Attack], Awaitable[None]]


class BadPeer(msgspec.Struct, frozen=True):
    """A plan with its name, what it attacks and how a good node answers."""

    name: str
    surface: str
    answer: str
    plan: Plan
    is_cut: bool  # whether a good node hangs up on it
    cut_within: int = 0  # after at most so many messages


async def run(peer: BadPeer, target: Target, seconds: float) -> Attack:
    """Let one bad peer do its worst for so long."""
    if "127.0.0.1" not in f"{target.libp2p}{target.relay}{target.ndn}{target.api}":
        raise UsageError("bad peers attack this machine only", hint="give loopback addresses")
    attack = Attack(target)
    with anyio.move_on_after(seconds + 5):
        async with anyio.create_task_group() as tasks:

            async def act() -> None:
                try:
                    await peer.plan(attack)
                except* GONE:
                    attack.cut()

            tasks.start_soon(act)
            await anyio.sleep(seconds)
            attack.stopping = True
            await anyio.sleep(0.2)
            tasks.cancel_scope.cancel()
    return attack


class _shrug:  # noqa: N801
    """Bears that the other side has gone; hosts and sockets may say so in groups."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, BaseExceptionGroup):
            return error.split(GONE)[1] is None
        return isinstance(error, GONE)


# libp2p -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _channel(attack: Attack, protocol: str) -> AsyncIterator[tuple[Libp2pHost, str, Channel]]:
    """A stranger's host, connected, with a raw stream of a protocol."""
    async with running_host(NodeKey.generate()) as host:
        peer = await host.connect(attack.target.libp2p)
        yield host, peer, await host.open_channel(peer, [protocol])


async def _pour(attack: Attack, protocol: str, packets: Iterator[bytes], pause: float = 0.001) -> None:
    async with _channel(attack, protocol) as (host, peer, channel):
        for packet in packets:
            if not attack.going():
                return
            if peer not in {each.peer for each in host.peers()}:
                attack.cut()
                return
            await channel.send(encode_varint(len(packet)) + packet)
            attack.sent += 1
            await anyio.sleep(pause)


def _rpc(raw: bytes) -> bytes:
    return pubsub.encode_rpc(pubsub.Rpc(messages=(raw,)))


async def unsigned(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        key, number = NodeKey.generate(), 0
        while True:
            number += 1
            yield _rpc(pubsub.compose(key, attack.target.topic, b"unsigned", number)[:-66])

    await _pour(attack, MESHSUB, packets())


async def forged(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        key, number = NodeKey.generate(), 0
        while True:
            number += 1
            raw = pubsub.compose(key, attack.target.topic, b"forged", number)
            yield _rpc(raw[:-64] + os.urandom(64))

    await _pour(attack, MESHSUB, packets())


async def garbage_payloads(attack: Attack) -> None:
    """Properly signed, with a payload that is no message of the topic."""

    def packets() -> Iterator[bytes]:
        key, number = NodeKey.generate(), int(time.time() * 1e9)
        while True:
            number += 1
            yield _rpc(pubsub.compose(key, attack.target.topic, os.urandom(100), number))

    await _pour(attack, MESHSUB, packets())


async def replayed(attack: Attack) -> None:
    raw = _rpc(pubsub.compose(NodeKey.generate(), attack.target.topic, b"again", 1))

    def packets() -> Iterator[bytes]:
        while True:
            yield raw

    await _pour(attack, MESHSUB, packets(), 0.0005)


async def giant_length(attack: Attack) -> None:
    async with _channel(attack, MESHSUB) as (host, peer, channel):
        await channel.send(encode_varint(2**40) + bytes(1_000))
        attack.sent = 1
        while attack.going() and peer in {each.peer for each in host.peers()}:  # noqa: ASYNC110
            await anyio.sleep(0.02)
        if attack.going():
            attack.cut()


async def gossip_spam(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        while True:
            ids = tuple(os.urandom(32) for _ in range(50))
            control = pubsub.Control(have=(pubsub.Have(attack.target.topic, ids),), want=ids)
            yield pubsub.encode_rpc(pubsub.Rpc(control=control))

    await _pour(attack, MESHSUB, packets(), 0.0005)


async def subscription_spam(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        while True:
            topics = tuple(pubsub.Subscribe(os.urandom(8).hex(), True) for _ in range(200))
            yield pubsub.encode_rpc(pubsub.Rpc(subscriptions=topics))

    await _pour(attack, MESHSUB, packets(), 0.005)


async def wrong_hashes(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        key, number = NodeKey.generate(), int(time.time() * 1e9)
        while True:
            number += 1
            note = shrex.encode(shrex.Notification(1 + number % 100, os.urandom(32)))
            yield _rpc(pubsub.compose(key, shrex.TOPIC, note, number))

    await _pour(attack, FLOODSUB, packets())


async def future_heights(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        key, number = NodeKey.generate(), int(time.time() * 1e9)
        while True:
            number += 1
            note = shrex.encode(shrex.Notification(2**63 + number % 1_000, os.urandom(32)))
            yield _rpc(pubsub.compose(key, shrex.TOPIC, note, number))

    await _pour(attack, FLOODSUB, packets())


async def many_connections(attack: Attack) -> None:
    """Opens connections and says nothing on them."""
    parts = attack.target.libp2p.split("/")
    host, port = parts[2], int(parts[4])
    held: list[SocketStream] = []
    try:
        while attack.going():
            stream = await anyio.connect_tcp(host, port)
            attack.sent += 1
            held.append(stream)
            with anyio.move_on_after(0.01) as waited:
                with _shrug():
                    await stream.receive(1_000)
                    continue
                attack.refused += 1
            if waited.cancelled_caught:
                continue
            attack.cut()
    finally:
        for stream in held:
            with anyio.CancelScope(shield=True), _shrug():
                await stream.aclose()


async def sybils(attack: Attack) -> None:
    """Twenty strangers forge at once."""
    async with anyio.create_task_group() as tasks:
        parts = [Attack(attack.target) for _ in range(20)]

        async def one(part: Attack) -> None:
            with _shrug():
                await forged(part)
            part.cut()

        for part in parts:
            tasks.start_soon(one, part)
        while attack.going() and any(part.cut_after is None for part in parts):
            await anyio.sleep(0.05)
            attack.sent = sum(part.sent for part in parts)
        for part in parts:
            part.stopping = True
        if all(part.cut_after is not None for part in parts):
            attack.cut()


# SDS streams ------------------------------------------------------------------------------------------------------

SDS_FRAMING: Final = Framing("u32le", 4 * MIB)


async def _sds(attack: Attack, frames: Iterator[bytes]) -> None:
    async with running_host(NodeKey.generate()) as host:
        peer = await host.connect(attack.target.libp2p)
        stream = await host.open_stream(peer, SDS_STREAM, SDS_FRAMING)
        await stream.send(_bare(encode_sds(greeting(["OMM"]))))

        async def read() -> None:
            with _shrug():
                while await stream.receive() is not None:
                    attack.refused += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for frame in frames:
                if not attack.going():
                    break
                try:
                    await stream.send(_bare(frame))
                except GONE:
                    attack.cut()
                    break
                attack.sent += 1
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()


def _bare(frame: bytes) -> bytes:
    """The content of a size-prefixed buffer: the stream's framing writes the length."""
    return frame[4:]


async def query_bomb(attack: Attack) -> None:
    def frames() -> Iterator[bytes]:
        number = 0
        while True:
            number += 1
            yield encode_sds(Query(query_id=f"q{number}", schema="OMM", limit=10_000))

    await _sds(attack, frames())


async def all_ones_bloom(attack: Attack) -> None:
    def frames() -> Iterator[bytes]:
        number = 0
        while True:
            number += 1
            yield encode_sds(
                Sync(sync_id=f"s{number}", schemas=("OMM",), bloom_filter=b"\xff" * 100_000, bloom_hash_count=200)
            )

    await _sds(attack, frames())


# the relay --------------------------------------------------------------------------------------------------------


def _token_url(attack: Attack, token: str) -> str:
    return f"{attack.target.relay}/?auth={token}&projectId=bad"


async def forged_tokens(attack: Attack) -> None:
    """Tokens with every trick, as fast as they are refused."""
    key, now = NodeKey.generate(), int(time.time())

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    claims = {"iss": key.did, "sub": "x", "aud": attack.target.relay, "iat": now, "exp": now + 3_600}
    tricks = [
        f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(claims)}.",
        f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{part('x')}",
        f"{part({'alg': 'EdDSA', 'typ': 'JWT'})}.{part(claims)}.{'A' * 86}",
        write_token(key, audience="wss://elsewhere", subject="x", issued_at=now, seconds=60),
        write_token(key, audience=attack.target.relay, subject="x", issued_at=now - 7_200, seconds=3_600),
        "x" * 10_000,
    ]
    while attack.going():
        try:
            async with connect_websocket(_token_url(attack, tricks[attack.sent % len(tricks)])) as socket:
                with anyio.fail_after(2):
                    await socket.receive()  # a relay closes with its reason
        except* GONE:
            attack.refused += 1
        attack.sent += 1
        await anyio.sleep(0.005)


@asynccontextmanager
async def _relay_socket(attack: Attack) -> AsyncIterator[Any]:
    key, now = NodeKey.generate(), int(time.time())
    token = write_token(key, audience=attack.target.relay, subject="x", issued_at=now, seconds=3_600)
    async with connect_websocket(_token_url(attack, token)) as socket:
        yield socket


async def relay_flood(attack: Attack) -> None:
    """Requests without end, whatever the answers say."""
    async with _relay_socket(attack) as socket:
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                with _shrug():
                    while True:
                        answer = await socket.receive()
                        attack.refused += b"error" in (answer if isinstance(answer, bytes) else answer.encode())
                attack.cut()
                tasks.cancel_scope.cancel()

            tasks.start_soon(read)
            while attack.going():
                body = {"id": attack.sent + 1, "jsonrpc": "2.0", "method": "irn_subscribe", "params": {"topic": "zz"}}
                await socket.send(json.dumps(body))
                attack.sent += 1
                if attack.sent % 50 == 0:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


async def giant_websocket_frame(attack: Attack) -> None:
    """A frame that announces 2^40 bytes."""
    key, now = NodeKey.generate(), int(time.time())
    token = write_token(key, audience=attack.target.relay, subject="x", issued_at=now, seconds=3_600)
    parts = urlsplit(attack.target.relay)
    async with await anyio.connect_tcp(parts.hostname or "127.0.0.1", parts.port or 80) as stream:
        head = (
            f"GET /?auth={token}&projectId=bad HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        await stream.send(head.encode())
        await stream.receive(4_096)
        await stream.send(b"\x81\xff" + (2**40).to_bytes(8, "big") + bytes(4))
        attack.sent = 1
        with _shrug():
            while attack.going():
                await stream.receive(65_536)
                await stream.send(bytes(65_536))
                attack.sent += 1
        if attack.going():
            attack.cut()


# NDN --------------------------------------------------------------------------------------------------------------


async def _ndn(attack: Attack, packets: Iterator[bytes], pause: float = 0.001) -> None:
    parts = urlsplit(attack.target.ndn)
    async with await anyio.connect_tcp(parts.hostname or "127.0.0.1", parts.port or 6363) as stream:
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                with _shrug():
                    while True:
                        await stream.receive(65_536)
                attack.cut()
                tasks.cancel_scope.cancel()

            tasks.start_soon(read)
            for packet in packets:
                if not attack.going():
                    break
                await stream.send(packet)
                attack.sent += 1
                await anyio.sleep(pause)
            tasks.cancel_scope.cancel()


async def lying_vectors(attack: Attack) -> None:
    """Sync Interests that claim 2^63 publications, and thousands of nodes that do not exist."""

    def packets() -> Iterator[bytes]:
        group, number = names.parse(attack.target.group), 0
        while True:
            number += 1
            vector = {names.parse(f"/liar/{number}/{node}"): 2**63 for node in range(50)}
            yield encode_interest(
                sync_name(group), nonce=os.urandom(4), parameters=encode_vector(vector), signer=Digest(), lifetime=1_000
            )

    await _ndn(attack, packets(), 0.01)


async def interest_flood(attack: Attack) -> None:
    """Interests for names that nobody serves, to fill the pending table."""

    def packets() -> Iterator[bytes]:
        while True:
            yield b"".join(
                encode_interest(names.parse(f"/nobody/{os.urandom(6).hex()}"), nonce=os.urandom(4), lifetime=60_000)
                for _ in range(20)
            )

    await _ndn(attack, packets())


async def broken_packets(attack: Attack) -> None:
    """TLV that lies about its lengths."""

    def packets() -> Iterator[bytes]:
        while True:
            yield tlv.encode(ndn.INTEREST, os.urandom(30))
            yield tlv.encode(ndn.DATA, b"\x07\xff" + os.urandom(20))

    await _ndn(attack, packets())


async def giant_packet(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        yield bytes((ndn.DATA, 254)) + (2**31).to_bytes(4, "big")
        while True:
            yield bytes(8_000)

    await _ndn(attack, packets())


# HTTP -------------------------------------------------------------------------------------------------------------

URIS: Final = (
    "http://169.254.169.254/latest/meta-data/", "http://[::ffff:127.0.0.1]/", "http://localhost:7070/api/v1/status",
    "file:///etc/passwd", "gopher://127.0.0.1:6379/", "http://0/", "http://2130706433/",
)  # fmt: skip


async def ssrf_frames(attack: Attack) -> None:
    """SDSP frames whose object and history lie at addresses nobody may fetch from here."""
    async with httpx.AsyncClient(base_url=attack.target.api, timeout=5.0) as client:
        while attack.going():
            uri, number = URIS[attack.sent % len(URIS)], attack.sent
            frame = {"uid": f"bad-{number}", "serial": 3, "ver": 1, "alg": "jp", "delta": [], "historyUri": uri}
            if number % 2:
                frame = {"uid": f"bad-{number}", "serial": 0, "dataUri": uri}
            with suppress(httpx.HTTPError):
                answer = await client.post("/api/v1/publish/sdsp", json={"frame": frame})
                attack.refused += answer.status_code >= 400
            attack.sent += 1
            await anyio.sleep(0.01)


async def foreign_origins(attack: Attack) -> None:
    """Requests as a page of another site, or a rebound name, would make them."""
    headers = ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Host": "127.0.0.1.evil.example"})
    paths = ("/api/v1/publish/relay", "/api/v1/publish/../../etc/passwd", "/api/v1/records/%2e%2e/%2e%2e")
    async with httpx.AsyncClient(base_url=attack.target.api, timeout=5.0) as client:
        while attack.going():
            number = attack.sent
            with suppress(httpx.HTTPError):
                answer = await client.post(paths[number % 3], headers=headers[number // 3 % 3], content=b"{}")
                attack.refused += answer.status_code >= 400
            attack.sent += 1
            await anyio.sleep(0.005)


PLANS: Final = (
    BadPeer("unsigned flood", "libp2p", "each rejected; cut and banned after 16 forgiven faults", unsigned, True, 200),
    BadPeer("forged flood", "libp2p", "each rejected; cut and banned after 16 forgiven faults", forged, True, 200),
    BadPeer("signed garbage", "libp2p", "each rejected; cut and banned after 16 forgiven faults", garbage_payloads, True, 500),
    BadPeer("replayed flood", "libp2p", "recognised before anything is spent; not punished", replayed, False),
    BadPeer("giant length prefix", "libp2p", "cut at the prefix", giant_length, True, 1),
    BadPeer("IHAVE and IWANT spam", "libp2p", "64 control messages a heartbeat heard, then scored down and cut", gossip_spam, True, 5_000),
    BadPeer("subscription spam", "libp2p", "256 topics a peer; more are faults; cut", subscription_spam, True, 50),
    BadPeer("many connections", "libp2p", "16 an address; 5 new ones a second; unfinished handshakes end in 10 s", many_connections, False),
    BadPeer("twenty sybils", "libp2p", "each cut as one forger is", sybils, True, 4_000),
    BadPeer("wrong data hashes", "ShrEx", "rejected against the verified header; cut after 16", wrong_hashes, True, 500),
    BadPeer("future heights", "ShrEx", "ignored, at most 16 of a peer wait", future_heights, False),
    BadPeer("query bomb", "SDS streams", "100 queries a second of a peer; more are refused by name", query_bomb, False),
    BadPeer("all-ones bloom filter", "SDS streams", "refused; counted as queries are", all_ones_bloom, False),
    BadPeer("forged tokens", "relay", "closed with code 3000 and the reason", forged_tokens, False),
    BadPeer("request flood", "relay", "200 requests a second; ended with code 3001 after 1,000 refusals", relay_flood, True, 20_000),
    BadPeer("giant WebSocket frame", "relay", "closed at the header", giant_websocket_frame, True, 50),
    BadPeer("state vectors that lie", "NDN", "256 nodes more than known believed, backlog of 1,000 asked for", lying_vectors, False),
    BadPeer("Interest flood", "NDN", "8,192 pending of a face; the rest dropped", interest_flood, False),
    BadPeer("broken packets", "NDN", "counted and dropped; the face ends after some", broken_packets, True, 500),
    BadPeer("giant packet", "NDN", "closed at the header", giant_packet, True, 500),
    BadPeer("SSRF addresses", "SDSP", "never fetched", ssrf_frames, False),
    BadPeer("foreign Host and Origin", "HTTP", "403 before the route", foreign_origins, False),
)  # fmt: skip


def main() -> None:
    """Run one plan and print what came of it as JSON."""
    name, seconds, target = sys.argv[1:4]
    [peer] = [each for each in PLANS if each.name == name]
    attack = anyio.run(run, peer, msgspec.json.decode(target, type=Target), float(seconds), backend="trio")
    outcome = {"sent": attack.sent, "refused": attack.refused, "cut_after": attack.cut_after}
    sys.stdout.write(json.dumps({"plan": name, **outcome}) + "\n")


if __name__ == "__main__":
    main()
