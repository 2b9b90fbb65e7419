"""The same questions on Spark: bounded in rows always, and in time when that is asked for."""

from __future__ import annotations

import time
from typing import Any

import pytest

from syncline.core.errors import UnavailableError, UsageError
from syncline.lake.query import QueryLimits
from syncline.lake.query_spark import ask_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ENDLESS = "SELECT sum(hash(a.id, b.id)) AS n FROM range(10000000) a CROSS JOIN range(10000000) b"


def test_a_question_that_takes_longer_than_it_may_is_stopped(spark: Any) -> None:
    begun = time.monotonic()
    with pytest.raises(UnavailableError, match="stopped after 2 s"):
        ask_spark(spark, ENDLESS, QueryLimits(), seconds=2)
    assert time.monotonic() - begun < 100
    answer = ask_spark(spark, "SELECT id FROM range(5)", QueryLimits(rows=3), seconds=100)
    assert (answer.rows["id"].to_pylist(), answer.truncated) == ([0, 1, 2], True)


@pytest.mark.parametrize("sql", ["DROP VIEW x", "CREATE TABLE t (x INT)", "SELECT * FROM nowhere", "nonsense"])
def test_what_reads_no_table_is_refused_in_plain_words(spark: Any, sql: str) -> None:
    with pytest.raises(UsageError):
        ask_spark(spark, sql, QueryLimits(), seconds=100)
