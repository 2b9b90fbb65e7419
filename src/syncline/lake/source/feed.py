"""`spark.readStream.format("syncline")`: what live nodes keep, as it is committed, a partition for each node.

An offset says for every node how far its journal has been read: its epoch and the lsn. A batch is the records between two
offsets, so reading it again gives the same rows, and a query that was killed goes on where its checkpoint is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from syncline.core import limits
from syncline.core.errors import ConflictError, CorruptionError, UnreachableError, UsageError
from syncline.formats.records import RECORD_SCHEMA
from syncline.lake.source.options import addresses, choice, client, number

FILTERS: Final = ("protocol", "topic", "kind", "key", "publisher", "verdict", "reason")
ARROW: Final = {"accept": "application/vnd.apache.arrow.stream"}
log = structlog.get_logger("syncline.lake")
Offset = dict[str, dict[str, Any]]  # by node


def feed_schema() -> StructType:
    return from_arrow_schema(RECORD_SCHEMA)


class NodeState(msgspec.Struct, frozen=True):
    """Where a node's journal stands."""

    address: str
    node: str
    epoch: str
    newest: int


class Stretch(InputPartition):
    """Records of one node after one lsn up to another."""

    def __init__(self, address: str, epoch: str, after: int, upto: int) -> None:
        super().__init__(f"{address} {epoch}/{after}..{upto}")
        self.address = address
        self.epoch = epoch
        self.after = after
        self.upto = upto


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Asks nodes how far they are, and plans what to read of each."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        self._addresses = addresses(options, several=True)
        self._filters = {name: options[name] for name in FILTERS if name in options}
        self._start = choice(options, "start", "earliest", "latest")
        self._on_loss = choice(options, "onloss", "fail", "continue")
        self._most = int(number(options, "maxrecords", limits.FEED_BATCH_RECORDS, 1))
        self._schema = schema
        self._target: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        if self._start == "earliest":
            return {}
        return {state.node: _at(state.address, state.epoch, state.newest) for state in self._states(must_answer=True)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """As far as the nodes are, or as far as one batch may go. A node that does not answer stays where it was."""
        most = None if isinstance(limit, ReadAllAvailable) else getattr(limit, "maxRows", self._most)
        reached = self._reached() if self._target is None else self._target
        end = dict(start)
        for node, place in reached.items():
            before = start.get(node)
            if before is not None and before["epoch"] != place["epoch"]:
                self._lost(f"node {node} began a new journal", "its records since the last batch are in the lake alone")
                before = None
            done = 0 if before is None else before["lsn"]
            newest = place["lsn"] if most is None else min(place["lsn"], done + most)
            end[node] = _at(place["address"], place["epoch"], max(newest, done))
        return end

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._reached()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Stretch]:
        """What is to be read of each node. A batch planned before the query was started anew may name an address under
        which a node is no longer: it is looked for among those of the options.
        """
        found = {node: part for node, place in end.items() if (part := _stretch(start.get(node), place)) is not None}
        if any(part.address not in self._addresses for part in found.values()):
            for state in self._states():
                if state.node in found:
                    found[state.node].address = state.address
        return [part for _, part in sorted(found.items())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one stretch. What the node has forgotten meanwhile is noticed, not passed over."""
        assert isinstance(partition, Stretch)
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        after = partition.after
        with client(partition.address, self._options) as node:
            if self._filters:
                self._check_first(node, partition)
            while after < partition.upto:
                query = {"epoch": partition.epoch, "after": after, "limit": limits.API_PAGE_RECORDS, **self._filters}
                try:
                    page = node.get("/api/v1/records", query, ARROW)
                except ConflictError:
                    self._lost(f"{partition.address} began a new journal", "the rest of the old one is in the lake")
                    return
                rows = pa.ipc.open_stream(page.content).read_all()
                rows = rows.filter(pc.less_equal(rows["lsn"], partition.upto))
                if not self._filters:
                    self._check_row(rows["lsn"].to_pylist(), after, partition)
                following = min(int(page.headers["syncline-next"]), partition.upto)
                if following <= after:
                    self._lost(
                        f"{partition.address} ends at {partition.epoch}/{after}, and was further before",
                        "its journal was put back from a copy; what it had more is in the lake",
                    )
                    return
                after = following
                yield from rows.select(wanted.names).cast(wanted).combine_chunks().to_batches()

    def _check_first(self, node: Any, part: Stretch) -> None:
        """With filters, records that do not match leave holes; only the first record tells whether any are gone."""
        page = node.get("/api/v1/records", {"epoch": part.epoch, "after": part.after, "limit": 1}, ARROW)
        self._check_row(pa.ipc.open_stream(page.content).read_all()["lsn"].to_pylist(), part.after, part)

    def _check_row(self, lsns: list[int], after: int, part: Stretch) -> None:
        """A journal numbers its records without holes: one means that retention was faster than this query."""
        expected = min(part.upto - after, len(lsns)) if lsns else 0
        if lsns != list(range(after + 1, after + 1 + expected)) or not lsns:
            self._lost(
                f"{part.address} has forgotten records after {part.epoch}/{after}",
                "read them from the lake, or raise journal.retention_hours",
            )

    def _reached(self) -> Offset:
        return {state.node: _at(state.address, state.epoch, state.newest) for state in self._states()}

    def _states(self, *, must_answer: bool = False) -> list[NodeState]:
        found: list[NodeState] = []
        for address in self._addresses:
            try:
                with client(address, self._options) as node:
                    told = node.get("/api/v1/status").json()
            except UnreachableError as error:
                if must_answer:
                    raise
                log.warning("feed.unreachable", node=address, error=str(error))
                continue
            found.append(NodeState(address, told["node"], told["epoch"], told["newest"]))
        if len({state.node for state in found}) != len(found):
            raise UsageError("two addresses lead to one node", about=", ".join(state.address for state in found))
        return found

    def _lost(self, what: str, hint: str) -> None:
        if self._on_loss == "fail":
            raise CorruptionError(what, hint=f'{hint}; .option("onLoss", "continue") goes on without them')
        log.warning("feed.lost", what=what)


def _at(address: str, epoch: str, lsn: int) -> dict[str, Any]:
    return {"address": address, "epoch": epoch, "lsn": lsn}


def _stretch(before: dict[str, Any] | None, place: dict[str, Any]) -> Stretch | None:
    same = before is not None and before["epoch"] == place["epoch"]
    after = before["lsn"] if before is not None and same else 0
    return Stretch(place["address"], place["epoch"], after, place["lsn"]) if after < place["lsn"] else None
