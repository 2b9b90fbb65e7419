"""What the tables say against the nodes: records whose content the lake judged otherwise (table `audit`), and rows of
different tables that contradict each other though every one of them was accepted. Both must be empty.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from syncline.core import limits
from syncline.lake.query import Queries


class Check(msgspec.Struct, frozen=True):
    """A question whose answer must be empty: `record` and `detail` of each contradiction."""

    name: str
    doc: str
    sql: str


class Finding(msgspec.Struct, frozen=True):
    """One disagreement: what found it, about which record, and how the two sides differ."""

    check: str
    record: str
    detail: str


DISAGREEMENTS: Final = Check(
    "verdict",
    "the lake judges the content otherwise than the node did",
    """
    SELECT node || '/' || epoch || '/' || lsn AS record,
           protocol || ': node ' || verdict || coalesce(' ' || reason, '')
           || ', lake ' || lake_verdict || coalesce(' ' || lake_reason, '') AS detail
    FROM audit ORDER BY node, epoch, lsn
    """,
)
HEADER_MATCH: Final = Check(
    "header_match",
    "an accepted notification has another hash than every verified header of its height",
    """
    SELECT n.node || '/' || n.epoch || '/' || n.lsn AS record,
           'height ' || n.height || ' announced with ' || n.data_hash AS detail
    FROM shrex_notifications n
    WHERE n.height IN (SELECT height FROM headers)
      AND (n.height, n.data_hash) NOT IN (SELECT (height, data_hash) FROM headers)
    ORDER BY n.node, n.epoch, n.lsn
    """,
)
HEADER_CHAIN: Final = Check(
    "header_chain",
    "a verified header names another one before it than the one that is there",
    """
    SELECT h.node || '/' || h.epoch || '/' || h.lsn AS record,
           h.chain_id || ' height ' || h.height || ' follows ' || h.last_hash AS detail
    FROM headers h
    WHERE (h.chain_id, h.height - 1) IN (SELECT (chain_id, height) FROM headers)
      AND (h.chain_id, h.height - 1, h.last_hash) NOT IN (SELECT (chain_id, height, hash) FROM headers)
    ORDER BY h.node, h.epoch, h.lsn
    """,
)
CHECKS: Final = (DISAGREEMENTS, HEADER_MATCH, HEADER_CHAIN)


def audit(queries: Queries, most: int = limits.LAKE_PROBLEMS) -> list[Finding]:
    """Every disagreement, at most `most` of each kind."""
    return [Finding(check.name, *row) for check in CHECKS for row in _rows(queries, check, most)]


def _rows(queries: Queries, check: Check, most: int) -> list[tuple[Any, ...]]:
    answer = queries.ask(f"SELECT record, detail FROM ({check.sql}) LIMIT {most}").rows  # noqa: S608
    return [(row["record"], row["detail"]) for row in answer.to_pylist()]
