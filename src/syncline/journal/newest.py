"""The terms of the newest records, those that are in no run yet: looked up in a dictionary, and turned into a run.

Written by the writer's thread alone and read by any. Runs and their tables are the business of runs.py.
"""

from __future__ import annotations

import threading
from array import array
from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from syncline.journal.rows import Row
from syncline.journal.terms import (
    KEY,
    KEYED,
    NAME,
    NO_SEQ,
    NOT_TAKEN,
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
)

KINDS: Final = (NAME, REFUSED, KEYED, TOPICAL, NUMBERED, PUBLISHED)
_Column = npt.NDArray[np.uint64]
_BIG: Final = np.dtype(">u8")  # as numbers stand in entries
_TOPIC, _KEY, _PUBLISHER, _SEQ = itemgetter(TOPIC), itemgetter(KEY), itemgetter(PUBLISHER), itemgetter(SEQ)


class Fresh:
    """Records that follow one another, column by column."""

    __slots__ = ("expiries", "lsns", "names", "rows")

    def __init__(self) -> None:
        self.lsns: list[int] = []
        self.expiries: list[int] = []  # when the name is free again
        self.names: list[bytes] = []
        self.rows: list[Row] = []

    def add(self, lsn: int, expiry: int, name: bytes, row: Row) -> None:
        self.lsns.append(lsn)
        self.expiries.append(expiry)
        self.names.append(name)
        self.rows.append(row)


class Newest:
    """Column by column, what the terms of some records are made of, and where each term occurs."""

    def __init__(self) -> None:
        self.lsns: list[int] = []
        self._expiries = array("q")  # of names
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

    def add(self, records: Fresh, lexicon: Lexicon) -> None:
        """Remember records that follow those that are here."""
        rows = records.rows
        self._seqs += map(_SEQ, rows)
        self._expiries.extend(records.expiries)
        self._topics += map(lexicon.topic, map(_TOPIC, rows))
        self._keys += map(lexicon.key, map(_KEY, rows))
        self._publishers += map(lexicon.publisher, map(_PUBLISHER, rows))
        self._names += records.names
        self._bearers.update(zip(records.names, count(len(self.lsns))))
        self.lsns += records.lsns  # last: readers look no further than this

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
        if kind in (NAME, REFUSED):
            expiries = np.frombuffer(self._expiries, np.int64)
            is_there = (expiries != NOT_TAKEN) == (kind == NAME)
            return _sorted(kind, self._names, is_there, [self._numbers(), expiries.astype(_BIG)][: 1 + (kind == NAME)])
        if kind == KEYED:
            return _sorted(kind, self._keys, _is_there(self._keys), [self._numbers()])
        if kind == TOPICAL:
            return _sorted(kind, self._topics, _is_there(self._topics), [self._numbers()])
        seqs = np.frombuffer(b"".join([seq or NO_SEQ for seq in self._seqs]), _BIG)
        if kind == PUBLISHED:
            return _sorted(kind, self._publishers, _is_there(self._publishers), [seqs, self._numbers()])
        is_there = _is_there(self._topics) & _is_there(self._seqs)
        return _sorted(kind, self._topics, is_there, [seqs, self._numbers()])

    def _numbers(self) -> _Column:
        """The lsns, of which hardly any are missing."""
        lsns = self.lsns
        if lsns and lsns[-1] - lsns[0] + 1 == len(lsns):
            return np.arange(lsns[0], lsns[-1] + 1).astype(_BIG)
        return np.array(lsns, _BIG)


def _is_there(terms: Sequence[bytes | None]) -> npt.NDArray[np.bool_]:
    if all(terms):  # usually
        return np.ones(len(terms), np.bool_)
    return np.fromiter(map(bool, terms), np.bool_, len(terms))


def _sorted(kind: bytes, terms: list[bytes], is_there: npt.NDArray[np.bool_], numbers: list[_Column]) -> bytes:
    """Entries of the terms that are there, with the numbers of the same place, sorted and one after the other.

    The terms may be of a related kind. Places are in the order of their lsns, and the sort keeps what is equal in order,
    so the last number need not be compared: sorting whole entries as text would take three times as long.
    """
    if not is_there.any():
        return b""
    if not is_there.all():
        terms = [term for term, there in zip(terms, is_there.tolist(), strict=True) if there]
        numbers = [column[is_there] for column in numbers]
    joined = np.frombuffer(b"".join(terms), np.uint8).reshape(-1, TERM_BYTES)
    entries = np.empty((len(joined), WIDTHS[kind]), np.uint8)
    entries[:, :TERM_BYTES] = joined
    entries[:, 0] = kind[0]
    for n, column in enumerate(numbers):
        start = TERM_BYTES + 8 * n
        entries[:, start : start + 8] = column.view(np.uint8).reshape(-1, 8)
    return entries[_order(joined, numbers[:-1] if kind == NAME else numbers)].tobytes()


def _order(terms: npt.NDArray[np.uint8], numbers: list[_Column]) -> npt.NDArray[np.intp]:
    """How to sort entries of these terms and numbers."""
    high, low = (np.ascontiguousarray(terms[:, at : at + 8]).view(_BIG).ravel().astype(np.uint64) for at in (1, 9))
    between = [column.astype(np.uint64) for column in numbers[:-1]]  # the last one is the lsn
    order = np.lexsort((*between, high)) if between else np.argsort(high, kind="stable")
    highs, lows = high[order], low[order]
    if np.any((highs[1:] == highs[:-1]) & (lows[1:] != lows[:-1])):  # half of a hash tells nearly all apart
        return np.lexsort((*between, low, high))
    return order
