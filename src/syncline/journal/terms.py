"""The terms under which a record is found again: its id, topic, key, and publisher with sequence number.

A term is a keyed hash, so that all terms are short and nobody can aim two ids at one. Where terms are kept, and how
they are looked up, is decided in index.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Final

from syncline.core import limits
from syncline.core.ports import RecordQuery
from syncline.core.record import SEQ_MAX
from syncline.journal.rows import COLUMNS, Row, seq_bytes

NAME_BYTES: Final = 16  # only the names of accepted records have this length; other terms are longer
Span = tuple[bytes, bytes]  # from this term to that one, both included

_AT: Final = {name: COLUMNS.index(name) for name in COLUMNS}
_PROTOCOL, _ID, _VERDICT = _AT["protocol"], _AT["id"], _AT["verdict"]
_TOPIC, _KEY, _PUBLISHER, _SEQ = _AT["topic"], _AT["key"], _AT["publisher"], _AT["seq"]


class Lexicon:
    """Makes terms with the secret of one journal."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._topic = self._texts(b"t")
        self._key = self._texts(b"k")
        self._publisher = self._texts(b"p")
        self._prefixes: dict[str, bytes] = {}  # of names, by protocol

    def name(self, protocol: str, id_: bytes) -> bytes:
        """The term that only one live accepted record may have."""
        prefix = self._prefixes.get(protocol)
        if prefix is None:
            prefix = self._prefixes[protocol] = b"%bn%b\0" % (self._secret, protocol.encode())
        return sha256(prefix + id_).digest()[:NAME_BYTES]

    def refused(self, protocol: str, id_: bytes) -> bytes:
        """The term of rejected and ignored records, of which there may be many."""
        return self.name(protocol, id_) + b"r"

    def of(self, row: Row) -> tuple[bytes, ...]:
        """All terms of a row without its lsn; the first is its name, if it is accepted."""
        make = self.name if row[_VERDICT] == "accept" else self.refused
        terms = [make(row[_PROTOCOL], row[_ID])]
        if topic := row[_TOPIC]:
            terms.append(self._topic(topic))
        if key := row[_KEY]:
            terms.append(self._key(key))
        if publisher := row[_PUBLISHER]:
            terms.append(self._publisher(publisher) + (row[_SEQ] or b""))
        return tuple(terms)

    def spans(self, query: RecordQuery, protocols: list[str]) -> list[Span] | None:
        """Where to look for what a query asks: the narrowest of its terms; None if it names none.

        `protocols` are those that ever occurred, for a query by id that names no protocol.
        """
        if query.id is not None:
            names = [self.name(protocol, query.id) for protocol in protocols]
            names += [self.refused(protocol, query.id) for protocol in protocols]
            return [(name, name) for name in names]
        ranged = query.seq_from is not None or query.seq_to is not None
        if query.key and not (query.publisher and ranged):
            term = self._key(query.key)
        elif query.publisher:
            stem = self._publisher(query.publisher)
            first = stem + seq_bytes(query.seq_from or 0) if ranged else stem
            return [(first, stem + seq_bytes(SEQ_MAX if query.seq_to is None else query.seq_to))]
        elif query.topic:
            term = self._topic(query.topic)
        else:
            return None
        return [(term, term)]

    def _texts(self, tag: bytes) -> Callable[[str], bytes]:
        """Makes terms of one kind of text. The same texts come again and again, so they are kept at hand."""
        prefix = self._secret + tag

        @lru_cache(maxsize=limits.JOURNAL_TERMS_CACHED)
        def term(text: str) -> bytes:
            return sha256(prefix + text.encode()).digest()[:NAME_BYTES] + tag

        return term
