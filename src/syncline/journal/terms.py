"""The terms under which a record is found again: its id, topic, key, and publisher and topic with sequence number.

A term is a keyed hash, so that all terms are short and nobody can aim two ids at one. An entry is a term with the
number of a record that has it. Where entries are kept is decided in newest.py and runs.py.

    n hash lsn expiry    an accepted id, its name: only one live record may have it, until then
    r hash lsn           the id of a record that was not accepted
    k hash lsn           a key
    t hash lsn           a topic
    s hash seq lsn       a topic with a sequence number
    p hash seq lsn       a publisher with a sequence number; 0 where there is none
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from syncline.core import limits
from syncline.core.ports import RecordQuery
from syncline.core.record import SEQ_MAX
from syncline.journal.rows import COLUMNS, Row, seq_bytes

FOREVER: Final = 2**63 - 1
NOT_TAKEN: Final = -1  # in the place of an expiry: the record was not accepted, so its id is nobody's name
TERM_BYTES: Final = 17  # what kind of term it is, and a hash
NAME, REFUSED, KEYED, TOPICAL, NUMBERED, PUBLISHED = b"n", b"r", b"k", b"t", b"s", b"p"
WIDTHS: Final = {NAME: 33, REFUSED: 25, KEYED: 25, TOPICAL: 25, NUMBERED: 33, PUBLISHED: 33}  # of entries
LSN_AT: Final = {NAME: 17, REFUSED: 17, KEYED: 17, TOPICAL: 17, NUMBERED: 25, PUBLISHED: 25}
Span = tuple[bytes, bytes]  # from this entry to that one, both included; of one and the same term


class Where(NamedTuple):
    """Where the entries lie that answer a query."""

    spans: list[Span]
    ordered: bool  # by lsn


FOUND_BY: Final = frozenset({"protocol", "id", "verdict", "topic", "key", "publisher", "seq", "expires_at"})
_AT: Final = {name: COLUMNS.index(name) for name in COLUMNS}
PROTOCOL, ID, VERDICT, EXPIRES_AT = _AT["protocol"], _AT["id"], _AT["verdict"], _AT["expires_at"]
TOPIC, KEY, PUBLISHER, SEQ = _AT["topic"], _AT["key"], _AT["publisher"], _AT["seq"]
NO_SEQ: Final = bytes(8)
_LAST: Final = b"\xff" * 8


class Lexicon:
    """Makes terms with the secret of one journal."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.topic = self._texts(TOPICAL)
        self.key = self._texts(KEYED)
        self.publisher = self._texts(PUBLISHED)
        self._of_ids: dict[tuple[bytes, str], Any] = {}  # hashes begun, by protocol: going on takes half the time

    def name(self, protocol: str, id_: bytes) -> bytes:
        """The term that only one live accepted record may have."""
        return self._id(NAME, protocol, id_)

    def name_of(self, row: Row) -> bytes:
        """The name of a row without its lsn, or, if it was not accepted, the term of its id, of which there may be many."""
        return self._id(NAME if row[VERDICT] == "accept" else REFUSED, row[PROTOCOL], row[ID])

    def entries(self, row: Row) -> list[bytes]:
        """The entries of one stored row. Of many at once, newest.py makes the same ones faster."""
        number, row = _number(row[0]), row[1:]
        expiry, seq = expiry_of(row), row[SEQ]
        found = [self.name_of(row) + number + (b"" if expiry == NOT_TAKEN else _number(expiry))]
        if topic := self.topic(row[TOPIC]):
            found.append(topic + number)
            if seq is not None:
                found.append(numbered(topic) + seq + number)
        if key := self.key(row[KEY]):
            found.append(key + number)
        if publisher := self.publisher(row[PUBLISHER]):
            found.append(publisher + (seq or NO_SEQ) + number)
        return found

    def spans(self, query: RecordQuery, protocols: list[str]) -> Where | None:
        """Where to look for what a query asks, by the narrowest of its terms; None if it names no term. `protocols` are
        those that ever occurred.
        """
        first, last = max(query.after + 1, 0), FOREVER if query.before is None else query.before - 1
        numbers = _number(min(first, FOREVER)), _number(max(min(last, FOREVER), 0))
        if query.id is not None:
            kinds = (NAME,) if query.verdict == "accept" else (NAME, REFUSED)
            names = [self._id(kind, protocol, query.id) for protocol in protocols for kind in kinds]
            return Where([(name + numbers[0], name + numbers[1] + _LAST) for name in names], ordered=False)
        ranged = query.seq_from is not None or query.seq_to is not None
        seqs = seq_bytes(query.seq_from or 0), seq_bytes(SEQ_MAX if query.seq_to is None else query.seq_to) + _LAST
        if query.publisher and (ranged or not query.key):
            term = self.publisher(query.publisher)
            return Where([(term + seqs[0], term + seqs[1])], ordered=False)
        if query.key:
            term = self.key(query.key)
        elif query.topic:
            term = self.topic(query.topic)
        else:
            return None
        if ranged and not query.key:
            return Where([(numbered(term) + seqs[0], numbered(term) + seqs[1])], ordered=False)
        return Where([(term + numbers[0], term + numbers[1])], ordered=True)

    def _id(self, kind: bytes, protocol: str, id_: bytes) -> bytes:
        begun = self._of_ids.get((kind, protocol))
        if begun is None:
            begun = self._of_ids[kind, protocol] = self._begin(b"%b%b\0" % (kind, protocol.encode()))
        return self._go_on(kind, begun, id_)

    def _texts(self, kind: bytes) -> Callable[[str], bytes]:
        """Makes terms of one kind of text, and none of no text. The same texts come again and again, so they are kept at
        hand."""
        begun = self._begin(kind)

        @lru_cache(maxsize=limits.JOURNAL_TERMS_CACHED)
        def term(text: str) -> bytes:
            return self._go_on(kind, begun, text.encode()) if text else b""

        return term

    def _begin(self, data: bytes) -> Any:
        return blake2b(self._secret + data, digest_size=TERM_BYTES - 1)

    @staticmethod
    def _go_on(kind: bytes, begun: Any, data: bytes) -> bytes:
        hashed = begun.copy()
        hashed.update(data)
        term: bytes = kind + hashed.digest()
        return term


def numbered(topic: bytes) -> bytes:
    """The term of a topic, for its entries with sequence numbers."""
    return NUMBERED + topic[1:]


def expiry_of(row: Row) -> int:
    """When the name of a row without its lsn is free again."""
    if row[VERDICT] != "accept":
        return NOT_TAKEN
    return FOREVER if row[EXPIRES_AT] is None else int(row[EXPIRES_AT])


def lsn_of(entry: bytes) -> int:
    """The record an entry points to."""
    at = LSN_AT[entry[:1]]
    return int.from_bytes(entry[at : at + 8], "big")


def _number(lsn: int) -> bytes:
    return lsn.to_bytes(8, "big")
