"""A journal opened only to be read: by another process than the one that writes it, or after that one has died.

Takes no lock and changes nothing. What it shows, and what it makes of damage, is decided by its callers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec

from syncline.core import limits
from syncline.core.errors import UsageError
from syncline.core.ports import RecordQuery
from syncline.journal.database import VERSION, About, check_whole, connect, damaged, failures, moment, read_about
from syncline.journal.queries import by_terms, is_full, plain, rest_of
from syncline.journal.rows import Row
from syncline.journal.terms import Lexicon, Where


class Reading:
    """One read-only connection to a journal file, and what the file says of itself."""

    def __init__(self, path: Path, connection: apsw.Connection, about: About) -> None:
        self.path = path
        self.connection = connection
        self.about = about

    def all(self, statement: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        with failures(self.path):
            return self.connection.execute(statement, bindings).fetchall()

    def one(self, statement: str, bindings: tuple[Any, ...] = ()) -> Any:
        with failures(self.path):
            return self.connection.execute(statement, bindings).get

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Several reads of one and the same state; see `database.moment`."""
        with failures(self.path), moment(self.connection):
            yield

    def pages(self, query: RecordQuery, rows: int = limits.API_PAGE_RECORDS) -> Iterator[list[Row]]:
        """The stored rows that match, in short reads, so that the writer's log can always be trimmed."""
        if query.descending:
            raise UsageError("an export runs forward")
        protocols = [query.protocol] if query.protocol else [name for (name,) in self.all("SELECT name FROM protocols")]
        lexicon = Lexicon(self.about.key)
        after, left = query.after, query.limit
        while left > 0:
            page = msgspec.structs.replace(query, after=after, limit=min(rows, left), raw_bytes=limits.JOURNAL_PAGE_RAW)
            with failures(self.path):
                found = self._page(page, lexicon.spans(page, protocols))
            if not found:
                return
            if found[0][0] <= after:  # pages in each other's place: reading on would go round in a circle
                raise damaged("the records are out of order", self.path)
            yield found
            after, left = found[-1][0], left - len(found)

    def _page(self, query: RecordQuery, where: Where | None) -> list[Row]:
        """From the table of terms as far as it goes; the records after that are read one by one."""
        if where is None:
            return plain(self.connection, query)
        rows = by_terms(self.connection, query, where, [], self.about.indexed)
        left = query.limit - len(rows)
        if left == 0 or is_full(query, rows):
            return rows
        rest = msgspec.structs.replace(rest_of(query, rows), after=max(query.after, self.about.indexed), limit=left)
        return rows + plain(self.connection, rest)


@contextmanager
def reading(path: Path, oldest: int = VERSION) -> Iterator[Reading]:
    """Open a journal to read it. Whoever asks for no terms can do with an older version."""
    check_whole(path)
    if not path.exists():
        raise UsageError("there is no journal", hint="run `syncline up` once, or name the file", about=str(path))
    connection = connect(path)
    try:
        yield Reading(path, connection, read_about(connection, path, oldest))
    finally:
        connection.close()
