"""The terms under which a record is found again: its id, topic, key, and publisher and topic with sequence number.

A term is a keyed hash, so that all terms are short and nobody can aim two ids at one. An entry is a term with the
number of a record that has it; entries sort by term and then by number. Where they are kept is decided in index.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from syncline.core import limits
from syncline.core.ports import RecordQuery
from syncline.core.record import SEQ_MAX
from syncline.journal.rows import COLUMNS, Row, seq_bytes

FOREVER: Final = 2**63 - 1
HASH_BYTES: Final = 16
NAME_ENTRY_BYTES: Final = HASH_BYTES + 8 + 8  # the entry of an accepted id: name, lsn, expiry; others end with the lsn
Span = tuple[bytes, bytes]  # from this entry to that one, both included


class Where(NamedTuple):
    """Where the entries lie that answer a query."""

    spans: list[Span]
    ordered: bool  # by lsn
    wider: Span | None = None  # ordered, and holds all of the others: quicker to read in pages if they are long


FOUND_BY: Final = frozenset({"protocol", "id", "verdict", "topic", "key", "publisher", "seq", "expires_at"})
_AT: Final = {name: COLUMNS.index(name) for name in COLUMNS}
PROTOCOL, ID, VERDICT, EXPIRES_AT = _AT["protocol"], _AT["id"], _AT["verdict"], _AT["expires_at"]
TOPIC, KEY, PUBLISHER, SEQ = _AT["topic"], _AT["key"], _AT["publisher"], _AT["seq"]


class Lexicon:
    """Makes terms with the secret of one journal."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.topic = self._texts(b"t")
        self.key = self._texts(b"k")
        self.publisher = self._texts(b"p")
        self._prefixes: dict[tuple[bytes, str], bytes] = {}  # of ids, by protocol

    def name(self, protocol: str, id_: bytes) -> bytes:
        """The term that only one live accepted record may have."""
        return self._id(b"n", protocol, id_)

    def name_of(self, row: Row) -> bytes:
        """The name of a row without its lsn, or, if it was not accepted, the term of its id, of which there may be many."""
        if row[VERDICT] == "accept":
            return self._id(b"n", row[PROTOCOL], row[ID])
        return self._id(b"r", row[PROTOCOL], row[ID]) + b"r"

    def entries(self, row: Row) -> list[bytes]:
        """The entries of a stored row. That of an accepted id also says until when it is taken."""
        lsn, row = row[0], row[1:]
        terms = [self.name_of(row)]
        if topic := row[TOPIC]:
            terms.append(term := self.topic(topic))
            if seq := row[SEQ]:
                terms.append(term[:HASH_BYTES] + SEQUENCE + seq)
        if key := row[KEY]:
            terms.append(self.key(key))
        if publisher := row[PUBLISHER]:
            terms.append(self.publisher(publisher) + (row[SEQ] or b""))
        found = [term + _number(lsn) for term in terms]
        if (expiry := expiry_of(row)) is not None:
            found[0] += _number(expiry)
        return found

    def spans(self, query: RecordQuery, protocols: list[str]) -> Where | None:
        """Where to look for what a query asks, by the narrowest of its terms; None if it names no term. `protocols` are
        those that ever occurred.
        """
        first, last = max(query.after + 1, 0), FOREVER if query.before is None else query.before - 1
        numbers = _number(min(first, FOREVER)), _number(max(min(last, FOREVER), 0))
        if query.id is not None:
            names = [self._id(b"n", protocol, query.id) for protocol in protocols]
            names += [self._id(b"r", protocol, query.id) + b"r" for protocol in protocols]
            return Where([(name + numbers[0], name + numbers[1] + _LAST) for name in names], ordered=False)
        ranged = query.seq_from is not None or query.seq_to is not None
        seqs = seq_bytes(query.seq_from or 0), seq_bytes(SEQ_MAX if query.seq_to is None else query.seq_to) + _LAST
        if query.publisher and (ranged or not query.key):
            stem = self.publisher(query.publisher)
            return Where([(stem + seqs[0] if ranged else stem, stem + seqs[1])], ordered=False)
        if not query.key and not query.topic:
            return None
        term = self.key(query.key) if query.key else self.topic(query.topic or "")
        span = term + numbers[0], term + numbers[1]
        if ranged and not query.key:
            stem = term[:HASH_BYTES] + SEQUENCE
            return Where([(stem + seqs[0], stem + seqs[1])], ordered=False, wider=span)
        return Where([span], ordered=True)

    def _id(self, tag: bytes, protocol: str, id_: bytes) -> bytes:
        prefix = self._prefixes.get((tag, protocol))
        if prefix is None:
            prefix = self._prefixes[tag, protocol] = b"%b%b%b\0" % (self._secret, tag, protocol.encode())
        return sha256(prefix + id_).digest()[:HASH_BYTES]

    def _texts(self, tag: bytes) -> Callable[[str], bytes]:
        """Makes terms of one kind of text. The same texts come again and again, so they are kept at hand."""
        prefix = self._secret + tag

        @lru_cache(maxsize=limits.JOURNAL_TERMS_CACHED)
        def term(text: str) -> bytes:
            return sha256(prefix + text.encode()).digest()[:HASH_BYTES] + tag

        return term


def expiry_of(row: Row) -> int | None:
    """When the name of a row without its lsn is free again; None if it never was taken."""
    if row[VERDICT] != "accept":
        return None
    return FOREVER if row[EXPIRES_AT] is None else int(row[EXPIRES_AT])


def lsn_of(entry: bytes) -> int:
    """The record an entry points to."""
    number = entry[HASH_BYTES : HASH_BYTES + 8] if len(entry) == NAME_ENTRY_BYTES else entry[-8:]
    return int.from_bytes(number, "big")


def _number(lsn: int) -> bytes:
    return lsn.to_bytes(8, "big")


_LAST: Final = b"\xff" * 8
SEQUENCE: Final = b"s"  # a topic with a sequence number
