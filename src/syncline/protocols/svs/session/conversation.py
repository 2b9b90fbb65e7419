"""A member's whole conversation in a group, sans-I/O: sync, belief, fetching and announcing, as events in and actions out.

The driver sends what it is told, judges packets and keeps time. Publications are made and kept before they are announced
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from syncline.core.limits import (
    SVS_CROWD,
    SVS_JUMP,
    SVS_NODES,
    SVS_OWN_JUMP,
    SVS_PIGGYBACK_BYTES,
    SVS_SEQ_MAX,
    SVS_VECTOR_BYTES,
)
from syncline.formats.ndn.names import Name
from syncline.protocols.svs.rules.judge import Judged
from syncline.protocols.svs.session.events import Action, Announce, Filter, Options
from syncline.protocols.svs.session.fetching import Fetching
from syncline.protocols.svs.session.jobs import Feed, Rank
from syncline.protocols.svs.session.subscriptions import Subscriptions, Topic
from syncline.protocols.svs.session.sync import Sync
from syncline.protocols.svs.wire.mapping import MappingData, MappingEntry, encode_entry, encode_mapping
from syncline.protocols.svs.wire.vector import encode_vector


class Session:
    """One member of one group."""

    def __init__(self, group: Name, options: Options, random: Random, now: float, wall_now: int) -> None:
        self._options = options
        self._joined = now
        self._actions: list[Action] = []
        self._own: dict[Name, int] = {}  # our nodes and their newest numbers
        self._news: dict[Name, list[MappingEntry]] = {}  # published and not announced yet
        self._subscriptions = Subscriptions()
        self._sync = Sync(options, random, now)
        self._sync.tells, self._sync.may_be_cut = self._tells, self._may_be_cut
        self._fetching = Fetching(
            group, options, self._subscriptions, random, self._actions, wall_now - now * 1_000_000
        )
        self.disbelieved = 0  # claims in vectors that were not taken over

    # our own nodes

    def join(self, node: Name, last: int) -> None:
        """Speak for a node whose newest publication is number `last`."""
        self._own[node] = last
        if last:
            self._sync.set(node, last)

    def last(self, node: Name) -> int:
        """The newest number of a node of ours: the next publication has the one after it."""
        return self._own[node]

    def published(self, node: Name, entry: MappingEntry, now: float) -> None:
        """Announce a publication that has been made and kept."""
        # While it was being kept, the group may have told us of a higher number: there is no way back from that.
        self._own[node] = max(entry.seq, self._own[node])
        self._news.setdefault(node, []).append(entry)
        self._sync.publish(node, self._own[node], now)

    # what others say

    def resume(self, node: Name, settled: int) -> None:
        """Go on after the publications of a node that an earlier run has settled."""
        if settled and node not in self._own:
            feed = self._fetching.feeds[node] = Feed(node, Rank.PROVEN, settled)
            feed.proven = settled
            self._sync.set(node, settled)

    def heard(self, vector: Mapping[Name, int], mapping: MappingData | None, now: float) -> None:
        """Take in a validated sync Interest."""
        believed: dict[Name, int] = {}
        old = self._options.from_now and now < self._joined + self._options.settle
        news = [(node, seq) for node, seq in vector.items() if seq > self._sync.vector.get(node, 0)]
        unknown = sum(node not in self._fetching.feeds and node not in self._own for node, _ in news)
        for node, seq in news:
            if node in self._own:
                self._hear_of_ourselves(node, seq)
            elif self._believes(node, seq, Rank.NEW if unknown <= SVS_CROWD else Rank.CROWD, now, old=old):
                believed[node] = seq
            else:
                self.disbelieved += 1
        updates = self._sync.receive(vector, believed, now)
        if mapping is not None and mapping.node not in self._own:
            feed = self._fetching.feeds.get(mapping.node)
            if feed is not None:
                self._fetching.rank(feed, Rank.NEW)
                for entry in mapping.entries:
                    feed.hint(entry)
        for update in updates:
            if update.node not in self._own:
                feed = self._fetching.feeds[update.node]
                self._fetching.update(feed, update.low, update.high, old=old)
        self._fetching.pump(now)

    def _take_proofs(self, now: float) -> None:
        """Claims that have been proven count at once: nobody may repeat them for half a minute."""
        for claim in self._fetching.take_proofs():
            update = self._sync.learn(claim.feed.node, claim.seq, now)
            if update is not None:
                self._fetching.update(claim.feed, update.low, update.high, old=claim.old)
                self._fetching.pump(now)

    def _hear_of_ourselves(self, node: Name, seq: int) -> None:
        """A higher number of our own means that we forgot it: never use it again."""
        own = self._own[node]
        if own < seq <= min(own + SVS_OWN_JUMP, SVS_SEQ_MAX):
            self._own[node] = seq
            self._sync.set(node, seq)
        elif seq > own:
            self.disbelieved += 1

    def _believes(self, node: Name, seq: int, rank: Rank, now: float, *, old: bool) -> bool:
        """Whether a claim is near enough to what was seen of the node; if not, it must be proven first."""
        fetching = self._fetching
        feed = fetching.feeds.get(node)
        if seq > SVS_SEQ_MAX or (feed is None and not self._has_room(rank)):
            return False
        if feed is None:
            feed = fetching.feeds[node] = Feed(node, rank)
        wanted = fetching.wants(node)
        seen = feed.proven if wanted else self._sync.vector.get(node, 0)
        if seq <= seen + SVS_JUMP:
            return True
        if wanted and feed.doubted_until <= now:
            fetching.prove(feed, seq, old=old)
        return False

    def _has_room(self, rank: Rank) -> bool:
        """Whether one more node can be kept track of; one that failed and never answered makes room.

        Crowds fill at most half of the table.
        """
        feeds = self._fetching.feeds
        room = SVS_NODES if rank is Rank.NEW else SVS_NODES // 2
        if len(feeds) < room:
            return True
        for feed in feeds.values():
            if feed.failed and feed.rank is not Rank.PROVEN and not feed.open and feed.probe is None:
                self._fetching.remove(feed)
                self._sync.forget(feed.node)
                return len(feeds) < room
        return False

    def answered(self, token: int, wire: bytes | None, face: int, now: float) -> None:
        self._fetching.answered(token, wire, face, now)

    def judged(self, token: int, judged: Judged, now: float) -> None:
        self._fetching.judged(token, judged, now)
        self._take_proofs(now)

    # the application

    def subscribe(self, prefix: Name, filter: Filter | None = None) -> int:
        return self._subscriptions.add_topic(Topic(prefix, filter))

    def subscribe_to_producer(self, prefix: Name, filter: Filter | None = None) -> int:
        return self._subscriptions.add_producer(Topic(prefix, filter))

    def unsubscribe(self, number: int) -> None:
        self._subscriptions.remove(number)

    def delivered(self, now: float) -> None:
        """The application has taken one more publication."""
        self._fetching.delivered(now)

    # time and actions

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        retry = self._fetching.deadline
        return self._sync.deadline if retry is None else min(self._sync.deadline, retry)

    def tick(self, now: float) -> None:
        if self._sync.tick(now):
            self._announce()
        self._fetching.pump(now)

    def take(self) -> list[Action]:
        """What is to be done now."""
        actions = self._actions[:]
        self._actions.clear()
        return actions

    def _announce(self) -> None:
        """SVS-PS: mapping data goes into every sync Interest that follows from new publications."""
        news, self._news = self._news, {}
        told = [encode_mapping(node, _newest_that_fit(entries)) for node, entries in news.items()]
        for mapping in told or [b""]:
            self._actions.append(
                Announce(encode_vector(self._fitting_vector(SVS_VECTOR_BYTES - len(mapping))) + mapping)
            )

    def _fitting_vector(self, room: int) -> dict[Name, int]:
        """Our vector, or as much of it as one Interest takes: our own nodes, then those that are real, then the rest."""
        vector = self._sync.vector
        order = [node for node in self._sync.recent_first() if self._tells(node)]
        order.sort(key=lambda node: (node not in self._own, self._rank(node)))
        found: dict[Name, int] = {}
        for node in order:
            room -= _room_for(node)
            if room < 0:
                break
            found[node] = vector[node]
        return found

    def _rank(self, node: Name) -> Rank:
        feed = self._fetching.feeds.get(node)
        return Rank.PROVEN if feed is None else feed.rank

    def _tells(self, node: Name) -> bool:
        """Crowds that could not be proven yet are not passed on."""
        return self._rank(node) is not Rank.CROWD or not self._fetching.wants(node)

    def _may_be_cut(self, vector: Mapping[Name, int]) -> bool:
        """Whether a vector may lack nodes because there are too many for an Interest: of ours there are, and it is long."""
        return (
            sum(map(_room_for, self._sync.vector)) > SVS_VECTOR_BYTES
            and sum(map(_room_for, vector)) > SVS_VECTOR_BYTES // 4
        )

    # for those who watch

    @property
    def vector(self) -> Mapping[Name, int]:
        return self._sync.vector

    def settled(self) -> dict[Name, int]:
        """Of each node, up to which number nothing is left to do."""
        return {node: feed.settled for node, feed in self._fetching.feeds.items() if feed.started and feed.proven}

    def statistics(self) -> dict[str, int]:
        fetching = self._fetching
        return {
            "nodes": len(fetching.feeds),
            "fetching": fetching.jobs,
            "reassembly_bytes": fetching.bytes,
            "undelivered": fetching.undelivered,
            "probes": fetching.probes,
            "disbelieved": self.disbelieved,
            "subscriptions": len(self._subscriptions),
        }


def _room_for(node: Name) -> int:
    """Bytes an entry takes in a vector, at most."""
    return len(node) + 16


def _newest_that_fit(entries: list[MappingEntry]) -> list[MappingEntry]:
    room = SVS_PIGGYBACK_BYTES
    found: list[MappingEntry] = []
    for entry in reversed(entries):
        room -= len(encode_entry(entry))
        if room < 0:
            break
        found.append(entry)
    return found[::-1]
