"""Brings a journal of version 1 to version 2, when a node opens it.

Version 1 kept terms in one ordered table. They follow from the records, so they are made anew, as runs; records, state
and all else stay as they are. One transaction: killed in the middle of it, the journal is of version 1 still.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import apsw

from syncline.core import limits
from syncline.core.crash import crash_point
from syncline.journal.database import TERMS_SCHEMA, VERSION, About, read_about
from syncline.journal.index import remember, write_whole
from syncline.journal.newest import Newest
from syncline.journal.runs import Run
from syncline.journal.terms import Lexicon


def upgrade(connection: apsw.Connection, path: Path, about: About) -> About:
    """Make all terms anew; returns what the journal then says of itself."""
    lexicon = Lexicon(about.key)
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"DROP TABLE terms; {TERMS_SCHEMA}")
        for number, (after, last) in zip(count(1), pairwise(_bounds(connection))):
            terms = Newest()
            remember(connection, lexicon, terms, after, last)
            write_whole(connection, Run(number, after, last, len(terms)), terms)
        connection.execute("UPDATE head SET indexed = ?", (about.newest,))
        connection.execute("UPDATE about SET version = ?", (VERSION,))
        crash_point("journal.before-upgrade")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return read_about(connection, path)


def _bounds(connection: apsw.Connection) -> Iterator[int]:
    """Where runs begin and end, so that each covers as many records as a run usually does."""
    last = 0
    while True:
        yield last
        page: Any = connection.execute(
            "SELECT max(lsn) FROM (SELECT lsn FROM records WHERE lsn > ? ORDER BY lsn LIMIT ?)",
            (last, limits.JOURNAL_RUN_RECORDS),
        ).get
        if page is None:
            return
        last = page
