"""A client of the relay network for Python programs, on trio or asyncio: publish, subscribe, and stay connected.

async with RelayClient("wss://relay.example.org") as client:
    await client.publish(topic, "hello")
    async with client.subscribe(topic) as messages:
        async for message in messages:
            print(message.message)
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random, SystemRandom
from typing import Any, Final, Self
from urllib.parse import urlencode

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from syncline.core.clock import Clock, SystemClock
from syncline.core.errors import (
    ClosedError,
    DecodeError,
    RefusedError,
    SynclineError,
    UnavailableError,
    UnreachableError,
    UsageError,
)
from syncline.core.keys import NodeKey
from syncline.core.limits import RELAY_CLIENT_QUEUE, RELAY_REQUEST_BYTES, RELAY_TTL_DEFAULT
from syncline.core.retry import Backoff
from syncline.core.verdict import Reason
from syncline.networks.background import background
from syncline.networks.signal import Signal
from syncline.networks.websocket import WebSocket, connect
from syncline.protocols.relay.rules.messages import is_topic
from syncline.protocols.relay.session.caller import Caller, Parcel, RelayMessage
from syncline.protocols.relay.wire import tokens

__all__ = ["RelayClient", "RelayMessage"]
UNAUTHORISED: Final = 3000
TOKEN_SECONDS: Final = 86_400


class RelayClient:
    """One client of one relay, over reconnects. Its key is its name: messages wait for it while it is away.

    Guarantees: `publish` returns when the relay has the message on disk. A subscriber gets each message at least once over
    the life of its key and once in the life of this object, in the relay's order per topic; it is acknowledged when
    the iterator hands it out. A client is not sent what it published itself.
    """

    def __init__(
        self,
        url: str,
        key: NodeKey | None = None,
        *,
        project_id: str = "",
        tls: ssl.SSLContext | None = None,
        backoff: Backoff | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        if not url.startswith(("ws://", "wss://")):
            raise UsageError(f"{url!r} is not a relay's address", hint="write for example ws://127.0.0.1:7072")
        self._url = url
        self._key = key or NodeKey.generate()
        self._project_id = project_id
        self._tls = tls
        self._backoff = backoff or Backoff()
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._caller = Caller(self._clock.now())
        self._ears: dict[str, MemoryObjectSendStream[Parcel]] = {}
        self._to_send = Signal()
        self._failure: SynclineError | None = None
        self._stack = AsyncExitStack()
        self.connections = 0  # opened so far

    @property
    def did(self) -> str:
        """The client's name."""
        return self._key.did

    async def __aenter__(self) -> Self:
        tasks = await self._stack.enter_async_context(background())
        tasks.start_soon(self._stay_connected)
        return self

    async def __aexit__(self, *exception: Any) -> None:
        self._fail(ClosedError("the client is closed"))
        await self._stack.aclose()

    async def publish(
        self,
        topic: str,
        message: str,
        *,
        ttl: int = RELAY_TTL_DEFAULT,
        tag: int = 0,
        prompt: bool = False,
        timeout: float = 60.0,
    ) -> None:
        """Hand a message to the relay; returns when it is on its disk. Repeating it is harmless."""
        params = {"topic": _checked(topic), "message": message, "ttl": ttl, "prompt": prompt, "tag": tag}
        await self._call("irn_publish", params, timeout)

    @asynccontextmanager
    async def subscribe(self, topic: str, *, timeout: float = 60.0) -> AsyncIterator[AsyncIterator[RelayMessage]]:
        """The messages of a topic, cached ones first, for the length of the block; then the subscription ends."""
        if _checked(topic) in self._ears:
            raise UsageError("this client is already subscribed to the topic", about=topic)
        outlet, inlet = anyio.create_memory_object_stream[Parcel](RELAY_CLIENT_QUEUE)
        self._ears[topic] = outlet
        self._caller.topics[topic] = None
        messages = self._messages(inlet)
        try:
            await self._call("irn_subscribe", {"topic": topic}, timeout)
            yield messages
        finally:
            await messages.aclose()
            inlet.close()
            outlet.close()
            del self._ears[topic]
            self._caller.leave(topic)
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                try:
                    await self._call("irn_unsubscribe", {"topic": topic, "id": ""}, 1.0)
                except SynclineError:
                    pass  # the relay forgets it by itself in time

    async def fetch(self, topic: str, *, timeout: float = 60.0) -> list[RelayMessage]:
        """What is cached on a topic and this client has not had, without subscribing. It then counts as had."""
        found: list[RelayMessage] = []
        while True:
            answer = await self._call("irn_fetchMessages", {"topic": _checked(topic)}, timeout)
            found += [
                RelayMessage(
                    topic=each["topic"], message=each["message"], published_at=each["publishedAt"], tag=each["tag"]
                )
                for each in answer["messages"]
            ]
            if not answer["hasMore"]:
                return found

    async def _messages(self, inlet: MemoryObjectReceiveStream[Parcel]) -> AsyncGenerator[RelayMessage, None]:
        async for parcel in inlet:
            self._caller.taken(parcel)
            self._to_send.set()
            yield parcel.message
        if self._failure is not None:
            raise self._failure

    async def _call(self, method: str, params: Any, timeout: float) -> Any:
        if self._failure is not None:
            raise self._failure
        answered = anyio.Event()
        call = self._caller.call(method, params, answered.set)
        self._to_send.set()
        with anyio.move_on_after(timeout):
            await answered.wait()
        if not answered.is_set():
            self._caller.forget(call)
            raise UnreachableError(f"no answer in {timeout:g} s", about=self._url)
        if call.error is not None:
            raise call.error
        return call.result

    async def _stay_connected(self) -> None:
        """Connect, and connect again with growing pauses, until the relay says that it never will let us in."""
        spans = self._backoff.spans(self._random)
        while self._failure is None:
            before = self.connections
            try:
                await self._converse()
            except RefusedError as error:
                self._fail(error)
                return
            except (UnreachableError, UnavailableError, DecodeError):  # the last: it talks like no relay, for now
                pass
            if self.connections > before:
                spans = self._backoff.spans(self._random)
            await anyio.sleep(next(spans))

    async def _converse(self) -> None:
        async with connect(self._address(), about=self._url, max_message=RELAY_REQUEST_BYTES, tls=self._tls) as socket:
            self.connections += 1
            self._caller.reopen()
            async with background() as tasks:
                tasks.start_soon(self._write, socket)
                try:
                    while True:
                        for _, payload in await socket.receive_all():
                            await self._take(payload)
                except ClosedError as error:
                    if socket.close_code == UNAUTHORISED:
                        raise RefusedError(str(error), reason=Reason.UNAUTHORISED, about=self._url) from None

    async def _take(self, payload: bytes) -> None:
        parcel = self._caller.receive(payload)
        if self._caller.outgoing:
            self._to_send.set()
        if parcel is not None:
            try:
                await self._ears[parcel.message.topic].send(parcel)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the subscriber has just left

    async def _write(self, socket: WebSocket) -> None:
        try:
            while True:
                outgoing = self._caller.take_outgoing()
                if not outgoing:
                    await self._to_send.wait()
                    continue
                for payload in outgoing:
                    socket.put(payload, is_text=True)
                await socket.flush()
        except (ClosedError, UnreachableError):
            pass  # the reader sees it too

    def _address(self) -> str:
        now = self._clock.now() // 1_000_000
        nonce = self._random.randbytes(32).hex()
        token = tokens.write(self._key, audience=self._url, subject=nonce, issued_at=now, seconds=TOKEN_SECONDS)
        query = {"auth": token, "ua": "syncline", **({"projectId": self._project_id} if self._project_id else {})}
        return f"{self._url}{'&' if '?' in self._url else '?'}{urlencode(query)}"

    def _fail(self, error: SynclineError) -> None:
        self._failure = error
        self._caller.fail(error)
        for ear in self._ears.values():
            ear.close()


def _checked(topic: str) -> str:
    if not is_topic(topic):
        raise UsageError("a topic is 32 bytes as 64 lower-case hex digits", about=topic[:80])
    return topic
