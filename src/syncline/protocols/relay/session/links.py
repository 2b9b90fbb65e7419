"""Links to other servers: interest is told, messages are forwarded along it, and each is confirmed when it is on disk.

A link keeps, per topic, the position up to which the neighbour has everything. So a topic that becomes wanted there, a
lost connection and a detour after a server's death are all the same case: send what is cached after that position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Final

from syncline.core.clock import Clock
from syncline.core.errors import DecodeError, RefusedError
from syncline.core.limits import RELAY_LINK_WINDOW_BYTES, RELAY_LINKS, RELAY_STRIKES
from syncline.core.ports import Receipt
from syncline.core.verdict import Outcome, Reason
from syncline.protocols.relay.session.cache import Cache, Entry
from syncline.protocols.relay.session.handshake import Handshake, Neighbour
from syncline.protocols.relay.session.link import Link, Memory
from syncline.protocols.relay.session.outbox import Load, Outbox
from syncline.protocols.relay.session.publishing import Draft, Publishing
from syncline.protocols.relay.session.quotas import Quotas
from syncline.protocols.relay.session.routing import Routing
from syncline.protocols.relay.wire.links import (
    Ack,
    Control,
    Interest,
    Ping,
    Pong,
    Resync,
    decode_control,
    decode_parcel,
    encode_control,
)

PING_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 30.0
SHAKE_SECONDS: Final = 10.0
REFUSED: Final = 4003  # close codes of links
REPLACED: Final = 4001
SILENT: Final = 4002


class Links:
    """All links of one server."""

    def __init__(
        self,
        routing: Routing,
        cache: Cache,
        publishing: Publishing,
        outbox: Outbox,
        quotas: Quotas,
        clock: Clock,
    ) -> None:
        self._routing = routing
        self._cache = cache
        self._publishing = publishing
        self._outbox = outbox
        self._quotas = quotas
        self._clock = clock
        self._all: dict[Link, None] = {}  # open or shaking hands
        self._open: dict[str, Link] = {}  # by the neighbour's key
        self._memories: dict[str, Memory] = {}
        self._added: dict[str, None] = {}
        self._dropped: dict[str, None] = {}
        self._links_changed = False
        self.forwarded = 0
        self.received = 0

    # -- opening and closing --------------------------------------------------------------------------------------

    def begin(self, handshake: Handshake, *, dialed: bool) -> Link:
        """A WebSocket to a server, or from one, is there."""
        link = Link(self._outbox, handshake, dialed=dialed, now=self._clock.monotonic())
        strangers = [each for each in self._all if each.neighbour is None and each.end is None]
        if len(strangers) >= RELAY_LINKS:  # they must not keep neighbours out
            strangers[0].close(REFUSED, "others are waiting")
        self._all[link] = None
        link.text(handshake.open())
        return link

    def end(self, link: Link) -> None:
        """The WebSocket is gone."""
        self._all.pop(link, None)
        if link.neighbour is not None and self._open.get(link.peer) is link:
            del self._open[link.peer]
            self._links_changed = True

    @property
    def count(self) -> int:
        return len(self._open)

    def open_links(self) -> Iterable[Link]:
        return self._open.values()

    def is_open(self, keys: Iterable[str]) -> bool:
        return any(key in self._open for key in keys)

    def _opened(self, link: Link, neighbour: Neighbour) -> None:
        link.neighbour = neighbour
        former = self._open.get(neighbour.key)
        if former is None and len(self._open) >= RELAY_LINKS:
            raise RefusedError(f"at most {RELAY_LINKS} links", reason=Reason.QUOTA_EXCEEDED)
        if former is not None and not self._prevails(link, former):
            link.close(REPLACED, "there is a link already")
            return
        if former is not None:
            former.close(REPLACED, "there is a newer link")
        self._open[neighbour.key] = link
        memory = self._memories.get(neighbour.key)
        if memory is None or memory.epoch != neighbour.epoch:
            memory = self._memories[neighbour.key] = Memory(neighbour.epoch)
        link.sent = dict(memory.confirmed)
        self._links_changed = True
        for server in list(self._routing.servers):
            if server.name != neighbour.key:
                self._tell([link], self._routing.snapshot(server.name))

    def _prevails(self, link: Link, former: Link) -> bool:
        """Of two links between the same servers both keep the one dialed by the lesser name, or the newer."""
        if link.dialed == former.dialed:
            return True
        return link.dialed == (self._routing.me.name < link.peer)

    # -- what comes in --------------------------------------------------------------------------------------------

    def receive(self, link: Link, payload: bytes, is_text: bool) -> None:
        """One message of a link. What breaks the rules ends it."""
        link.heard_at = self._clock.monotonic()
        try:
            if not is_text:
                self._parcel(link, payload)
            elif link.neighbour is None:
                self._shake(link, decode_control(payload))
            else:
                self._control(link, decode_control(payload))
        except (RefusedError, DecodeError) as error:
            link.close(REFUSED, f"{error.reason.value}: {error.message}"[:120])

    def _shake(self, link: Link, told: Control) -> None:
        answer = link.handshake.receive(told)
        if isinstance(answer, Neighbour):
            self._opened(link, answer)
        else:
            link.text(answer)

    def _parcel(self, link: Link, payload: bytes) -> None:
        if link.neighbour is None:
            raise DecodeError("messages come after the handshake")
        draft = self._publishing.parcel(*decode_parcel(payload), link.peer)
        self.received += 1
        self._publishing.hand_over([draft], _Parcel(self._publishing, link, draft))

    def _control(self, link: Link, told: Control) -> None:
        if isinstance(told, Interest):
            self._learn(link, told)
        elif isinstance(told, Ack):
            self._confirm(link, told.count)
        elif isinstance(told, Resync):
            self._tell([link], self._routing.snapshot(told.server))
        elif isinstance(told, Ping):
            link.text(encode_control(Pong(told.number)))
        elif not isinstance(told, Pong):
            raise DecodeError("the handshake is over")

    def _learn(self, link: Link, told: Interest) -> None:
        learned = self._routing.learn(told, link.peer)
        if learned.reborn:
            self._tell(self._open.values(), self._routing.snapshot(self._routing.me.name))
        if learned.has_gap:
            link.text(encode_control(Resync(told.server)))
        if learned.news:
            self._tell([other for other in self._open.values() if other is not link], learned.news)
            if learned.links_changed:
                self._find_ways()
            hop = self._routing.hops.get(told.server)
            if hop is not None:
                self._catch_up(hop, learned.added)

    def _tell(self, links: Iterable[Link], news: Sequence[Interest]) -> None:
        """Pass interest on; nobody is told of itself."""
        for link in links:
            for each in news:
                if each.server != link.peer:
                    link.text(encode_control(each))

    # -- what goes out --------------------------------------------------------------------------------------------

    def forward(self, entry: Entry, raw: bytes) -> None:
        """A message has just become live: on its way along the interest in its topic."""
        for name in self._routing.ways(entry.topic):
            link = self._open.get(name)
            if link is None or entry.source == name:
                continue
            if entry.topic in link.behind or not self._has_room(link):
                link.behind[entry.topic] = None
            else:
                self._send(link, entry, raw)

    def _send(self, link: Link, entry: Entry, raw: bytes) -> None:
        link.forward(entry, raw)
        entry.forwarded = True
        self.forwarded += 1

    def _has_room(self, link: Link) -> bool:
        return link.unconfirmed < self._quotas.link_window and link.unconfirmed_bytes < RELAY_LINK_WINDOW_BYTES

    def _confirm(self, link: Link, count: int) -> None:
        confirmed = self._memories[link.peer].confirmed
        for topic, position in link.confirm(count):
            if topic in link.sent:  # else it has expired meanwhile
                confirmed[topic] = position
        self._refill(link)

    def interest(self, topic: str, wanted: bool) -> None:
        """A topic has got its first subscriber here, or lost its last."""
        one, other = (self._added, self._dropped) if wanted else (self._dropped, self._added)
        if topic in other:
            del other[topic]
        else:
            one[topic] = None

    def settle(self) -> None:
        """Tell the neighbours what has changed since the last time. Call after each batch of events."""
        if self._links_changed or self._added or self._dropped:
            links = frozenset(self._open)
            news = self._routing.own_change(self._added, self._dropped, links)
            self._added, self._dropped = {}, {}
            self._tell(self._open.values(), news)
        if self._links_changed:
            self._links_changed = False
            self._find_ways()
        for link in self._open.values():
            if link.received:
                link.text(encode_control(Ack(link.received)))
                link.received = 0

    def _find_ways(self) -> None:
        for name, (_, hop) in self._routing.find_ways(self._clock.monotonic()).items():
            server = self._routing.server(name)
            if hop is not None and server is not None:
                self._catch_up(hop, server.topics)

    def _catch_up(self, hop: str, topics: Set[str]) -> None:
        """Send this neighbour what is cached of these topics and it does not have."""
        link = self._open.get(hop)
        if link is not None:
            link.behind.update(dict.fromkeys(self._cache.topics_among(topics)))
            self._refill(link)

    def _refill(self, link: Link) -> None:
        if link.loading or not link.behind or not self._has_room(link):
            return
        room = self._quotas.link_window - link.unconfirmed
        wanted: list[Entry] = []
        for topic in list(link.behind):
            found = self._missing(link, topic, room - len(wanted))
            if not found:
                del link.behind[topic]
            wanted += found
            if len(wanted) >= room:
                break
        if wanted:
            link.loading = True
            self._outbox.loads.append(Load(wanted, lambda bodies: self._loaded(link, wanted, bodies)))

    def _missing(self, link: Link, topic: str, room: int) -> list[Entry]:
        mailbox = self._cache.mailbox(topic) if link.peer in self._routing.ways(topic) else None
        found: list[Entry] = []
        for entry in mailbox.after(link.sent.get(topic, 0)) if mailbox is not None else ():
            if len(found) == room:
                break
            if entry.source != link.peer:
                found.append(entry)
        return found

    def _loaded(self, link: Link, entries: Sequence[Entry], bodies: Sequence[bytes | None]) -> None:
        link.loading = False
        now = self._clock.now()
        for entry, body in zip(entries, bodies, strict=True):
            if (
                link.end is not None
                or entry.topic not in link.behind
                or entry.position <= link.sent.get(entry.topic, 0)
            ):
                continue
            if body is None or entry.expires_at <= now:
                link.sent[entry.topic] = entry.position
            else:
                self._send(link, entry, body)
        self._refill(link)

    # -- time -----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Ask silent neighbours whether they are there, and end links to those that are not."""
        now = self._clock.monotonic()
        for link in list(self._all):
            patience = SILENT_SECONDS if link.neighbour is not None else SHAKE_SECONDS
            if now - link.heard_at >= patience:
                link.close(SILENT, f"silent for {patience:.0f} s")
            elif now - max(link.heard_at, link.pinged_at) >= PING_SECONDS and link.neighbour is not None:
                link.pinged_at = now
                link.text(encode_control(Ping(int(now * 1_000))))
        self._routing.forget_lost(now)

    def emptied(self, topics: Iterable[str]) -> None:
        """These topics hold nothing any more, so nothing needs to be known of who has it."""
        for topic in topics:
            for link in self._open.values():
                link.sent.pop(topic, None)
                link.behind.pop(topic, None)
            for memory in self._memories.values():
                memory.confirmed.pop(topic, None)


class _Parcel:
    """After the commit of a parcel the neighbour may forget about it; after a failure it must send it again."""

    __slots__ = ("_draft", "_link", "_publishing")

    def __init__(self, publishing: Publishing, link: Link, draft: Draft) -> None:
        self._publishing = publishing
        self._link = link
        self._draft = draft

    def done(self, receipts: Sequence[Receipt]) -> None:
        [receipt] = receipts
        self._publishing.settle(self._draft, receipt)
        self._link.received += 1
        arrival = receipt.arrival
        if arrival.verdict is Outcome.REJECT and arrival.reason is not None and arrival.reason.about == "content":
            self._link.strikes += 1  # that there is no room here is not the neighbour's fault
            if self._link.strikes > RELAY_STRIKES:
                self._link.close(REFUSED, f"more than {RELAY_STRIKES} bad messages")

    def failed(self, error: Exception) -> None:
        self._publishing.withdraw([self._draft])
        self._link.close(1011, "a message could not be kept")
