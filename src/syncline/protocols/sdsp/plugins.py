"""What SDSP can ride on, find its past in and keep large objects in: the shapes of plug-ins, and how they are found.

Guarantees stand in the docstrings; the built-in plug-ins come through the same entry points as others'. The rules of the
protocol are not here: a plug-in moves or keeps payloads and never has to understand more of one than its `Header`.
Delta algorithms, which are pure, are in `deltas`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Protocol

import msgspec

from syncline.core.errors import DecodeError, MissingError, UsageError
from syncline.core.ports import RecordReader
from syncline.networks.fetch import Fetcher
from syncline.protocols.sdsp.wire import Frame

TRANSPORTS: Final = "syncline.sdsp.transports"  # name: a URL scheme; value: an Open of Transport
HISTORY: Final = "syncline.sdsp.history"  # name: how users ask for it; value: a MakeHistory
STORAGE: Final = "syncline.sdsp.storage"  # name: a URL scheme; value: an OpenStorage

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class Header(msgspec.Struct, frozen=True):
    """The part of a payload that transports may rely on."""

    uid: str
    serial: int
    ver: int | None = None

    @property
    def base(self) -> int:
        """The serial of the full frame that this one builds on."""
        return self.serial - (self.ver or 0)


_HEADERS: Final = msgspec.json.Decoder(Header)


def header_of(payload: bytes) -> Header:
    """Raises DecodeError if the payload is no frame at all; it may still be an invalid one."""
    try:
        return _HEADERS.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"not a frame: {error}") from None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a transport promises. A publisher and a subscriber make up for what is missing where they can."""

    max_payload: int  # larger objects go to object storage, and their frames carry a dataUri
    ordered: bool  # the frames of one object arrive in the order they were published
    history: bool  # `replay` and `newest` answer, up to date with every frame delivered
    optimistic: bool  # `expect_serial` is honoured
    durable: bool  # a publish that has returned survives a crash of the other side
    authenticated: bool  # `Delivery.publisher` is proven
    topics: bool = True  # an object of one name on two topics is two objects; False where its uid alone names it


class Delivery(msgspec.Struct, frozen=True):
    """A payload as it came. `publisher` is empty where the transport proves no name."""

    payload: bytes
    publisher: str = ""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where a subscription begins.

    With `after`, at the first frame of a greater serial; without, at the newest full frame. Transports that keep no
    history begin with whatever comes next.
    """

    uid: str
    after: int | None = None


class Transport(Protocol):
    """Carries payloads from a publisher to any number of subscribers.

    Guarantees: what `publish` took is delivered at least once to those subscribed at the time, or the loss can be seen
    from the serials. Payloads of other objects may come too. Order and memory are as `capabilities` says.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
        """Hand over one frame; returning means it was taken.

        A repeat with the same `dedupe_id` on the same topic is taken once (where the transport remembers it) and succeeds
        both times.
        With `expect_serial`, the frame is taken only if the newest one of its object has that serial (-1: there is
        none), else ConflictError. UnreachableError and UnavailableError: it may or may not have been taken; repeat it.
        """
        ...

    def subscribe(self, topic: str, start: Start) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """The payloads of a topic, for as long as the block lasts; reconnects by itself, without loss or repeats.

        The iterator ends only with the block. It raises when going on makes no sense (not authorised, no such thing).
        """
        ...

    async def replay(self, topic: str, *, uid: str, first: int, last: int) -> Sequence[bytes]:
        """Kept payloads with serials from `first` to `last`, ascending; some may be gone."""
        ...

    async def newest(self, topic: str, *, uid: str) -> bytes | None:
        """The newest payload of this object."""
        ...


class History(Protocol):
    """Finds frames published earlier.

    Guarantee asked of it: after a frame has been delivered, its predecessors back to the full frame are found.
    """

    async def history(self, frame: Frame) -> Sequence[bytes]:
        """Payloads that came before `frame`, at least from serial `frame.base` on, in any order, repeats allowed.

        An empty answer means: not known here. Raises UnreachableError, UnavailableError, RefusedError or NotFoundError.
        """
        ...

    async def last(self, uid: str) -> bytes | None:
        """The newest payload of an object, if this kind of history can tell."""
        ...


class HistoryGround(msgspec.Struct, frozen=True, kw_only=True):
    """What a history plug-in may use."""

    topic: str
    transport: Transport | None
    fetcher: Fetcher
    records: RecordReader | None = None  # inside a node: its journal


class Location(msgspec.Struct, frozen=True):
    """Where an object was stored, and the name it got."""

    uri: str
    uid: str


class ObjectStorage(Protocol):
    """Keeps whole objects that are too large for a transport.

    Guarantee: a URI that `store` returned can be loaded until its time to live has passed or it is deleted; every call
    of `store` gives a new name, also for the same bytes.
    """

    async def store(self, content: bytes, *, media_type: str = "application/json") -> Location: ...

    async def load(self, uri: str) -> bytes:
        """The bytes at a URI of this storage. Raises NotFoundError, also for a URI of another one."""
        ...

    async def delete(self, uri: str) -> None:
        """Remove it; removing what is not there is no error."""
        ...

    def owns(self, uri: str) -> bool:
        """Whether `uri` was given out by this storage."""
        ...


OpenTransport = Callable[..., AbstractAsyncContextManager[Transport]]  # (url, **options)
OpenStorage = Callable[..., ObjectStorage]  # (url, **options)
MakeHistory = Callable[[HistoryGround], History | None]  # None: there is nothing it could use


def open_transport(spec: str, **options: Any) -> AbstractAsyncContextManager[Transport]:
    """The transport a URL names: `memory:name`, `http://127.0.0.1:7070`, `nats://127.0.0.1:4222` …"""
    opening: OpenTransport = load(TRANSPORTS, scheme_of(spec), "transport")
    return opening(spec, **options)


def open_storage(spec: str, **options: Any) -> ObjectStorage:
    """The object storage a URL names: `s3://bucket/prefix`, `file:///folder`, `memory:` …"""
    opening: OpenStorage = load(STORAGE, scheme_of(spec), "object storage")
    return opening(spec, **options)


def make_histories(names: Sequence[str], ground: HistoryGround) -> list[History]:
    """The history plug-ins of these names, in this order, without those that have nothing to work with."""
    made = [load(HISTORY, name, "history plug-in")(ground) for name in names]
    return [history for history in made if history is not None]


def load(group: str, name: str, what: str) -> Any:
    """What the entry point `name` of `group` refers to."""
    points: Mapping[str, EntryPoint] = {point.name: point for point in entry_points(group=group)}
    if name not in points:
        known = ", ".join(sorted(points)) or "none"
        raise UsageError(f"there is no {what} called {name!r}", hint=f"installed are: {known}")
    return _loaded(points[name])


def scheme_of(spec: str) -> str:
    match = _SCHEME.match(spec)
    if match is None:
        raise UsageError(f"{spec!r} names no scheme", hint="write for example http://127.0.0.1:7070")
    return match[1].lower()


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except ImportError as error:
        raise MissingError(
            f"{point.name} needs a package that is not installed: {error}", hint=f"pip install 'syncline[{point.name}]'"
        ) from None
