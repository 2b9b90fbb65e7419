"""The content store: recent Data to answer from, least recently used first out, bounded in packets and bytes.

Only what was asked for enters, and nothing whose own digest is wrong or that the node's trust rules refuse. An entry that
a face asks for again right after it was served is taken as bad for it and dropped, so a poisoned copy does not stick.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from syncline.core.limits import NDN_CONTENT_BYTES, NDN_CONTENT_PACKETS, NDN_CONTENT_SCAN
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name
from syncline.formats.ndn.packets import Data, Interest
from syncline.formats.ndn.signing import Digest
from syncline.networks.ndn.pending import names_digest

_DIGEST = Digest()
Admission = Callable[[Data], bool | None]  # True: trusted, False: refused, None: nothing known about it


class Cached:
    """One Data."""

    __slots__ = ("data", "face", "fresh_until", "served", "trusted")

    def __init__(self, data: Data, face: int, fresh_until: float, trusted: bool) -> None:
        self.data = data
        self.face = face  # where it came from
        self.fresh_until = fresh_until
        self.trusted = trusted
        self.served: tuple[int, Name] | None = None  # the last face it was served to, and the name asked for


def anything(data: Data) -> None:
    """The admission rule of a forwarder that knows nobody's keys."""
    return


class ContentStore:
    def __init__(self, admit: Admission = anything, packets: int = NDN_CONTENT_PACKETS) -> None:
        self._admit = admit
        self._entries: dict[Name, Cached] = {}  # least recently used first
        self._names: list[Name] = []  # sorted, for prefixes
        self.capacity = packets
        self.bytes = 0
        self.hits = self.misses = self.refused = self.suspected = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, data: Data, face: int, now: float, asked: tuple[int, Name] | None = None) -> bool:
        """Keep a solicited Data that came by `face`; whether it was. `asked` is who gets it now, and by which name."""
        trusted = self._admit(data)
        wrong = data.signature.kind == t.DIGEST_SHA256 and not _DIGEST.verify(data.signed, data.signature.value)
        if trusted is False or wrong or not self.capacity:
            self.refused += 1
            return False
        self._drop(data.name)
        entry = self._entries[data.name] = Cached(data, face, now + data.freshness / 1_000, bool(trusted))
        entry.served = asked
        insort(self._names, data.name)
        self.bytes += len(data.wire)
        while len(self._entries) > self.capacity or self.bytes > NDN_CONTENT_BYTES:
            self._drop(next(iter(self._entries)))
        return True

    def find(self, interest: Interest, face: int, now: float) -> Cached | None:
        """The Data that answers an Interest, if there is one."""
        entry = self._match(interest, now)
        if entry is None:
            self.misses += 1
            return None
        asked = (face, interest.name)
        if entry.served == asked and not entry.trusted and not names_digest(interest.name):
            self.suspected += 1
            self._drop(entry.data.name)
            return None
        entry.served = asked
        self._entries[entry.data.name] = self._entries.pop(entry.data.name)
        self.hits += 1
        return entry

    def erase(self, prefix: Name, most: int) -> int:
        """Drop up to `most` entries below a prefix; how many there were."""
        start = bisect_left(self._names, prefix)
        gone = []
        for name in self._names[start : start + most]:
            if not name.startswith(prefix):
                break
            gone.append(name)
        for name in gone:
            self._drop(name)
        return len(gone)

    def _match(self, interest: Interest, now: float) -> Cached | None:
        name = interest.name
        if names_digest(name):
            entry = self._entries.get(name[:-34])
            return entry if entry is not None and entry.data.implicit_digest == name[-32:] else None
        entry = self._entries.get(name)
        if entry is not None and not (interest.must_be_fresh and entry.fresh_until <= now):
            return entry
        if not interest.can_be_prefix:
            return None
        start = bisect_left(self._names, name)
        for found in self._names[start : start + NDN_CONTENT_SCAN]:
            if not found.startswith(name):
                return None
            entry = self._entries[found]
            if not (interest.must_be_fresh and entry.fresh_until <= now):
                return entry
        return None

    def _drop(self, name: Name) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            del self._names[bisect_left(self._names, name)]
            self.bytes -= len(entry.data.wire)
