"""Who wants which topic, and through which neighbour it is reached.

Every server tells its own topics and neighbours, numbered; servers in between pass the word on, never back to where it
came from. From the neighbours each server knows the shortest way to every other, so interest in a loop cannot keep itself
alive, and a message takes another way as soon as a server on the old one is gone. Nothing here sends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from typing import Final

import msgspec

from syncline.core.errors import RefusedError
from syncline.core.limits import RELAY_INTEREST_PART
from syncline.core.verdict import Reason
from syncline.protocols.relay.rules.messages import is_topic
from syncline.protocols.relay.session.quotas import Quotas
from syncline.protocols.relay.wire.links import Interest

FORGET_SECONDS: Final = 600.0  # how long the wishes of a server that cannot be reached are kept


class Server:
    """What is known of one server of the federation."""

    __slots__ = ("epoch", "links", "lost_at", "name", "parts", "seq", "topics", "via")

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.seq = -1
        self.topics: set[str] = set()
        self.links: frozenset[str] = frozenset()
        self.via = ""  # the neighbour that told us last
        self.lost_at: float | None = None  # since when there is no way to it
        self.parts: dict[str, list[Interest]] = {}  # by neighbour: the parts of a large change that is coming in


class Learned(msgspec.Struct, frozen=True):
    """What an interest message changed."""

    added: Set[str] = frozenset()
    dropped: Set[str] = frozenset()
    news: Sequence[Interest] = ()  # what to pass on
    has_gap: bool = False  # it does not fit what we know: ask for everything
    links_changed: bool = False
    reborn: bool = False  # others remember a later us: tell everything anew


NOTHING: Final = Learned()


class Routing:
    """One server's picture of the federation."""

    def __init__(self, name: str, epoch: int, quotas: Quotas) -> None:
        self.me = Server(name)
        self.me.epoch = epoch
        self.me.seq = 0
        self._quotas = quotas
        self._servers: dict[str, Server] = {name: self.me}
        self._wanting: dict[str, dict[str, None]] = {}  # topic → other servers that want it
        self._told_by: dict[str, int] = {}  # neighbour → topics believed by way of it
        self.hops: dict[str, str] = {}  # server → neighbour to reach it through

    @property
    def servers(self) -> Iterable[Server]:
        return self._servers.values()

    def server(self, name: str) -> Server | None:
        return self._servers.get(name)

    def ways(self, topic: str) -> Collection[str]:
        """The neighbours to hand a message on this topic to."""
        wanting = self._wanting.get(topic)
        return {self.hops[name]: None for name in wanting if name in self.hops} if wanting is not None else ()

    def own_change(self, added: Iterable[str], dropped: Iterable[str], links: frozenset[str]) -> list[Interest]:
        """Our own wishes or neighbours have changed: what to tell everybody."""
        mine = self.me
        add, drop = [topic for topic in added if topic not in mine.topics], [t for t in dropped if t in mine.topics]
        mine.topics.difference_update(drop)
        mine.topics.update(add)
        mine.links = links
        mine.seq += 1
        return list(_in_parts(mine, mine.seq - 1, add, drop))

    def snapshot(self, name: str) -> list[Interest]:
        """All that is known of one server."""
        server = self._servers.get(name)
        return list(_in_parts(server, None, sorted(server.topics), [])) if server is not None else []

    def learn(self, told: Interest, via: str) -> Learned:
        """Take in what a neighbour told; raises RefusedError when it goes beyond a cap or is nonsense."""
        _check(told)
        if (told.parts - 1) * RELAY_INTEREST_PART > self._quotas.interest:
            raise _refused(f"a link may bring {self._quotas.interest} topics", Reason.QUOTA_EXCEEDED)
        if told.server == self.me.name:
            return self._about_me(told)
        server = self._servers.get(told.server)
        if server is None:
            if len(self._servers) >= self._quotas.servers:
                raise _refused(f"a federation has at most {self._quotas.servers} servers", Reason.QUOTA_EXCEEDED)
            server = self._servers[told.server] = Server(told.server)
        if (told.epoch, told.seq) <= (server.epoch, server.seq):
            return NOTHING
        if told.base is not None and (told.epoch, told.base) != (server.epoch, server.seq):
            return Learned(has_gap=True)
        parts = server.parts.setdefault(via, [])
        if told.part == 0:
            parts.clear()
        if told.part != len(parts) or (parts and parts[0].seq != told.seq):
            return Learned(has_gap=True)
        parts.append(told)
        if len(parts) < told.parts:
            return NOTHING
        server.parts = {}
        return self._apply(server, parts, via)

    def _about_me(self, told: Interest) -> Learned:
        """Somebody remembers a later us than we do: our clock or journal went back. Begin anew after that."""
        if (told.epoch, told.seq) > (self.me.epoch, self.me.seq):
            self.me.epoch, self.me.seq = told.epoch + 1, 0
            return Learned(reborn=True)
        return NOTHING

    def _apply(self, server: Server, parts: list[Interest], via: str) -> Learned:
        first = parts[0]
        add = {topic for part in parts for topic in part.add}
        drop = {topic for part in parts for topic in part.drop}
        new = add if first.base is None else (server.topics - drop) | add
        self._account(server, via, len(new))
        added, dropped = new - server.topics, server.topics - new
        links = frozenset(first.links)
        learned = Learned(added, dropped, news=parts, links_changed=links != server.links)
        server.epoch, server.seq, server.topics, server.links = first.epoch, first.seq, new, links
        for topic in added:
            self._wanting.setdefault(topic, {})[server.name] = None
        for topic in dropped:
            self._unwant(server.name, topic)
        return learned

    def _account(self, server: Server, via: str, count: int) -> None:
        """Keep the cap on topics believed by way of one neighbour."""
        before = self._told_by.get(via, 0) - (len(server.topics) if server.via == via else 0)
        if before + count > self._quotas.interest:
            raise _refused(f"a link may bring {self._quotas.interest} topics", Reason.QUOTA_EXCEEDED)
        if server.via and server.via != via:
            self._told_by[server.via] = self._told_by.get(server.via, 0) - len(server.topics)
        self._told_by[via] = before + count
        server.via = via

    def _unwant(self, name: str, topic: str) -> None:
        wanting = self._wanting.get(topic)
        if wanting is not None:
            wanting.pop(name, None)
            if not wanting:
                del self._wanting[topic]

    def find_ways(self, now: float) -> dict[str, tuple[str | None, str | None]]:
        """Compute the shortest ways anew; returns the servers whose neighbour changed, with the old and the new."""
        hops = self._shortest()
        for name, server in self._servers.items():
            if name in hops or name == self.me.name:
                server.lost_at = None
            elif server.lost_at is None:
                server.lost_at = now
        before, self.hops = self.hops, hops
        changed = {name for name in before.keys() | hops.keys() if before.get(name) != hops.get(name)}
        return {name: (before.get(name), hops.get(name)) for name in sorted(changed)}

    def _shortest(self) -> dict[str, str]:
        """Breadth first over links that both ends tell of; names break ties, so that everybody agrees."""
        hops: dict[str, str] = {}
        row = deque[str]()
        for name in sorted(self.me.links):  # what we see ourselves needs no second word
            hops[name] = name
            row.append(name)
        while row:
            here = row.popleft()
            server = self._servers.get(here)
            for name in sorted(server.links) if server is not None else ():
                other = self._servers.get(name)
                if name in hops or other is None or other is self.me or here not in other.links:
                    continue
                hops[name] = hops[here]
                row.append(name)
        return hops

    def forget_lost(self, now: float) -> None:
        """Drop servers that have been out of reach for long."""
        for server in [each for each in self._servers.values() if each.lost_at is not None]:
            if server.lost_at is not None and now - server.lost_at > FORGET_SECONDS:
                for topic in server.topics:
                    self._unwant(server.name, topic)
                self._told_by[server.via] = self._told_by.get(server.via, 0) - len(server.topics)
                del self._servers[server.name]


def _in_parts(server: Server, base: int | None, add: list[str], drop: list[str]) -> Iterator[Interest]:
    """One change as messages of bounded size."""
    size = RELAY_INTEREST_PART
    parts = max(1, -(-max(len(add), len(drop)) // size))
    for part in range(parts):
        cut = slice(part * size, (part + 1) * size)
        yield Interest(
            server=server.name,
            epoch=server.epoch,
            seq=server.seq,
            base=base,
            links=sorted(server.links),
            add=add[cut],
            drop=drop[cut],
            part=part,
            parts=parts,
        )


def _check(told: Interest) -> None:
    if told.epoch < 0 or told.seq < 0 or not 0 <= told.part < told.parts or told.parts > 10_000:
        raise _refused("numbers out of range", Reason.MALFORMED)
    if max(len(told.add), len(told.drop)) > RELAY_INTEREST_PART or len(told.links) > RELAY_INTEREST_PART:
        raise _refused("more in one message than is allowed", Reason.TOO_COMPLEX)
    if not all(is_topic(topic) for topic in (*told.add, *told.drop)):
        raise _refused("not a topic", Reason.INVALID_TOPIC)
    if not told.server or max(map(len, (told.server, *told.links))) > 64:
        raise _refused("not a server's name", Reason.INVALID_PUBLISHER)


def _refused(message: str, reason: Reason) -> RefusedError:
    return RefusedError(message, reason=reason)
