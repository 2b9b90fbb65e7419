"""The seams between floors: what a protocol may ask of the node, and what the node asks of a protocol.

Only shapes and their guarantees; the node implements `Sink`, the journal `StateReader` and `RecordReader`, the command
line wires `Archive` to the lake. Protocol plug-ins are found through the entry-point group `syncline.protocols`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from syncline.core.clock import Clock
from syncline.core.keys import NodeKey
from syncline.core.record import Arrival, Incoming, Record, kept


class Anything(Enum):
    """Marks a state change that does not care what was there before."""

    ANY = "any"


ANY: Final = Anything.ANY


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a protocol must not forget, written in the same transaction as the records it belongs to.

    `space` is the protocol's own drawer (`"sdsp.publisher"`). `value=None` removes. With `expect`, the change happens
    only if the present value is that one (`None`: absent); otherwise the whole append fails with ConflictError and
    nothing of it is kept.
    """

    space: str
    key: bytes
    value: bytes | None
    expires_at: int | None = None
    expect: bytes | Anything | None = ANY


class Receipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to an arrival, given only after the commit is on disk.

    `arrival` carries the final verdict (an accepted one may have turned out to be a duplicate). `lsn` is None when a cap
    on rejects and ignores was reached and it was only counted.
    """

    arrival: Arrival
    node: str = ""
    epoch: str = ""
    lsn: int | None = None

    @property
    def accepted(self) -> bool:
        return self.arrival.accepted

    @property
    def record(self) -> Record | None:
        """What was kept, made when somebody asks: most senders only want to know that it was."""
        return None if self.lsn is None else kept(self.arrival, self.node, self.epoch, self.lsn)


class Sink(Protocol):
    """Where a service hands every message it gets or sends.

    Guarantee: when `receive` returns, each message has been judged, and every kept one is on disk together with
    `state`; receipts come in the order of `incoming`. Concurrent calls may be committed in either order. If cancelled,
    the messages may or may not have been kept.
    `state` is kept whatever the verdicts turn out to be: a service whose state depends on one judges first, or puts an
    expectation into its changes.
    """

    async def receive(self, incoming: Sequence[Incoming], state: Sequence[StateChange] = ()) -> list[Receipt]: ...


class RecordQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records to read; every field that is set narrows the answer. Order is by lsn."""

    after: int = 0  # lsn, exclusive
    before: int | None = None  # lsn, exclusive
    protocol: str | None = None
    topic: str | None = None
    kind: str | None = None
    key: str | None = None
    publisher: str | None = None
    seq_from: int | None = None
    seq_to: int | None = None  # inclusive
    received_from: int | None = None
    received_to: int | None = None  # exclusive
    id: bytes | None = None
    verdict: str | None = None
    reason: str | None = None
    descending: bool = False
    limit: int = 1_000
    raw_bytes: int | None = None  # at which an answer ends, whatever its limit, after at least one record

    def cuts_off(self, records: Sequence[Record]) -> bool:
        """Whether its answer ended at one of its bounds, so that there may be more."""
        if len(records) >= self.limit:
            return True
        return self.raw_bytes is not None and sum(len(each.raw or b"") for each in records) >= self.raw_bytes


class RecordReader(Protocol):
    """Reads what the journal holds. Sees only what is committed."""

    def read(self, query: RecordQuery) -> list[Record]: ...


class StateReader(Protocol):
    """Reads protocol state. Sees only what is committed and not expired."""

    def get_state(self, space: str, key: bytes) -> bytes | None: ...

    def scan_state(self, space: str, prefix: bytes = b"", limit: int = 10_000) -> list[tuple[bytes, bytes]]: ...


class Archive(Protocol):
    """Records older than the journal keeps, from the lake. May be slow; order is by lsn within node and epoch."""

    def read(self, query: RecordQuery) -> AsyncIterator[Record]: ...


class Judge(Protocol):
    """Decodes one message and decides on it. Never raises for bad input; must not block."""

    def __call__(self, incoming: Incoming) -> Arrival: ...


class WebMount(msgspec.Struct, frozen=True, kw_only=True):
    """Pages and routes a protocol adds to the node's HTTP server, behind its guard."""

    prefix: str  # "/sdsp"
    app: Any  # an ASGI application; sees paths below the prefix
    is_open: Callable[
        [str], bool
    ]  # whether a path (with prefix) needs no bearer token, because it holds a secret itself


class Service(Protocol):
    """A running conversation of one protocol: a thin driver over its sans-I/O session."""

    async def run(self, *, started: Callable[[], None]) -> None:
        """Run until cancelled; call `started` once it can be used."""
        ...

    async def publish(self, request: Mapping[str, Any], state: Sequence[StateChange] = ()) -> Mapping[str, Any]:
        """Send one message, described by the fields `POST /api/v1/publish/{protocol}` takes.

        `state` goes into the same transaction as the message's record: hand it on to `Sink.receive`.
        """
        ...

    def peers(self) -> list[Mapping[str, Any]]:
        """Who it talks to, as `/api/v1/peers` shows it."""
        ...

    def statistics(self) -> Mapping[str, int | float]:
        """Counters and gauges, as `/metrics` shows them."""
        ...

    def web(self) -> WebMount | None:
        """What it serves over HTTP, if anything."""
        ...


class Networks(Protocol):
    """Networks that several protocols of one node share."""

    async def libp2p(self) -> Any:
        """The node's one libp2p host (`syncline.networks.host.Host`): started by the first that asks, stopped with the
        node. To be called from `Service.run`."""
        ...

    async def run(self, *, task_status: Any) -> None:
        """Keep what was asked for running, until cancelled. The node calls this before it starts its protocols."""
        ...

    def addresses(self) -> Sequence[str]:
        """Where others reach us, as far as networks are in use."""
        ...

    def statistics(self) -> Mapping[str, int | float]:
        """Counters and gauges of the networks in use."""
        ...


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """All that a protocol may use of the node it runs in."""

    key: NodeKey
    clock: Clock
    sink: Sink
    records: RecordReader
    state: StateReader
    settings: Any  # the protocol's own settings struct
    networks: Networks | None = None
    archive: Archive | None = None
    public_url: str = ""
    retention: int = 0  # microseconds that a record stays in the journal at least; 0: for ever
    folder: Path = Path()  # what relative paths in settings are relative to


class ProtocolPlugin(Protocol):
    """What an entry point of `syncline.protocols` names."""

    name: str
    settings: type[msgspec.Struct]  # the section [name] of syncline.toml

    def judge(self, ground: Ground) -> Judge: ...

    def service(self, ground: Ground) -> Service: ...

    def decoded(self, record: Record) -> Mapping[str, Any]:
        """The message as a person reads it, for pages and `syncline explain`. Pure; never raises for bad bytes."""
        ...
