"""From segments to tables: one Structured Streaming query notices sealed segments, each batch of them is landed exactly
once. Spark's checkpoint remembers what was handed out; whether a segment is in a table is asked of the table itself, so
losing the checkpoint costs time, not rows. What happens to a batch, batch says.

The stream carries the segments' names only: executors read them with pyarrow, which keeps columns as columns, checks
checksums, and lets one damaged file be put aside instead of failing the query.
"""

from __future__ import annotations

import datetime
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from syncline.core import limits
from syncline.core.crash import crash_point
from syncline.core.errors import SynclineError, UnavailableError
from syncline.lake.batch import BatchResult, Lander, clear_left_exchanges
from syncline.lake.deltas import BatchName
from syncline.lake.land import Damaged
from syncline.lake.landed import chain_name
from syncline.lake.lock import only_pipeline
from syncline.lake.roots import Lake
from syncline.lake.runner import OnSpark
from syncline.lake.segments import Segment, list_segments, parse_path, quarantine
from syncline.lake.stages import Stages, built_in_stages
from syncline.lake.tables import RECORDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT: Final = "lake"
CRASH_POINTS: Final = ("lake.batch_done",)
FILES: Final = "path string, modificationTime timestamp, length long, content binary"
_FOREIGN: Final = "no segment is named so"
log = structlog.get_logger("syncline.lake")


class Lag(msgspec.Struct, frozen=True):
    """How far the tables are behind what the nodes have sealed."""

    segments: int = 0
    records: int = 0  # at most: the distance in lsn, which counts other protocols' records too


class RunSummary(msgspec.Struct, kw_only=True):
    """What a run did, in all."""

    batches: int = 0
    segments: int = 0
    records: int = 0
    added: dict[str, int] = msgspec.field(default_factory=dict)
    damaged: list[Damaged] = msgspec.field(default_factory=list)
    damaged_count: int = 0
    differing: int = 0
    seconds: float = 0.0

    def count(self, result: BatchResult) -> None:
        self.batches += 1
        self.segments += result.segments
        self.records += result.records
        self.differing += result.differing
        self.damaged_count += len(result.damaged)
        self.damaged += result.damaged[: limits.LAKE_PROBLEMS - len(self.damaged)]
        for name, rows in result.added.items():
            self.added[name] = self.added.get(name, 0) + rows


class Pipeline:
    """Lands the segments of one lake. `on_batch` hears of every batch that did something."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        *,
        stages: Stages | None = None,
        buckets: int = limits.LAKE_BUCKETS,
        batch_segments: int = limits.LAKE_BATCH_SEGMENTS,
        on_batch: Callable[[BatchResult], None] | None = None,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._batch_segments = batch_segments
        self._on_batch = on_batch
        self._lander = Lander(lake, built_in_stages() if stages is None else stages, OnSpark(spark), buckets=buckets)
        self._working = threading.Lock()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self.summary = RunSummary()
        self.last_lag = Lag()  # as of the last look

    def run_available(self) -> RunSummary:
        """Land everything sealed so far, then return."""
        begun = time.monotonic()
        with only_pipeline(self._lake):
            clear_left_exchanges(self._lake, alone=True)
            if self._lake.segments.is_local:
                self._wait(self._start({"availableNow": True}))
            self.sweep()
        self.summary.seconds = time.monotonic() - begun
        return self.summary

    def run(self, seconds: float = 10.0, sweep_seconds: float = limits.LAKE_SWEEP_SECONDS) -> RunSummary:
        """Land segments as they are sealed, looking every `seconds`, until `stop` is called from another thread."""
        begun = swept = time.monotonic()
        with only_pipeline(self._lake):
            clear_left_exchanges(self._lake, alone=True)
            if not self._lake.segments.is_local:
                self._look_again(seconds, sweep_seconds)
                self.summary.seconds = time.monotonic() - begun
                return self.summary
            query = self._start({"processingTime": f"{seconds} seconds"})
            looked = begun
            try:
                while not self._stopping.wait(0.2) and query.isActive:
                    if time.monotonic() - looked > limits.LAKE_LAG_SECONDS:
                        with self._working:
                            self.lag(_yesterday())
                        looked = time.monotonic()
                    if time.monotonic() - swept > sweep_seconds:
                        self.sweep()
                        swept = time.monotonic()
            finally:  # whatever ends it: no query goes on without the lock
                with self._working:  # never in the middle of a batch
                    self._stopping.set()
                    query.stop()
            self._wait(query)
        self.summary.seconds = time.monotonic() - begun
        return self.summary

    def _look_again(self, seconds: float, sweep_seconds: float) -> None:
        """Sweep for ever: pip's Spark cannot list an object store. The tables know what they hold, so nothing is lost
        by having no checkpoint. Most looks are at today and yesterday alone, so that they do not grow with history.
        """
        swept = -math.inf
        while True:
            thorough = time.monotonic() - swept > sweep_seconds
            try:
                self.sweep("" if thorough else _yesterday())
                self.lag(_yesterday())
                swept = time.monotonic() if thorough else swept
            except (UnavailableError, OSError) as error:  # a store that does not answer now is asked again
                log.warning("lake.unavailable", error=str(error))
            if self._stopping.wait(seconds):
                return

    def stop(self) -> None:
        """Ask `run` to return after the batch at hand."""
        self._stopping.set()

    def sweep(self, since: str = "") -> None:
        """Land what the stream passed over: empty files, which Spark does not hand out, and segments put back from
        quarantine, whose names it has seen before. With `since`, a date, earlier days are not looked at.
        """
        for found in _chunks(list_segments(self._lake.segments, since), limits.LAKE_LOOK_SEGMENTS):
            with self._working:  # many are asked about at once: each time, the tables' logs are read from their start
                lacking = self._lander.lacking([item for item in found if isinstance(item, Segment)])
            waiting = (item for item in found if not isinstance(item, Segment) or item in lacking)
            for chunk in _chunks(waiting, self._batch_segments):
                with self._working:
                    if self._stopping.is_set():
                        return
                    self._land(chunk, None)

    def lag(self, since: str = "") -> Lag:
        """What is sealed and not landed. With `since`, a date, earlier days are not looked at."""
        records = self._lander.table(RECORDS)
        records.refresh()
        segments = 0
        behind: dict[str, int] = {}
        for found in _chunks(list_segments(self._lake.segments, since), limits.LAKE_LOOK_SEGMENTS):
            waiting = records.lacking([item for item in found if isinstance(item, Segment)])
            newest = records.newest(chain_name(segment) for segment in waiting)
            for segment in waiting:
                distance = segment.hi - max(newest[chain_name(segment)], segment.lo - 1)
                behind[segment.chain] = behind.get(segment.chain, 0) + max(distance, 0)
            segments += len(waiting)
        self.last_lag = Lag(segments, sum(behind.values()))
        return self.last_lag

    def _start(self, trigger: dict[str, Any]) -> StreamingQuery:
        from py4j.protocol import Py4JJavaError

        self._lake.segments.filesystem()  # makes the folder, which the stream needs
        files = (
            self._spark.readStream.format("binaryFile")
            .schema(FILES)
            .option("recursiveFileLookup", "true")
            .option("pathGlobFilter", "*.parquet")
            .option("maxFilesPerTrigger", self._batch_segments)
            .option("maxFileAge", "36500d")  # Spark would pass over files that look a week older than the newest
            .option("ignoreMissingFiles", "true")  # quarantined, or removed after landing, since the batch was planned
            .load(self._lake.segments.url)
            .select("path", "length")  # the content is never read by Spark
        )
        writer = files.writeStream.foreachBatch(self._on_files)
        checkpoint = self._lake.checkpoints.below(CHECKPOINT).url
        try:
            return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        except Py4JJavaError as error:
            raise SynclineError(
                f"Spark could not begin: {error.java_exception}",
                hint="is the checkpoint of another program there?",
                about=checkpoint,
            ) from error

    def _on_files(self, files: DataFrame, number: int) -> None:
        try:
            query = files.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            found = [_segment_of(row.path, row.length) for row in files.collect()]
            with self._working:
                if self._stopping.is_set():
                    raise _StoppedError("stopped before the batch began")
                self._land(found, BatchName(str(query), number))
            crash_point("lake.batch_done")
        except BaseException as error:
            self._failure = error  # Spark keeps only its text
            raise

    def _land(self, found: Sequence[Segment | str], batch: BatchName | None) -> None:
        segments = [item for item in found if isinstance(item, Segment)]
        foreign = [item for item in found if not isinstance(item, Segment)]
        result = self._lander.land(segments, batch)
        for path in foreign:
            quarantine(self._lake.segments, path, _FOREIGN)
            log.error("lake.damaged", path=path, why=_FOREIGN)
        strangers = [Damaged(path, _FOREIGN) for path in foreign]
        result = msgspec.structs.replace(result, damaged=[*result.damaged, *strangers])
        if result.segments or result.damaged:
            self.summary.count(result)
            if self._on_batch is not None:
                self._on_batch(result)

    def _wait(self, query: StreamingQuery) -> None:
        from pyspark.errors import StreamingQueryException

        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if isinstance(self._failure, _StoppedError):
                return
            if self._failure is not None:
                raise self._failure from error
            raise


class _StoppedError(SynclineError):
    """Ends a batch that had not begun when the pipeline was stopped."""


def _segment_of(url: str, size: int) -> Segment | str:
    path = "/".join(url.split("/")[-3:])
    return parse_path(path, size) or path


def _yesterday() -> str:
    """Segments sealed from now on are of this day or a later one, unless a node was away or its clock is wrong; those are
    found by the next thorough look.
    """
    return (datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(1)).isoformat()


def _chunks(found: Iterator[Segment | str], size: int) -> Iterator[list[Segment | str]]:
    chunk: list[Segment | str] = []
    for item in found:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
