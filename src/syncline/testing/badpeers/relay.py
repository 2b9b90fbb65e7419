"""Clients of a relay with forged tokens, floods and giant frames."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio

from syncline.core.keys import NodeKey
from syncline.networks.websocket import connect as connect_websocket
from syncline.protocols.relay.wire.tokens import write as write_token
from syncline.testing.badpeers.attack import GONE, Attack, shrug


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
                with shrug():
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
        with shrug():
            while attack.going():
                await stream.receive(65_536)
                await stream.send(bytes(65_536))
                attack.sent += 1
        if attack.going():
            attack.cut()
