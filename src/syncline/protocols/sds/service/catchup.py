"""Catching up with peers: ask for what they received and we do not hold, keep it, and ask again until nothing is new.

Each round tells the peer in a bloom filter what we hold, and each filter differs from the last, so that what one hides
by mistake the next lets through. The first time a peer is asked for everything, later for what came since the run before
the last, and for everything again now and then.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

import anyio
import anyio.to_thread
import msgspec
import structlog

from syncline.core import limits
from syncline.core.errors import DecodeError, SynclineError, UnavailableError
from syncline.core.limits import SECOND
from syncline.core.ports import Ground, RecordQuery
from syncline.core.record import Incoming
from syncline.core.verdict import Reason, Verdict
from syncline.formats.records import iso_time
from syncline.networks.host import Host, PeerEvent
from syncline.protocols.sds.bloom import IDS_MAX, Bloom
from syncline.protocols.sds.rules import PROTOCOL, kept, parse_time, topic_of
from syncline.protocols.sds.service.asking import Asking, asking
from syncline.protocols.sds.service.taken import News
from syncline.protocols.sds.wire import Held, Sync, SyncResponse

log = structlog.get_logger()
ROUNDS_MAX: Final = 8
MARGIN: Final = 600 * SECOND  # clocks differ, and a peer commits in another order than it receives
FULL_SECONDS: Final = 3_600.0
TIMEOUT: Final = 30.0
RUN_SECONDS: Final = 1_800.0
TURN_SECONDS: Final = 60.0  # for one peer, before the others get their turn; what came is kept, and not sent again
USELESS_MAX: Final = 10_000  # records of one round that are neither new nor good, after which nothing more is believed
REMEMBERED_PEERS: Final = 1_000


class Caught(msgspec.Struct, frozen=True, kw_only=True):
    """What catching up with a peer brought."""

    peer: str
    rounds: int
    records: int  # that came
    accepted: int  # that were new and good
    bytes: int  # received in all


class _Followed(msgspec.Struct, frozen=True):
    """How far a peer was followed, by its own clock: up to the run before the last, and up to the last."""

    before: int
    last: int
    full_at: float


class CatchUp:
    """Catches up with one peer after another."""

    def __init__(self, ground: Ground, host: Host, news: News, *, network: str, schemas: frozenset[str]) -> None:
        self._ground = ground
        self._host = host
        self._news = news
        self._network = network
        self._schemas = schemas
        self._round = 0  # over all peers, so that filters keep changing
        self._followed: OrderedDict[str, _Followed] = OrderedDict()
        self._arrived: set[str] = {peer.peer for peer in host.peers()}
        self.failed = 0

    def met(self, event: PeerEvent) -> None:
        """A peer came or went."""
        if event.connected:
            self._arrived.add(event.peer)
        else:
            self._arrived.discard(event.peer)

    async def keep_up(self, seconds: float) -> None:
        """Catch up with every connected peer every so often, for ever; with new ones soon after they came."""
        waited = 0.0
        while True:
            due = self._arrived if waited < seconds else {peer.peer for peer in self._host.peers()}
            waited = waited if waited < seconds else 0.0
            self._arrived = set()
            for peer in sorted(due):
                await self._turn(peer)
            pause = min(1.0, seconds)
            await anyio.sleep(pause)
            waited += pause

    async def _turn(self, peer: str) -> None:
        """Catch up with one peer for a while. One that goes on and on is asked again when the others have had their turn."""
        try:
            with anyio.move_on_after(TURN_SECONDS) as turn:
                await self.run(peer)
        except SynclineError as error:
            self.failed += 1
            log.info("sds_sync_failed", peer=peer, error=str(error))
        if turn.cancelled_caught and any(each.peer == peer for each in self._host.peers()):
            self._arrived.add(peer)

    async def run(self, peer: str, *, thorough: bool = False) -> Caught:
        """Rounds with one peer until one brings nothing new. When `thorough`: everything, until two in a row bring nothing,
        because one filter may hide by mistake just what is still missing."""
        now = self._ground.clock.monotonic()
        known = self._followed.get(peer, _Followed(0, 0, now))
        is_full = thorough or known.last == 0 or now - known.full_at >= FULL_SECONDS
        since = 0 if is_full else max(known.before - MARGIN, 0)
        try:
            with anyio.fail_after(RUN_SECONDS):
                caught, newest = await self._rounds(peer, since, quiet=2 if thorough else 1)
        except TimeoutError:
            raise UnavailableError("the peer did not come to an end", about=peer) from None
        newest = max(known.last, min(newest, self._ground.clock.now()))  # a peer may say any time; our own bounds it
        self._followed[peer] = _Followed(known.last, newest, now if is_full else known.full_at)
        self._followed.move_to_end(peer)
        if len(self._followed) > REMEMBERED_PEERS:
            self._followed.popitem(last=False)
        return caught

    async def _rounds(self, peer: str, since: int, *, quiet: int) -> tuple[Caught, int]:
        """What came, and when the peer received the latest of it. Ends with so many rounds that bring nothing new."""
        records = accepted = rounds = newest = in_vain = 0
        async with asking(self._host, peer, self._schemas, self._ground.clock, timeout=TIMEOUT) as talk:
            while rounds < ROUNDS_MAX and in_vain < quiet:
                came, new, latest = await self._one(talk, peer, since)
                rounds, records, accepted = rounds + 1, records + came, accepted + new
                newest, in_vain = max(newest, latest), 0 if new else in_vain + 1
            return Caught(peer=peer, rounds=rounds, records=records, accepted=accepted, bytes=talk.received), newest

    async def _one(self, talk: Asking, peer: str, since: int) -> tuple[int, int, int]:
        """One round: how many records came, how many were new, and when the peer received the latest of them."""
        self._round += 1
        ids, covered = await self._held(since)
        bloom, start = Bloom.of(ids, self._round), max(since, covered)
        name = f"sync-{self._round}"
        request = Sync(
            sync_id=name,
            schemas=tuple(sorted(self._schemas)),
            since=iso_time(start) if start else "",
            bloom_filter=bloom.bits,
            bloom_hash_count=bloom.hashes,
        )
        came = new = latest = 0
        await talk.ask(talk.session.sync(request))
        while True:
            part = await talk.reply(name)
            assert isinstance(part.message, SyncResponse)
            records = part.message.records
            came += len(records)
            new += await self._keep(peer, records)
            latest = max([latest, *(_time(each.received_at) for each in records)])
            if part.last:
                return came, new, latest
            if came - new > USELESS_MAX or not records:
                self._host.blame(peer)
                raise DecodeError("the peer sends what nobody asked for", reason=Reason.INVALID_FIELD, about=peer)

    async def _keep(self, peer: str, records: tuple[Held, ...]) -> int:
        if not records:
            return 0
        now = self._ground.clock.now()
        incoming = [
            Incoming(
                protocol=PROTOCOL,
                topic=topic_of(self._network, each.schema),
                raw=kept(each),
                peer=peer,
                received_at=now,
            )
            for each in records
        ]
        receipts = await self._ground.sink.receive(incoming)
        self._news.tell(receipts)
        faults = sum(Verdict(each.arrival.verdict, each.arrival.reason).blames_sender for each in receipts)
        if faults:
            self._host.blame(peer, faults)
        return sum(receipt.accepted for receipt in receipts)

    async def _held(self, since: int) -> tuple[list[bytes], int]:
        """The newest ids we hold, as many as a filter can tell, and from when on they are all we hold."""
        held: deque[tuple[bytes, int]] = deque(maxlen=IDS_MAX)
        query = RecordQuery(
            protocol=PROTOCOL,
            verdict="accept",
            received_from=max(since - MARGIN, 0) or None,
            limit=10 * limits.SDS_SCAN_PAGE,
            raw_bytes=limits.SDS_SCAN_BYTES,
        )
        total = 0
        while True:
            page = await anyio.to_thread.run_sync(self._ground.records.read, query)
            held.extend((record.id, record.received_at) for record in page)
            total += len(page)
            if not query.cuts_off(page):
                break
            query = msgspec.structs.replace(query, after=page[-1].lsn)
        covered = 0 if total <= IDS_MAX else held[0][1] + MARGIN
        return [name for name, _ in held], covered


def _time(text: str) -> int:
    try:
        return max(parse_time(text, "received_at"), 0)
    except DecodeError:
        return 0
