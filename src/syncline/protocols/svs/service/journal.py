"""Groups of a node: every packet, in or out, goes through the node's sink, and what must not be forgotten with it.

Implements the ports of `group.py` and `stores.py` on `core.ports`; decides nothing about packets itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio.to_thread
import structlog

from syncline.core.errors import RefusedError, SynclineError
from syncline.core.ports import Ground, RecordQuery, StateChange
from syncline.core.record import Arrival, Direction, Incoming
from syncline.core.verdict import Reason, Verdict, ignore
from syncline.formats.ndn.names import Name, parse, text
from syncline.protocols.svs.rules.judge import MAPPING, PROTOCOL, Judged, examine, judge_arrival, record_id
from syncline.protocols.svs.rules.trust import UNCHECKED, Trust, trust_of
from syncline.protocols.svs.service.stores import Prepared
from syncline.protocols.svs.settings import SvsSettings
from syncline.protocols.svs.wire.mapping import MappingData, MappingEntry
from syncline.protocols.svs.wire.naming import OuterName

log = structlog.get_logger(__name__)
NUMBERS: Final = "svs.numbers"  # group and node → the newest number we published
SETTLED: Final = "svs.settled"  # group and node → up to which number nothing is left to fetch


class SvsJudge:
    """Implements `core.ports.Judge` with the keys of the settings."""

    def __init__(self, settings: SvsSettings) -> None:
        self._keys = settings.keys
        self._groups: dict[str, tuple[Name, Trust]] = {}

    def group(self, topic: str) -> tuple[Name, Trust]:
        """A group and its validators, by its name as text."""
        if topic not in self._groups:
            name = parse(topic)
            self._groups[topic] = (name, trust_of(name, self._keys))
        return self._groups[topic]

    def __call__(self, incoming: Incoming) -> Arrival:
        group, trust = self.group(incoming.topic)
        return judge_arrival(incoming, group, examine(incoming.raw, group, trust))


class SinkIntake:
    """Implements `group.Intake`: what was fetched is judged and kept by the node before it counts."""

    def __init__(self, ground: Ground, judge: SvsJudge, group: Name) -> None:
        self._ground = ground
        self._judge = judge
        self._group = group
        self._topic = text(group)
        self._saved: dict[Name, int] = {}
        self.settled: Callable[[], Mapping[Name, int]] = dict

    def resume(self) -> dict[Name, int]:
        """What an earlier run has settled."""
        prefix = self._topic.encode() + b"\0"
        found = self._ground.state.scan_state(SETTLED, prefix)
        self._saved = {key[len(prefix) :]: int.from_bytes(value, "big") for key, value in found}
        return dict(self._saved)

    async def take(self, packets: Sequence[tuple[bytes, str]]) -> list[Judged]:
        now = self._ground.clock.now()
        incoming = [
            Incoming(protocol=PROTOCOL, topic=self._topic, raw=wire, peer=peer, received_at=now)
            for wire, peer in packets
        ]
        try:
            receipts = await self._ground.sink.receive(incoming, self._progress())
        except SynclineError as error:
            return [Judged(ignore(Reason.OVERLOADED, error.message)) for _ in packets]
        return [
            await self._understood(wire, receipt.arrival) for (wire, _), receipt in zip(packets, receipts, strict=True)
        ]

    async def _understood(self, wire: bytes, arrival: Arrival) -> Judged:
        """What the node decided on a packet, and what is in it; signatures have been checked then."""
        if arrival.accepted:
            return examine(wire, self._group, UNCHECKED)
        if arrival.reason is Reason.DUPLICATE:
            # The copy that was kept first is the one that counts, should another differ from it.
            query = RecordQuery(protocol=PROTOCOL, id=arrival.id, verdict="accept", limit=1)
            kept = await anyio.to_thread.run_sync(self._ground.records.read, query)
            return examine(next((record.raw for record in kept if record.raw), wire), self._group, UNCHECKED)
        told = examine(wire, *self._judge.group(self._topic))
        return Judged(Verdict(arrival.verdict, arrival.reason, told.verdict.detail), about=told.about)

    def _progress(self) -> list[StateChange]:
        changed = {node: seq for node, seq in self.settled().items() if seq > self._saved.get(node, 0)}
        self._saved.update(changed)
        return [
            StateChange(space=SETTLED, key=self._topic.encode() + b"\0" + node, value=seq.to_bytes(8, "big"))
            for node, seq in changed.items()
        ]


class SinkStore:
    """Implements `stores.Store` on the node's journal: packets are records, numbers are state of the same transaction."""

    def __init__(self, ground: Ground, group: Name) -> None:
        self._ground = ground
        self._group = group
        self._topic = text(group)
        self._numbers: dict[Name, bytes | None] = {}

    async def last(self, node: Name) -> int:
        value = await anyio.to_thread.run_sync(self._ground.state.get_state, NUMBERS, self._key(node))
        self._numbers[node] = value
        return int.from_bytes(value or b"\0", "big")

    async def keep(self, publications: Sequence[Prepared]) -> None:
        newest: dict[Name, int] = {}
        packets: list[bytes] = []
        state: list[StateChange] = []
        for each in publications:
            newest[each.node] = each.seq
            packets += [*each.packets, each.mapping]
            state += each.state
        for node, seq in newest.items():
            # Compare-and-set: a second process with our prefix, or a number used before, stops the whole batch.
            state.append(
                StateChange(
                    space=NUMBERS, key=self._key(node), value=seq.to_bytes(8, "big"), expect=self._numbers[node]
                )
            )
        now = self._ground.clock.now()
        outgoing = [
            Incoming(
                protocol=PROTOCOL,
                topic=self._topic,
                raw=packet,
                peer=self._ground.key.peer_id,
                received_at=now,
                direction=Direction.OUT,
            )
            for packet in packets
        ]
        for packet in packets:
            verdict = examine(packet, self._group, UNCHECKED).verdict
            if verdict.reason is not None:  # before it takes a number
                raise RefusedError(f"our own rules refuse this: {verdict.detail}", reason=verdict.reason)
        await self._ground.sink.receive(outgoing, state)
        self._numbers.update({node: seq.to_bytes(8, "big") for node, seq in newest.items()})

    async def packet(self, node: Name, seq: int, segment: int | None) -> bytes | None:
        for index in (None, 0) if segment is None else (segment,):
            identity = record_id(self._group, OuterName(node, seq, index), None, b"")
            query = RecordQuery(protocol=PROTOCOL, id=identity, verdict="accept", limit=1)
            found = await self._raws(query)
            if found:
                return found[0]
        return None

    async def entries(self, node: Name, low: int, high: int) -> list[MappingEntry]:
        query = RecordQuery(
            protocol=PROTOCOL,
            topic=self._topic,
            kind=MAPPING,
            publisher=text(node),
            seq_from=low,
            seq_to=high,
            verdict="accept",
        )
        entries: dict[int, MappingEntry] = {}
        for raw in await self._raws(query):
            packet = examine(raw, self._group, UNCHECKED).packet
            if isinstance(packet, MappingData):
                entries.update((entry.seq, entry) for entry in packet.entries)
        return [entries[seq] for seq in sorted(entries)]

    async def _raws(self, query: RecordQuery) -> list[bytes]:
        """Packets from the journal or, when they are older than it keeps, from the archive."""
        records = await anyio.to_thread.run_sync(self._ground.records.read, query)
        if not records and self._ground.archive is not None:
            try:
                records = [record async for record in self._ground.archive.read(query)]
            except SynclineError as error:  # whoever asked will ask again
                log.warning("svs_archive_unavailable", error=str(error))
        return [record.raw for record in records if record.raw is not None]

    def _key(self, node: Name) -> bytes:
        return self._topic.encode() + b"\0" + node
