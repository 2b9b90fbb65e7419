"""SDSP through a Syncline node over HTTP: publish by POST, follow by server-sent events, WebSocket or long poll.

The node keeps every frame on disk before it answers or passes it on, knows the newest serial and answers for history; a
follower that was cut off goes on at the serial it had. The node's side is `protocols.sdsp.service`.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, Literal
from urllib.parse import quote

import anyio
import httpx
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from syncline.core.errors import (
    ClosedError,
    DecodeError,
    RefusedError,
    SynclineError,
    UnavailableError,
    UnreachableError,
    UsageError,
    restored,
)
from syncline.core.limits import KIB, RAW_INLINE_MAX, SDSP_FRAME_MAX, SDSP_POLL_SECONDS, SDSP_SILENCE_SECONDS
from syncline.core.retry import Backoff
from syncline.core.verdict import Reason
from syncline.formats import sse
from syncline.networks import websocket
from syncline.networks.background import background
from syncline.protocols.sdsp.plugins import Capabilities, Delivery, Start, header_of

Follow = Literal["sse", "websocket", "poll"]
TRIES: Final = 3
_FRAMES: Final = msgspec.json.Decoder(list[msgspec.Raw])


class HttpTransport:
    """Implements `Transport` as a client of one node."""

    capabilities: Final = Capabilities(
        max_payload=RAW_INLINE_MAX,
        ordered=True,
        history=True,
        optimistic=True,
        durable=True,
        authenticated=False,
        topics=False,
    )

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        *,
        token: str = "",
        follow: Follow = "sse",
        backoff: Backoff | None = None,
        random: Random | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._backoff = backoff or Backoff()
        self._random = random
        self._tls = tls
        self._follow: Callable[[str, _Position], Awaitable[None]] = {
            "sse": self._follow_events,
            "websocket": self._follow_websocket,
            "poll": self._follow_polling,
        }[follow]

    async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
        # as text, so that the node keeps exactly these bytes
        body = msgspec.json.encode({"topic": topic, "frame": payload.decode(), "expect_serial": expect_serial})
        spans = self._backoff.spans(self._random)
        for left in reversed(range(TRIES)):  # the Idempotency-Key makes a repeat harmless
            try:
                await self._ask("POST", "/api/v1/publish/sdsp", content=body, headers={"Idempotency-Key": dedupe_id})
                return
            except SynclineError as error:
                if not error.retry or not left:
                    raise
            await anyio.sleep(next(spans))

    async def replay(self, topic: str, *, uid: str, first: int, last: int) -> Sequence[bytes]:
        found: list[bytes] = []
        while first <= last:  # long answers come in pages
            page = await self._frames(uid, first=first, last=last)
            if not page:
                break
            found += page
            first = header_of(page[-1]).serial + 1
        return found

    async def newest(self, topic: str, *, uid: str) -> bytes | None:
        found = await self._frames(uid, newest=1)
        return found[-1] if found else None

    @asynccontextmanager
    async def subscribe(self, topic: str, start: Start) -> AsyncIterator[AsyncIterator[Delivery]]:
        outlet, inlet = anyio.create_memory_object_stream[Delivery | SynclineError](0)
        deliveries = _deliveries(inlet)
        async with background() as tasks:
            tasks.start_soon(self._run, start, outlet)
            try:
                yield deliveries
            finally:
                inlet.close()
                await deliveries.aclose()

    async def _run(self, start: Start, outlet: MemoryObjectSendStream[Delivery | SynclineError]) -> None:
        """Follow for ever: connect, and connect again. Before the first connection trouble is reported, not endured."""
        position = _Position(start.after, outlet)
        spans = self._backoff.spans(self._random)
        with outlet:
            while True:
                position.progress = False
                try:
                    await self._follow(start.uid, position)
                except SynclineError as error:
                    if not error.retry or not position.connected:
                        await position.hand_over(error)
                        return
                if position.progress:
                    spans = self._backoff.spans(self._random)
                await anyio.sleep(next(spans))

    async def _follow_events(self, uid: str, position: _Position) -> None:
        headers = {**self._headers, "Accept": sse.MEDIA_TYPE}
        if position.after is not None:
            headers["Last-Event-ID"] = str(position.after)
        request = self._client.stream(
            "GET",
            f"{self._url}/sdsp/{quote(uid)}/events",
            headers=headers,
            timeout=httpx.Timeout(10.0, read=SDSP_SILENCE_SECONDS),
        )
        decoder = sse.Decoder(SDSP_FRAME_MAX + KIB)
        try:
            async with request as response:
                if not response.is_success:
                    await response.aread()
                    raise _error(response)
                position.connected = True
                async for chunk in response.aiter_bytes():
                    for event in decoder.feed(chunk):
                        await position.deliver(event.data)
        except httpx.TransportError as error:
            raise self._unreachable(error) from None

    async def _follow_websocket(self, uid: str, position: _Position) -> None:
        after = "" if position.after is None else f"?after={position.after}"
        url = f"ws{self._url.removeprefix('http')}/sdsp/{quote(uid)}/ws{after}"
        async with websocket.connect(url, headers=self._headers, tls=self._tls) as socket:
            position.connected = True
            try:
                while True:
                    message = await socket.receive()
                    await position.deliver(message.encode() if isinstance(message, str) else message)
            except ClosedError:
                pass  # the node may be back in a moment

    async def _follow_polling(self, uid: str, position: _Position) -> None:
        while True:
            parameters = {} if position.after is None else {"after": position.after}
            found = await self._frames(uid, wait=SDSP_POLL_SECONDS, **parameters)
            position.connected = position.progress = True
            for payload in found:
                await position.deliver(payload)

    async def _frames(self, uid: str, **parameters: float) -> list[bytes]:
        answer = await self._ask("GET", f"/sdsp/{quote(uid)}/frames", params=parameters)
        try:
            return [bytes(raw) for raw in _FRAMES.decode(answer.content)]
        except msgspec.DecodeError as error:
            raise DecodeError(f"the node's answer is not a list of frames: {error}", about=self._url) from None

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {**self._headers, **options.pop("headers", {})}
        try:
            answer = await self._client.request(method, self._url + path, headers=headers, **options)
        except httpx.TransportError as error:
            raise self._unreachable(error) from None
        if not answer.is_success:
            raise _error(answer)
        return answer

    def _unreachable(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"no node answers: {error or type(error).__name__}", hint="start one with `syncline up`", about=self._url
        )


class _Position:
    """How far a follower has come. Hands payloads on, each serial once."""

    def __init__(self, after: int | None, outlet: MemoryObjectSendStream[Delivery | SynclineError]) -> None:
        self.after = after
        self.connected = False  # ever
        self.progress = False  # since the last connection
        self._outlet = outlet

    async def deliver(self, payload: bytes) -> None:
        serial = header_of(payload).serial
        if self.after is None or serial > self.after:
            await self.hand_over(Delivery(payload))
            self.after, self.progress = serial, True

    async def hand_over(self, something: Delivery | SynclineError) -> None:
        """Wait until it is taken, or the follower has left.

        Shielded, so that cancellation strikes while reading from the network: struck here, httpx's nested generators
        would be left half-run.
        """
        with anyio.CancelScope(shield=True):
            try:
                await self._outlet.send(something)
            except anyio.BrokenResourceError:
                pass


async def _deliveries(inlet: MemoryObjectReceiveStream[Delivery | SynclineError]) -> AsyncGenerator[Delivery, None]:
    with inlet:
        async for delivery in inlet:
            if isinstance(delivery, SynclineError):
                raise delivery
            yield delivery


def _error(answer: httpx.Response) -> SynclineError:
    """What a node's refusal means here."""
    if answer.status_code in (401, 403, 421):
        found = restored(_json(answer), "")
        return RefusedError(
            str(found) or f"the node answered {answer.status_code}",
            reason=getattr(found, "reason", Reason.UNAUTHORISED),
            hint="give the node's api.token" if answer.status_code == 401 else found.hint,
            about=str(answer.url),
        )
    if answer.status_code in (429, 502, 503, 504):
        return UnavailableError(f"the node answered {answer.status_code}", about=str(answer.url))
    return restored(_json(answer), f"the node answered {answer.status_code}")


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


@asynccontextmanager
async def open_http(
    url: str,
    *,
    token: str = "",
    follow: Follow = "sse",
    backoff: Backoff | None = None,
    random: Random | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[HttpTransport]:
    """The node at `http://host:port` or `https://…`; `token` is its `api.token`."""
    if follow not in ("sse", "websocket", "poll"):
        raise UsageError(f"a node can be followed by sse, websocket or poll, not {follow!r}")
    timeout = httpx.Timeout(10.0, read=SDSP_SILENCE_SECONDS)
    async with httpx.AsyncClient(timeout=timeout, verify=tls or True, trust_env=False) as client:
        yield HttpTransport(client, url, token=token, follow=follow, backoff=backoff, random=random, tls=tls)
