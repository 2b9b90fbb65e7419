"""The stages as `DataFrame → DataFrame`, for `df.transform`: the same pure functions the pipeline runs, on Spark's own
shuffle. For notebooks and jobs of your own; the pipeline itself does not pass through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from syncline.core.errors import UsageError
from syncline.formats.records import RECORD_SCHEMA
from syncline.lake.decode import rows_of
from syncline.lake.distinct import distinct
from syncline.lake.roots import Lake
from syncline.lake.signatures import signatures_hold
from syncline.lake.stages import Examined, KeyedRule, ProtocolStages, StateRule, built_in_stages, no_history
from syncline.lake.tables import AUDIT, REJECTED, Table
from syncline.lake.verify import Verified, unexamined, verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Transform = Callable[["DataFrame"], "DataFrame"]


def read_segments(spark: SparkSession, lake: Lake) -> DataFrame:
    """All sealed records, as they were sealed. Trusts the files: only the pipeline checks them bit by bit."""
    reader = spark.read.schema(_spark_schema(RECORD_SCHEMA)).option("recursiveFileLookup", "true")
    return reader.parquet(lake.segments.url)


def verified(records: DataFrame) -> DataFrame:
    """Records with two more columns, `lake_verdict` and `lake_reason`: what their bytes say, null if nobody can tell."""
    schema = RECORD_SCHEMA.append(pa.field("lake_verdict", pa.string())).append(pa.field("lake_reason", pa.string()))

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in _tables(batches):
            for stages, rows in _by_protocol(table):
                examined = _examined(stages, rows)
                judged = rows.append_column("lake_verdict", examined.outcome).append_column(
                    "lake_reason", examined.reason
                )
                yield from judged.cast(schema).to_batches()

    return records.mapInArrow(judge, _spark_schema(schema))


def rejects(records: DataFrame) -> DataFrame:
    """Records → rows of `rejected`, without its date: what the node or, judging again, the lake turns away."""
    return _compared(records, REJECTED, lambda found: found.rejected)


def disagreements(records: DataFrame) -> DataFrame:
    """Records → rows of `audit`, without its date: where lake and node judge the content differently."""
    return _compared(records, AUDIT, lambda found: found.differing)


def _compared(records: DataFrame, table: Table, choose: Callable[[Verified], pa.Table]) -> DataFrame:
    schema = pa.schema([field for field in table.schema if field.name != "date"])

    def compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in _tables(batches):
            for stages, own in _by_protocol(rows):
                yield from choose(verify(own, _examined(stages, own))).select(schema.names).cast(schema).to_batches()

    return records.select(RECORD_SCHEMA.names).mapInArrow(compare, _spark_schema(schema))


def signature_checked(
    public: str = "public_key", signature: str = "signature", signed: str = "signed", keep: Sequence[str] | None = None
) -> Transform:
    """Any rows with a key, a signature and the signed bytes → the same rows with `holds`, null where one is absent.

    `keep` names the columns to keep, if not all: signed bytes that nobody needs again need not travel back.
    """

    def checked(rows: DataFrame) -> DataFrame:
        from pyspark.sql.types import BooleanType, StructType

        kept = rows.columns if keep is None else list(keep)

        def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                holds = signatures_hold(*(batch.column(name) for name in (public, signature, signed)))
                yield pa.RecordBatch.from_arrays([*map(batch.column, kept), holds], [*kept, "holds"])

        return rows.mapInArrow(check, StructType([rows.schema[name] for name in kept]).add("holds", BooleanType()))

    return checked


def decoded(table: str) -> Transform:
    """Records → rows of a keyed table, without its bucket: one for each accepted arrival, copies included."""
    stages, rule = _keyed(table)
    schema = rule.table.file_schema

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in _tables(batches):
            own = rows.filter(pc.equal(rows["protocol"], stages.protocol))
            examined = stages.examine(own)
            if rule.table.name in examined.rows:  # else no record of this schema
                accepted = verify(own, examined).accepted
                yield from rows_of(rule.table, own, examined, accepted).to_batches()

    return lambda records: records.select(RECORD_SCHEMA.names).mapInArrow(decode, _spark_schema(schema))


def one_per_message(table: str) -> Transform:
    """Rows of a keyed table without further copies of the same message."""
    _, rule = _keyed(table)
    schema = rule.table.file_schema

    def drop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from distinct(pa.Table.from_batches(batches, schema), rule).to_batches()

    return lambda rows: rows.repartition(rule.table.key).mapInArrow(drop, _spark_schema(schema))


def folded(table: str, source: str = "") -> Transform:
    """Rows of the source table → the state they make, a row per key. `gaps` is made from several tables: say which."""
    stages, rule = _state(table, source)
    [source_table] = [keyed.table for keyed in stages.keyed if keyed.table.name == rule.source]
    schema, given = rule.table.file_schema, source_table.file_schema
    history = no_history(source_table)

    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches, given)
        if rows.num_rows:
            yield from rule.fold(schema.empty_table(), rows, history).to_batches()

    return lambda rows: rows.repartition(rule.on or source_table.key).mapInArrow(fold, _spark_schema(schema))


def _tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    for batch in batches:
        yield pa.Table.from_batches([batch]).cast(RECORD_SCHEMA)


def _by_protocol(table: pa.Table) -> Iterator[tuple[ProtocolStages | None, pa.Table]]:
    known = built_in_stages()
    for protocol in table["protocol"].unique().to_pylist():
        yield known.get(protocol), table.filter(pc.equal(table["protocol"], protocol))


def _examined(stages: ProtocolStages | None, rows: pa.Table) -> Examined:
    return unexamined(rows) if stages is None else stages.examine(rows)


def _keyed(table: str) -> tuple[ProtocolStages, KeyedRule]:
    [found] = [(s, rule) for s in built_in_stages().values() for rule in s.keyed if rule.table.name == table]
    return found


def _state(table: str, source: str) -> tuple[ProtocolStages, StateRule]:
    found = [
        (stages, rule)
        for stages in built_in_stages().values()
        for rule in stages.states
        if rule.table.name == table and source in ("", rule.source)
    ]
    if len(found) != 1:
        sources = ", ".join(rule.source for _, rule in found) or "nothing"
        raise UsageError(f"{table} is folded from {sources}", hint="name the source: folded(table, source)")
    return found[0]


def _spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
