"""Which runs may hold a name: a Bloom filter of every run, laid side by side so that one look asks many of them.

A name that no run holds is hardly ever said to be held, and one that a run holds always is. A word holds the same bit of
the filters of up to 64 runs, so looking for a name is six words of a table and their conjunction. Looking it up for
certain is the business of runs.py.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from syncline.core import limits
from syncline.journal.terms import NAME, WIDTHS

_WORD: Final = 64
_KINDS: Final = tuple(np.dtype(kind) for kind in (np.uint8, np.uint16, np.uint32, np.uint64))
_MASK: Final = limits.JOURNAL_FILTER_BITS - 1
_NAME: Final = Struct("<x2Q")  # a hash, in two halves
_STEP: Final = 20  # bits of a half for each of its three probes


class Filters:
    """One for every run, up to a number of them; what is beyond that is always said to hold a name."""

    def __init__(self) -> None:
        self._tables: list[npt.NDArray[Any]] = []  # of words, for 64 runs each; for fewer while there are few
        self._runs: list[int | None] = []  # by place
        self._others: set[int] = set()
        self._lock = threading.Lock()  # readers in other threads ask too

    def add(self, run: int, entries: bytes) -> None:
        """Take in the names of a run, given as its entries."""
        with self._lock:
            if run in self._runs or run in self._others:
                return
            if None not in self._runs:
                if len(self._runs) == limits.JOURNAL_FILTER_RUNS:
                    self._others.add(run)
                    return
                self._runs.append(None)
            place = self._runs.index(None)
            table = self._room(place)
            table[_words(entries)] |= table.dtype.type(1 << place % _WORD)
            self._runs[place] = run

    def drop(self, run: int) -> None:
        """Forget a run that is no more."""
        with self._lock:
            self._others.discard(run)
            if run in self._runs:
                place = self._runs.index(run)
                table = self._tables[place // _WORD]
                table &= ~table.dtype.type(1 << place % _WORD)
                self._runs[place] = None

    def find(self, names: Collection[bytes]) -> dict[bytes, list[int]]:
        """The names that may be held by runs, and by which."""
        with self._lock:
            found: dict[bytes, list[int]] = {name: sorted(self._others) for name in names} if self._others else {}
            for at, table in enumerate(self._tables):
                for name, word in _held(table, names):
                    found.setdefault(name, []).extend(self._named(at, word))
        return found

    def without(self, name: bytes) -> set[int]:
        """The runs that surely do not hold this name."""
        held = self.find([name]).get(name, ())
        with self._lock:
            return {run for run in self._runs if run is not None} - set(held)

    def _named(self, at: int, word: int) -> Iterator[int]:
        """The runs whose bits are set in a word of a table."""
        for bit in range(word.bit_length()):
            run = self._runs[at * _WORD + bit] if word >> bit & 1 else None
            if run is not None:
                yield run

    def _room(self, place: int) -> npt.NDArray[Any]:
        """The table in which this place is, grown if need be."""
        at, bit = divmod(place, _WORD)
        wanted = next(kind for kind in _KINDS if kind.itemsize * 8 > bit)
        if at == len(self._tables):
            self._tables.append(np.zeros(limits.JOURNAL_FILTER_BITS, wanted))
        elif self._tables[at].itemsize < wanted.itemsize:
            self._tables[at] = self._tables[at].astype(wanted)
        return self._tables[at]


def _held(table: npt.NDArray[Any], names: Collection[bytes]) -> list[tuple[bytes, int]]:
    """The names of which all bits are set in a word's place, and the word.

    Every commit asks. Plain Python is as fast as numpy for so few names, and it keeps the interpreter's lock, which
    numpy lets go of and must then win back from the event loop.
    """
    words, mask, two, three = table.data, _MASK, _STEP, 2 * _STEP
    return [
        (name, word)
        for name, (a, b) in zip(names, _NAME.iter_unpack(b"".join(names)), strict=True)
        if (word := words[a & mask])  # every further look is a miss of the processor's cache
        and (word := word & words[b & mask])  # seldom
        and (word := word & words[a >> two & mask] & words[b >> two & mask])
        and (word := word & words[a >> three & mask] & words[b >> three & mask])
    ]


def _words(entries: bytes) -> npt.NDArray[np.uint64]:
    """Where the bits of names are. A name is a hash already, so parts of it will do."""
    rows = np.frombuffer(entries, np.uint8).reshape(-1, WIDTHS[NAME])
    halves = [np.ascontiguousarray(rows[:, start : start + 8]).view("<u8").ravel() for start in (1, 9)]
    words = [half >> np.uint64(n * _STEP) & np.uint64(_MASK) for half in halves for n in range(3)]
    return np.concatenate(words)
