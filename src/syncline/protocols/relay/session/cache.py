"""The index of cached messages: which live where, in which order, and how much room each topic and client takes.

Bodies are not here: they are in the journal, and an entry leads to them. An entry is admitted before its commit, so that
repeats and quotas count what is on its way, and becomes live with it. Positions grow with every admission and are never
reused, so a single number says how far a reader has come.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Set
from heapq import heappop, heappush

import msgspec

from syncline.protocols.relay.rules.messages import message_id
from syncline.protocols.relay.session.quotas import Quotas


class Entry(msgspec.Struct, eq=False, gc=False):
    """One cached message. There may be a million: the garbage collector need not look at them."""

    position: int
    topic: str
    digest: bytes
    size: int
    expires_at: int
    source: str  # the client that published it, or the server that handed it to us
    live: bool = False  # committed, and so visible to readers
    failed: bool = False  # its commit failed
    forwarded: bool = False

    @property
    def id(self) -> bytes:
        return message_id(self.topic, self.digest)


class Mailbox:
    """The messages of one topic, in order."""

    __slots__ = ("_by_digest", "_entries", "_positions", "bytes", "find")

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._entries: list[Entry] = []  # at the same places
        self._by_digest: dict[bytes, Entry] = {}
        self.find: Callable[[bytes], Entry | None] = self._by_digest.get  # the message of this hash
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._positions)

    def after(self, position: int) -> Iterator[Entry]:
        """Live entries later than `position`, oldest first. What is not committed yet ends the row."""
        for index in range(bisect_right(self._positions, position), len(self._positions)):
            entry = self._entries[index]
            if not entry.live:
                return
            yield entry

    def holds(self, entry: Entry) -> bool:
        index = bisect_left(self._positions, entry.position)
        return index < len(self._entries) and self._entries[index] is entry

    def among(self, positions: Iterable[int]) -> list[int]:
        """Those of these positions at which there still is a message."""
        mine = set(self._positions)
        return [position for position in positions if position in mine]

    def is_next(self, position: int, after: int) -> bool:
        """Whether nothing lies between the two."""
        index = bisect_right(self._positions, after)
        return index < len(self._positions) and self._positions[index] == position

    def add(self, entry: Entry) -> None:
        self._positions.append(entry.position)
        self._entries.append(entry)
        self._by_digest[entry.digest] = entry
        self.bytes += entry.size

    def remove(self, entry: Entry) -> None:
        index = bisect_left(self._positions, entry.position)
        del self._positions[index]
        del self._entries[index]
        if self._by_digest.get(entry.digest) is entry:
            del self._by_digest[entry.digest]
        self.bytes -= entry.size


class Cache:
    """All mailboxes of a server."""

    def __init__(self, quotas: Quotas, position: int = 0) -> None:
        self._quotas = quotas
        self._mailboxes: dict[str, Mailbox] = {}
        self.mailbox: Callable[[str], Mailbox | None] = self._mailboxes.get  # that of this topic
        self._expiry: list[tuple[int, int, Entry]] = []
        self._used: dict[str, int] = {}  # bytes per source
        self.position = position  # of the newest entry ever admitted
        self.count = 0
        self.bytes = 0

    def topics_among(self, topics: Set[str]) -> list[str]:
        """Those of these topics that hold something."""
        if len(topics) <= len(self._mailboxes):
            return sorted(topic for topic in topics if topic in self._mailboxes)
        return [topic for topic in self._mailboxes if topic in topics]

    def __len__(self) -> int:
        return self.count

    def entries(self) -> Iterator[Entry]:
        """Everything live, in no order."""
        return (entry for mailbox in self._mailboxes.values() for entry in mailbox.after(0))

    def full(self, mailbox: Mailbox | None, size: int, source: str, *, is_client: bool) -> str:
        """Which cap another message in this mailbox would break; empty if none."""
        quotas = self._quotas
        if self.count >= quotas.cached_messages:
            return f"this server caches {quotas.cached_messages} messages"
        if mailbox is not None:
            if len(mailbox) >= quotas.topic_messages:
                return f"a topic holds {quotas.topic_messages} messages"
            if mailbox.bytes + size > quotas.topic_bytes:
                return f"a topic holds {quotas.topic_bytes} bytes"
        share = quotas.client_bytes if is_client else quotas.link_bytes
        if self._used.get(source, 0) + size > share:
            return f"a {'client' if is_client else 'server'} may have {share} bytes cached"
        return ""

    def admit(
        self, mailbox: Mailbox | None, topic: str, digest: bytes, size: int, expires_at: int, source: str
    ) -> Entry:
        """Take a message into the topic's mailbox, not live yet; an expired one of the same hash gives way."""
        self.position = position = self.position + 1
        entry = Entry(position, topic, digest, size, expires_at, source)
        self._add(entry, mailbox)
        return entry

    def restore(self, entry: Entry) -> None:
        """Take in what a former run had committed. Entries come in the order of their positions."""
        mailbox = self._mailboxes.get(entry.topic)
        if mailbox is None or mailbox.find(entry.digest) is None:
            entry.live = True
            self._add(entry, mailbox)
            self.position = max(self.position, entry.position)

    def _add(self, entry: Entry, mailbox: Mailbox | None) -> None:
        source, size = entry.source, entry.size
        if mailbox is None:
            mailbox = self._mailboxes[entry.topic] = Mailbox()
        elif (former := mailbox.find(entry.digest)) is not None:
            self.discard(former)
            mailbox = self._mailboxes.setdefault(entry.topic, mailbox)
        mailbox.add(entry)
        heappush(self._expiry, (entry.expires_at, entry.position, entry))
        self._used[source] = self._used.get(source, 0) + size
        self.count += 1
        self.bytes += size

    def discard(self, entry: Entry) -> None:
        """Forget an entry that failed to be committed, or whose time has passed."""
        mailbox = self._mailboxes.get(entry.topic)
        if mailbox is None or not mailbox.holds(entry):
            return
        mailbox.remove(entry)
        if not len(mailbox):
            del self._mailboxes[entry.topic]
        self._used[entry.source] -= entry.size
        if self._used[entry.source] <= 0:
            del self._used[entry.source]
        self.count -= 1
        self.bytes -= entry.size
        entry.live = False

    def expire(self, now: int) -> list[str]:
        """Forget what has expired; returns the topics that are empty now."""
        emptied = []
        while self._expiry and self._expiry[0][0] <= now:
            entry = heappop(self._expiry)[2]
            self.discard(entry)
            if entry.topic not in self._mailboxes:
                emptied.append(entry.topic)
        return emptied
