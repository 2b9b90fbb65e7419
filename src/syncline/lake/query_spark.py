"""The same SQL on Spark, for answers that need a cluster. Reads the same snapshots; one reading statement at a time.

For the operator at the command line: unlike the DuckDB engine this one is not locked for strangers' SQL.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from syncline.core.errors import UnavailableError, UsageError
from syncline.lake.deadlines import Deadlines
from syncline.lake.deltas import open_delta
from syncline.lake.query import Answer, QueryLimits
from syncline.lake.roots import Lake
from syncline.lake.tables import Table
from syncline.lake.views import VIEWS, View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COMMAND: Final = "org.apache.spark.sql.catalyst.plans.logical.Command"


def table_frame(spark: SparkSession, lake: Lake, table: Table) -> DataFrame:
    """A table's newest snapshot as a DataFrame."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(table.schema)
    delta = open_delta(lake.table(table.name))
    files = [] if delta is None else delta.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema)
    if not lake.tables.is_local:  # pip's Spark cannot reach an object store by itself
        return reader.format("syncline").option("table", table.name).load(lake.tables.url)
    return reader.option("basePath", lake.table(table.name).url).parquet(*files)


def register_tables(spark: SparkSession, lake: Lake, tables: Iterable[Table]) -> None:
    """Make the tables, and the views over them, known to Spark SQL by their names."""
    for table in tables:
        table_frame(spark, lake, table).createOrReplaceTempView(table.name)
        for view in VIEWS:
            if view.source == table.name:
                _define_view(spark, view)


def _define_view(spark: SparkSession, view: View) -> None:
    if view.parameter:
        head = f"TEMPORARY FUNCTION {view.name}({view.parameter} TIMESTAMP) RETURNS TABLE RETURN"
    else:
        head = f"TEMPORARY VIEW {view.name} AS"
    spark.sql(f"CREATE OR REPLACE {head} {view.over()}")


def ask_spark(spark: SparkSession, sql: str, bounds: QueryLimits, seconds: float | None = None) -> Answer:
    """The answer to one reading statement over the registered tables. It may take as long as it needs, unless `seconds`
    are given: who asks Spark has much to ask.
    """
    if seconds is None:
        return _asked(spark, sql, bounds)
    group = uuid.uuid4().hex
    spark.sparkContext.setJobGroup(group, "query", interruptOnCancel=True)
    deadlines = Deadlines()
    try:
        with deadlines.within(seconds, partial(spark.sparkContext.cancelJobGroup, group)) as deadline:
            return _asked(spark, sql, bounds)
    except Exception:
        if not deadline.passed:
            raise
        raise UnavailableError(
            f"the query was stopped after {seconds:g} s", hint="ask for less, or raise --seconds"
        ) from None
    finally:
        deadlines.close()


def _asked(spark: SparkSession, sql: str, bounds: QueryLimits) -> Answer:
    from pyspark.errors import AnalysisException, ParseException

    begun = time.monotonic()
    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
        command = spark._jvm.java.lang.Class.forName(_COMMAND)  # type: ignore[union-attr]
        if command.isInstance(plan):
            raise UsageError("only SELECT: tables are written by the pipeline alone")
        spark.conf.set("spark.sql.runSQLOnFiles", "false")
        found: pa.Table = spark.sql(sql).limit(bounds.rows + 1).toArrow()
    except (AnalysisException, ParseException) as error:
        raise UsageError(str(error).strip().splitlines()[0]) from None
    return Answer(found.slice(0, bounds.rows), found.num_rows > bounds.rows, time.monotonic() - begun)
