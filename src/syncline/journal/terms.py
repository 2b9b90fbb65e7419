"""The terms under which a record is found again: its id, topic, key, and publisher with sequence number.

A term is a keyed hash, so that all terms are short and nobody can aim two ids at one. Where terms are kept, and how
they are looked up, is decided in index.py.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Final

from syncline.core import limits
from syncline.core.ports import RecordQuery
from syncline.core.record import SEQ_MAX
from syncline.journal.rows import COLUMNS, Row, seq_bytes

NAME_BYTES: Final = 16  # only the names of accepted records have this length; other terms are longer
Span = tuple[bytes, bytes]  # from this term to that one, both included

_REFUSED, _TOPIC, _KEY, _PUBLISHER = b"r", b"t", b"k", b"p"
_AT: Final = {name: COLUMNS.index(name) for name in COLUMNS}
_PROTOCOL, _ID, _VERDICT = _AT["protocol"], _AT["id"], _AT["verdict"]
_TOPIC_AT, _KEY_AT, _PUBLISHER_AT, _SEQ_AT = _AT["topic"], _AT["key"], _AT["publisher"], _AT["seq"]


class Lexicon:
    """Makes terms with the secret of one journal."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

        @lru_cache(maxsize=limits.JOURNAL_TERMS_CACHED)
        def text(tag: bytes, value: str) -> bytes:
            return self._hash(tag, value.encode()) + tag

        self._text = text

    def name(self, protocol: str, id_: bytes) -> bytes:
        """The term that only one live accepted record may have."""
        return self._hash(b"n", b"%b\0%b" % (protocol.encode(), id_))

    def refused(self, protocol: str, id_: bytes) -> bytes:
        """The term of rejected and ignored records, of which there may be many."""
        return self._hash(_REFUSED, b"%b\0%b" % (protocol.encode(), id_)) + _REFUSED

    def of(self, row: Row) -> tuple[bytes, ...]:
        """All terms of a row without its lsn; the first is its name, if it is accepted."""
        accepted = row[_VERDICT] == "accept"
        terms = [(self.name if accepted else self.refused)(row[_PROTOCOL], row[_ID])]
        if row[_TOPIC_AT]:
            terms.append(self._text(_TOPIC, row[_TOPIC_AT]))
        if row[_KEY_AT]:
            terms.append(self._text(_KEY, row[_KEY_AT]))
        if row[_PUBLISHER_AT]:
            terms.append(self._text(_PUBLISHER, row[_PUBLISHER_AT]) + (row[_SEQ_AT] or b""))
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
            term = self._text(_KEY, query.key)
        elif query.publisher:
            stem = self._text(_PUBLISHER, query.publisher)
            first = stem + seq_bytes(query.seq_from or 0) if ranged else stem
            return [(first, stem + seq_bytes(SEQ_MAX if query.seq_to is None else query.seq_to))]
        elif query.topic:
            term = self._text(_TOPIC, query.topic)
        else:
            return None
        return [(term, term)]

    def _hash(self, tag: bytes, data: bytes) -> bytes:
        return sha256(b"%b%b%b" % (self._secret, tag, data)).digest()[:NAME_BYTES]
