"""The terms of the newest records, those that are in no run yet: looked up in a dictionary, and turned into a run.

Written by the writer's thread alone and read by any. Runs and their tables are the business of runs.py.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from itertools import count
from typing import Final

import numpy as np
import numpy.typing as npt

from syncline.journal.rows import Row
from syncline.journal.terms import (
    KEY,
    KEYED,
    NAME,
    NO_SEQ,
    NUMBERED,
    PUBLISHED,
    PUBLISHER,
    REFUSED,
    SEQ,
    TERM_BYTES,
    TOPIC,
    TOPICAL,
    WIDTHS,
    Lexicon,
    Span,
    numbered,
)

Named = tuple[int, int | None, bytes, Row]  # lsn; when the name is free again, None if it was not taken; name; row
KINDS: Final = (NAME, REFUSED, KEYED, TOPICAL, NUMBERED, PUBLISHED)
_Numbers = npt.NDArray[np.uint64]


class Newest:
    """Column by column, what the terms of some records are made of, and where each term occurs."""

    def __init__(self) -> None:
        self.lsns: list[int] = []
        self._expiries: list[int | None] = []  # of names
        self._names: list[bytes] = []
        self._topics: list[bytes] = []
        self._keys: list[bytes] = []
        self._publishers: list[bytes] = []
        self._seqs: list[bytes | None] = []
        self._bearers: dict[bytes, int] = {}  # the newest place of every name
        self._places: defaultdict[bytes, list[int]] = defaultdict(list)  # of every term, as far as it was asked for
        self._filed = 0
        self._filing = threading.Lock()

    def __len__(self) -> int:
        return len(self.lsns)

    def add(self, records: list[Named], lexicon: Lexicon) -> None:
        """Remember records that follow those that are here."""
        names = [name for _, _, name, _ in records]
        rows = [row for _, _, _, row in records]
        self._seqs += [row[SEQ] for row in rows]
        self._expiries += [expiry for _, expiry, _, _ in records]
        self._topics += map(lexicon.topic, [row[TOPIC] for row in rows])
        self._keys += map(lexicon.key, [row[KEY] for row in rows])
        self._publishers += map(lexicon.publisher, [row[PUBLISHER] for row in rows])
        self._names += names
        self._bearers.update(zip(names, count(len(self.lsns))))
        self.lsns += [lsn for lsn, _, _, _ in records]  # last: readers look no further than this

    def between(self, span: Span) -> list[int]:
        """The numbers of the records with an entry there; of some others too, if it is not their sequence numbers."""
        self._file()
        first, last = span
        kind, term = first[:1], first[:TERM_BYTES]
        if kind not in (NUMBERED, PUBLISHED):
            return [self.lsns[place] for place in self._places.get(term, ())]
        low, high = first[TERM_BYTES : TERM_BYTES + 8], last[TERM_BYTES : TERM_BYTES + 8]
        places = self._places.get(TOPICAL + term[1:] if kind == NUMBERED else term, ())
        return [self.lsns[place] for place in places if low <= (self._seqs[place] or NO_SEQ) <= high]

    def none_of(self, names: set[bytes]) -> bool:
        """Whether nobody here bears, or bore, one of these names."""
        return self._bearers.keys().isdisjoint(names)

    def expiry(self, name: bytes) -> int | None:
        """When this name is free again, as far as is known here."""
        place = self._bearers.get(name)
        return None if place is None else self._expiries[place]

    def _file(self) -> None:
        """Make every record found by its terms. Only readers need that, so it is not done for each commit."""
        with self._filing:
            start, end, places = self._filed, len(self.lsns), self._places
            for terms in (self._names, self._topics, self._keys, self._publishers):
                for place in range(start, end):
                    if term := terms[place]:
                        places[term].append(place)
            self._filed = end

    def entries(self, kind: bytes) -> bytes:
        """All entries of one kind, sorted."""
        lsns = np.array(self.lsns, np.uint64)
        if kind in (NAME, REFUSED):
            taken = kind == NAME
            names = [
                name if (expiry is not None) is taken else b""
                for name, expiry in zip(self._names, self._expiries, strict=True)
            ]
            return _sorted(
                kind, names, [lsns, np.array([expiry or 0 for expiry in self._expiries], np.uint64)][: 1 + taken]
            )
        if kind == KEYED:
            return _sorted(kind, self._keys, [lsns])
        if kind == TOPICAL:
            return _sorted(kind, self._topics, [lsns])
        seqs = np.frombuffer(b"".join([seq or NO_SEQ for seq in self._seqs]), ">u8").astype(np.uint64)
        if kind == PUBLISHED:
            return _sorted(kind, self._publishers, [seqs, lsns])
        topics = [
            numbered(topic) if topic and seq is not None else b""
            for topic, seq in zip(self._topics, self._seqs, strict=True)
        ]
        return _sorted(kind, topics, [seqs, lsns])


def _sorted(kind: bytes, terms: list[bytes], numbers: list[_Numbers]) -> bytes:
    """Entries of terms, where there is one, with the numbers of the same place, sorted and one after the other."""
    joined = np.frombuffer(b"".join(terms), np.uint8).reshape(-1, TERM_BYTES)
    entries = np.empty((len(joined), WIDTHS[kind]), np.uint8)
    entries[:, :TERM_BYTES] = joined
    present = slice(None) if len(joined) == len(terms) else np.array([bool(term) for term in terms], np.bool_)
    for n, column in enumerate(numbers):
        start = TERM_BYTES + 8 * n
        entries[:, start : start + 8] = column[present].astype(">u8").view(np.uint8).reshape(-1, 8)
    return np.sort(entries.view(f"S{WIDTHS[kind]}").ravel()).tobytes()
