"""The asyncio half of the NATS transport: the connection, its stream, publishing in batches, ordered reading.

Runs on the portal thread and nowhere else, because the NATS client knows only asyncio. What a transport promises, and how
it is opened, is in `nats`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import AuthorizationError, MaxPayloadError
from nats.errors import Error as NatsError
from nats.js import JetStreamContext, api
from nats.js.errors import APIError
from nats.js.errors import NotFoundError as NatsNotFoundError

from syncline.core.errors import (
    ConflictError,
    DecodeError,
    RefusedError,
    SynclineError,
    UnavailableError,
    UnreachableError,
    UsageError,
)
from syncline.core.limits import SDSP_BATCH, SDSP_HUB_FRAMES
from syncline.core.retry import Backoff
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.plugins import Start, header_of

BASE_HEADER: Final = "Sdsp-Base-Sequence"  # on deltas: where in the stream their full frame is, for late joiners
WRONG_LAST_SEQUENCE: Final = 10071
HEADER_ROOM: Final = 1_024  # of the server's max_payload, which counts headers too
CONNECT_SECONDS: Final = 5.0
DEFAULT_PORT: Final = 4222
DUPLICATE_WINDOW: Final = 120.0


class Outgoing(msgspec.Struct):
    """One publish on its way through the portal. `outcome` stays None until the server has answered."""

    subject: str
    payload: bytes
    dedupe_id: str
    expect_serial: int | None
    outcome: SynclineError | bool | None = None

    @property
    def name(self) -> str:
        """What JetStream tells repeats by. It does so in the whole stream, and another subject makes another publish."""
        return f"{self.dedupe_id}-{hashlib.blake2b(self.subject.encode(), digest_size=8).hexdigest()}"


class _Tip(msgspec.Struct, frozen=True):
    """The newest message of a subject."""

    serial: int
    sequence: int
    base: int | None  # the sequence of its full frame, if known
    base_serial: int
    name: str  # as `Outgoing.name`


class Remote:
    """What runs on the asyncio thread: the connection, its stream and the tips it knows."""

    def __init__(self, stream: str, timeout: float) -> None:
        self._stream = stream
        self._prefix = stream.lower()
        self._client = Client()
        self._jetstream: JetStreamContext = self._client.jetstream(timeout=timeout)
        self._subscriptions: set[Subscription] = set()
        self._restoring: asyncio.Task[None] | None = None
        self.max_payload = 0

    def subject(self, topic: str, uid: str) -> str:
        """`prefix.topic.uid`, with everything quoted that means something to NATS."""
        return ".".join([self._prefix, *(quote(part, safe="/:@").replace(".", "%2E") for part in (topic, uid))])

    async def connect(self, server: str) -> None:
        with _translated(server):
            await asyncio.wait_for(
                self._client.connect(
                    servers=[server],
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=1,
                    error_cb=_quiet,
                    reconnected_cb=self._reconnected,
                ),
                CONNECT_SECONDS,
            )
            self.max_payload = self._client.max_payload - HEADER_ROOM
            await self._make_stream()

    async def _make_stream(self) -> None:
        try:
            await self._jetstream.stream_info(self._stream)
        except NatsNotFoundError:
            await self._jetstream.add_stream(
                name=self._stream,
                subjects=[f"{self._prefix}.>"],
                storage=api.StorageType.FILE,
                duplicate_window=DUPLICATE_WINDOW,
                max_msgs_per_subject=SDSP_HUB_FRAMES,
                discard=api.DiscardPolicy.OLD,
            )

    async def close(self) -> None:
        if self._restoring is not None:
            self._restoring.cancel()
        await self._client.close()

    async def _reconnected(self) -> None:
        if self._restoring is not None:
            self._restoring.cancel()
        self._restoring = asyncio.create_task(self._restore())

    async def _restore(self) -> None:
        """After a reconnect: the server may have forgotten the consumers, and may need a while before it makes new ones."""
        for subscription in list(self._subscriptions):
            for span in Backoff(longest=5.0).spans():
                try:
                    await subscription.restart()
                    break
                except (NatsError, TimeoutError):
                    await asyncio.sleep(span)

    async def publish_all(self, batch: Sequence[Outgoing]) -> None:
        """Publish a batch: subjects side by side, the frames of one subject one after the other."""
        subjects: dict[str, list[Outgoing]] = {}
        for item in batch:
            subjects.setdefault(item.subject, []).append(item)
        await asyncio.gather(*(self._publish_subject(items) for items in subjects.values()))

    async def _publish_subject(self, items: Sequence[Outgoing]) -> None:
        tip: _Tip | None = None
        for item in items:
            try:
                with _translated(item.subject):
                    tip = await self._publish(item, tip or await self._tip(item.subject))
                    item.outcome = True
            except SynclineError as error:
                item.outcome = error
                tip = None

    async def _publish(self, item: Outgoing, tip: _Tip | None) -> _Tip:
        header = header_of(item.payload)
        if tip is not None and tip.name == item.name:
            return tip  # an answer was lost; the frame is there
        newest = -1 if tip is None else tip.serial
        headers = {api.Header.MSG_ID.value: item.name}
        if item.expect_serial is not None:
            if newest != item.expect_serial:
                raise ConflictError(f"the newest frame is {newest}, not {item.expect_serial}", about=header.uid)
            headers[api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value] = str(0 if tip is None else tip.sequence)
        base = None if tip is None or tip.base_serial != header.base else tip.base
        if base is not None:
            headers[BASE_HEADER] = str(base)
        answer = await self._jetstream.publish(item.subject, item.payload, headers=headers)
        own_base = answer.seq if header.base == header.serial else base
        return _Tip(header.serial, answer.seq, own_base, header.base, item.name)

    async def _tip(self, subject: str) -> _Tip | None:
        """What the next frame has to follow; None if there is nothing yet."""
        newest = await self._newest(subject)
        if newest is None:
            return None
        tip = _tip_of(newest)
        if tip is None:
            raise ConflictError("somebody else has published here what is no frame", about=subject)
        return tip

    async def _newest(self, subject: str) -> api.RawStreamMsg | None:
        try:
            return await self._jetstream.get_last_msg(self._stream, subject)
        except NatsNotFoundError:
            return None

    async def newest(self, subject: str) -> bytes | None:
        with _translated(subject):
            newest = await self._newest(subject)
            return None if newest is None else newest.data

    async def replay(self, subject: str, first: int, last: int) -> list[bytes]:
        with _translated(subject):
            newest = await self._newest(subject)
            if newest is None:
                return []
            tip = _tip_of(newest)
            near = tip.base if tip is not None and tip.base_serial <= first else None
            found: list[bytes] = []
            reading = await self.read(subject, near or 1)
            try:
                async for message in reading.messages:
                    serial = _serial(message.data)
                    if first <= serial <= last:
                        found.append(message.data)
                    if serial >= last or message.metadata.num_pending == 0:
                        break
            finally:
                await reading.unsubscribe()
            return found

    async def read(self, subject: str, sequence: int, **options: Any) -> Any:
        """An ordered consumer of a subject from a position in the stream on."""
        config = api.ConsumerConfig(deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=sequence)
        return await self._jetstream.subscribe(
            subject, stream=self._stream, config=config, ordered_consumer=True, **options
        )

    async def subscribe(self, subject: str, start: Start) -> Subscription:
        with _translated(subject):
            newest = await self._newest(subject)
            sequence, serial = _beginning(None if newest is None else _tip_of(newest), start)
            subscription = Subscription(self, subject, sequence, serial)
            await subscription.restart()
            self._subscriptions.add(subscription)
            return subscription

    def forget(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)


def _tip_of(message: api.RawStreamMsg) -> _Tip | None:
    """What a stored message says about its subject; None if it is no frame: anybody may publish anything."""
    try:
        header = header_of(message.data or b"")
    except DecodeError:
        return None
    headers: dict[str, Any] = message.headers or {}
    known = headers.get(BASE_HEADER)
    base = message.seq if header.base == header.serial else (int(known) if known and known.isdecimal() else None)
    return _Tip(header.serial, message.seq or 0, base, header.base, headers.get(api.Header.MSG_ID.value, ""))


def _serial(payload: bytes) -> int:
    """The serial of a frame; -1 of what is none."""
    try:
        return header_of(payload).serial
    except DecodeError:
        return -1


def _beginning(tip: _Tip | None, start: Start) -> tuple[int, int]:
    """Where in the stream to begin reading, and the first serial that is wanted."""
    wanted = start.after + 1 if start.after is not None else (tip.base_serial if tip else 0)
    if tip is None:
        return 1, wanted
    if tip.serial < wanted:
        return tip.sequence + 1, wanted
    return (tip.base if tip.base is not None and tip.base_serial <= wanted else 1), wanted


class Subscription:
    """Payloads of one subject, collected on the asyncio thread until a batch of them is taken."""

    def __init__(self, remote: Remote, subject: str, sequence: int, serial: int) -> None:
        self._remote = remote
        self._subject = subject
        self._next = sequence
        self._serial = serial
        self._collected: deque[bytes] = deque()
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._reading: Any = None

    async def restart(self) -> None:
        """Read on after the last message seen, with a fresh consumer."""
        if self._reading is not None:
            await _ended(self._reading)
        self._reading = await self._remote.read(self._subject, self._next, cb=self._collect)

    async def _collect(self, message: Msg) -> None:
        while len(self._collected) >= 2 * SDSP_BATCH:
            self._room.clear()
            await self._room.wait()
        sequence = message.metadata.sequence.stream
        if sequence < self._next:
            return
        self._next = sequence + 1
        try:
            wanted = header_of(message.data).serial >= self._serial
        except DecodeError:
            wanted = True  # whoever follows the object says what is wrong with it
        if wanted:
            self._collected.append(message.data)
            self._more.set()

    async def take(self) -> list[bytes]:
        """At least one payload, at most a batch."""
        while not self._collected:
            self._more.clear()
            await self._more.wait()
        taken = [self._collected.popleft() for _ in range(min(len(self._collected), SDSP_BATCH))]
        self._room.set()
        return taken

    async def close(self) -> None:
        self._remote.forget(self)
        await _ended(self._reading)


async def _ended(reading: Any) -> None:
    try:
        await asyncio.wait_for(reading.unsubscribe(), CONNECT_SECONDS)
    except (NatsError, TimeoutError):
        pass  # the connection is gone, and the consumer with it


async def _quiet(_: Exception) -> None:
    """Errors reach the callers; the client's own log would only repeat them."""


@contextmanager
def _translated(about: str) -> Iterator[None]:
    """NATS errors as ours."""
    try:
        yield
    except AuthorizationError:
        raise RefusedError("NATS refuses us", reason=Reason.UNAUTHORISED, about=about) from None
    except MaxPayloadError:
        raise UsageError("larger than the NATS server takes", hint="configure object storage", about=about) from None
    except APIError as error:
        if error.err_code == WRONG_LAST_SEQUENCE:
            raise ConflictError("somebody else published first", about=about) from None
        raise UnavailableError(f"JetStream answers: {error}", about=about) from None
    except (NatsError, TimeoutError, OSError) as error:
        raise UnreachableError(f"NATS does not answer: {error or type(error).__name__}", about=about) from None


async def connected(stream: str, server: str, timeout: float) -> Remote:
    with _translated(server):
        await _knock(server)
    remote = Remote(stream, timeout)
    try:
        await remote.connect(server)
    except BaseException:
        await remote.close()
        raise
    return remote


async def _knock(server: str) -> None:
    """Fail at once if nobody listens: the client itself would go on trying."""
    parts = urlsplit(server)
    opening = asyncio.open_connection(parts.hostname, parts.port or DEFAULT_PORT)
    _, writer = await asyncio.wait_for(opening, CONNECT_SECONDS)
    writer.close()
    await writer.wait_closed()
