"""Does what the hub wants done: commits batches one after the other, reads bodies from the journal, wakes writers.

The hub decides everything; nothing here looks into a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import structlog

from syncline.core.errors import ClosedError, SynclineError
from syncline.core.limits import RELAY_SUBSCRIPTIONS, RELAY_TOPICS_PER_CLIENT
from syncline.core.ports import Ground, Receipt, RecordQuery, StateReader
from syncline.networks.signal import Signal
from syncline.protocols.relay.rules.messages import PROTOCOL
from syncline.protocols.relay.session import durable
from syncline.protocols.relay.session.batches import Batch
from syncline.protocols.relay.session.cache import Entry
from syncline.protocols.relay.session.durable import CursorValue
from syncline.protocols.relay.session.hub import Hub
from syncline.protocols.relay.session.outbox import Load, Port

log = structlog.get_logger()
LANES: Final = 2  # batches on their way to the disk
Wake = Callable[[], None]


class Driver:
    """The hub's hands."""

    def __init__(self, hub: Hub, ground: Ground) -> None:
        self.hub = hub
        self._ground = ground
        self._writers: dict[Port, Wake] = {}
        self._to_commit = Signal()
        self._to_load = Signal()
        self.progress = Signal()  # something was committed: whoever waits for room may look again
        self.prompts = Signal()
        self._answered = anyio.Event()  # the batch taken last has been answered
        self._answered.set()
        self._in_flight = 0
        self.commits = 0
        self.faults = 0
        self.failed_commits = 0

    def attach(self, port: Port, wake: Wake) -> None:
        """`wake` is called when there is something to send on `port`."""
        self._writers[port] = wake

    def detach(self, port: Port) -> None:
        self._writers.pop(port, None)

    def pump(self) -> None:
        """Look for what waits. Call after every event given to the hub."""
        hub = self.hub
        hub.settle()
        if len(hub.queue):
            self._to_commit.set()
        if hub.outbox.loads:
            self._to_load.set()
        if hub.prompts.waiting:
            self.prompts.set()
        for port in hub.outbox.take_ready():
            wake = self._writers.get(port)
            if wake is not None:
                wake()

    async def commit(self) -> None:
        """Commit what waits, for ever. While one batch is answered the next is already on its way to the disk."""
        async with anyio.create_task_group() as tasks:
            for _ in range(LANES):
                tasks.start_soon(self._lane)

    async def _lane(self) -> None:
        """Batches are taken, queued in the journal and answered in the same order, whichever lane they are in."""
        while True:
            batch = self.hub.queue.take()
            if batch is None:
                await self._to_commit.wait()
                continue
            before, self._answered = self._answered, anyio.Event()
            mine, self._in_flight = self._answered, self._in_flight + 1
            outcome = await self._kept(batch)
            await before.wait()
            await self._settle(batch, outcome)
            self._in_flight -= 1
            mine.set()
            self.pump()
            self.progress.set()

    async def _kept(self, batch: Batch) -> list[Receipt] | SynclineError:
        try:
            return await self._ground.sink.receive(batch.incoming, batch.state)
        except SynclineError as error:
            return error

    async def _settle(self, batch: Batch, outcome: list[Receipt] | SynclineError) -> None:
        """Let the conversations go on, or know of the failure."""
        if isinstance(outcome, list):
            self.commits += 1
            batch.done(outcome)
            self._tell(batch.faults)
            return
        parts = batch.apart()
        if len(parts) > 1 and not outcome.retry and not isinstance(outcome, ClosedError):
            for part in parts:  # one of them cannot be kept; the others must not suffer
                await self._settle(part, await self._kept(part))
            return
        self.failed_commits += 1
        log.warning("relay_commit_failed", error=str(outcome), works=len(batch))
        batch.failed(outcome)
        self._tell(batch.faults)

    def _tell(self, faults: list[Exception]) -> None:
        for fault in faults:
            self.faults += 1
            log.error("relay_fault", exc_info=fault)

    async def load(self) -> None:
        """Read bodies that deliveries wait for, for ever."""
        while True:
            loads = self.hub.outbox.take_loads()
            if not loads:
                await self._to_load.wait()
                continue
            bodies = await anyio.to_thread.run_sync(self._bodies, loads)
            for load, found in zip(loads, bodies, strict=True):
                load.then(found)
            self.pump()

    def _bodies(self, loads: Sequence[Load]) -> list[list[bytes | None]]:
        return [[self._body(entry) for entry in load.entries] for load in loads]

    def _body(self, entry: Entry) -> bytes | None:
        query = RecordQuery(id=entry.id, protocol=PROTOCOL, verdict="accept", descending=True, limit=1)
        found = self._ground.records.read(query)
        return found[0].raw if found else None

    async def drain(self) -> None:
        """Until everything taken in is committed and answered."""
        self.hub.write_down()
        self.pump()
        while len(self.hub.queue) or self._in_flight or self._ready():
            await self.progress.wait()

    def _ready(self) -> bool:
        return any(port.frames for port in self._writers)

    async def cursors(self, public: bytes) -> dict[str, CursorValue]:
        """How far a client has come on its topics, from disk."""
        scan = partial(self._ground.state.scan_state, durable.CURSORS, public, 4 * RELAY_TOPICS_PER_CLIENT)
        found = await anyio.to_thread.run_sync(scan)
        return {durable.split_client_key(key)[1]: durable.cursor_value(value) for key, value in found}


def restore(hub: Hub, state: StateReader, messages: int) -> None:
    """Give the hub what a former run left on disk."""
    hub.restore(
        [
            entry
            for _, value in state.scan_state(durable.MESSAGES, limit=messages)
            for entry in durable.entries_of(value)
        ],
        [
            (*durable.split_client_key(key), int.from_bytes(value, "big"))
            for key, value in state.scan_state(durable.SUBSCRIPTIONS, limit=RELAY_SUBSCRIPTIONS)
        ],
    )


def counter(state: StateReader, name: bytes) -> int:
    return int.from_bytes(state.get_state(durable.COUNTERS, name) or b"", "big")
