"""Compares journal, tables, SQL and export with the truth of `testing.oracle`, each by itself."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from syncline.core.keys import peer_id
from syncline.core.ports import RecordQuery
from syncline.core.settings import JournalSettings, SegmentSettings
from syncline.journal import Drainer, Journal, LocalTarget
from syncline.journal.export import export
from syncline.lake import every_table
from syncline.lake.audit import audit
from syncline.lake.query import Queries, QueryLimits
from syncline.lake.roots import Lake
from syncline.lake.stages.sdsp import state_of
from syncline.protocols.sdsp.deltas import Deltas
from syncline.protocols.sdsp.session import FrameReceived, SubscriberSession
from syncline.testing.clock import FakeClock
from syncline.testing.oracle import START, Oracle, digest
from tests.lake.conftest import rows

BATCH = 20_000  # rows held at once, raw bytes included


class Node:
    """A journal with its drainer, and the clock they go by."""

    def __init__(self, folder: Path, name: str, lake: Lake) -> None:
        self.clock = FakeClock(START)
        settings = JournalSettings(refused_per_peer_hour=10**9)
        node = peer_id(hashlib.sha256(name.encode()).digest())
        self.journal = Journal.open(folder / name / "journal.db", node=node, clock=self.clock, settings=settings)
        self.drainer = Drainer(self.journal, LocalTarget(lake.segments.path), SegmentSettings())

    def keep(self, arrivals: list[Any], now: int) -> None:
        self.clock.step((now - self.clock.now()) / 1e6)
        self.journal.append_sync(arrivals)


class World:
    """Two nodes that hear an oracle's messages, and the lake their segments go to."""

    def __init__(self, folder: Path, seed: int, *, objects: int = 40) -> None:
        self.folder = folder
        self.lake, self.oracle = Lake.below(folder / "data"), Oracle(seed, objects=objects)
        self.nodes = {name: Node(folder, name, self.lake) for name in ("a", "b")}

    def hear(self, count: int, *, last: bool = False, segment: int = 2_000) -> None:
        """Let the nodes hear so many messages, and seal them in segments of about so many records."""
        for name, arrivals in self.oracle.deliver(count, last=last):
            node = self.nodes[name]
            node.keep(arrivals, self.oracle.now)
            if len(arrivals) < 500 or node.journal.newest() % segment < 500:
                node.drainer.drain()
        for node in self.nodes.values():
            node.drainer.drain()

    def close(self) -> None:
        for node in self.nodes.values():
            node.journal.close()

    def assert_journals(self) -> None:
        """Read while they run, and exported once they are closed."""
        for name, node in self.nodes.items():
            assert_journal(self.oracle, name, node.journal.batches(RecordQuery(limit=2**62)))
        self.close()
        for name in self.nodes:
            assert_journal(self.oracle, name, exported(self.folder / name / "journal.db"))

    def assert_tables(self) -> None:
        """count == distinct == expected in every table, in the rows and in SQL; live state is the lake's."""
        oracle, lake = self.oracle, self.lake
        assert_records(oracle, lake)
        for table, row_of in ROWS.items():
            found = [digest(*row) for row in row_of(lake)]
            assert len(found) == len(set(found)) == len(oracle.truth.rows[table]), table
            assert set(found) == oracle.truth.rows[table], table
        assert_objects(oracle, lake)
        assert_gaps(oracle, lake)
        assert_peers(oracle, lake)
        assert_answers(oracle, lake)
        assert live_states(oracle) == lake_states(oracle, lake)


def assert_journal(oracle: Oracle, node: str, kept: Iterable[pa.RecordBatch]) -> None:
    """Every arrival, in the order of positions, with its verdict and, unless ignored, its bytes."""
    found, count, verdicts = set[int](), 0, Counter[str]()
    for batch in kept:
        assert batch.column("lsn").to_pylist() == list(range(count + 1, count + batch.num_rows + 1))
        count += batch.num_rows
        found |= arrivals_of(batch)
        verdicts.update(batch.column("verdict").to_pylist())
    assert len(found) == count
    assert found == oracle.truth.raws[node]
    assert {(node, verdict): count for verdict, count in verdicts.items()} == {
        key: count for key, count in oracle.truth.arrivals.items() if key[0] == node
    }


def arrivals_of(batch: pa.RecordBatch) -> set[int]:
    """What the truth says of each of these arrivals."""
    columns = (batch.column("received_at").cast(pa.int64()), batch.column("verdict"), batch.column("raw"))
    return {digest(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)}


def exported(journal: Path) -> Iterator[pa.RecordBatch]:
    out = journal.with_name("export.parquet")
    with out.open("wb") as file:
        export(journal, RecordQuery(limit=2**62), file, "parquet")
    with pq.ParquetFile(out) as file:
        yield from file.iter_batches(BATCH)
    out.unlink()


def batches(lake: Lake, table: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """These columns of a table, a part of its rows at a time: all of them may be more than memory holds."""
    dataset = DeltaTable(lake.table(table).url).to_pyarrow_dataset()
    yield from dataset.to_batches(columns=list(names), batch_size=BATCH, batch_readahead=1, fragment_readahead=1)


def assert_records(oracle: Oracle, lake: Lake) -> None:
    found, positions, count = set[int](), dict[tuple[str, str], set[int]](), 0
    for batch in batches(lake, "records", ("node", "epoch", "lsn", "received_at", "verdict", "raw")):
        for node, epoch, lsn in zip(
            *(batch.column(name).to_pylist() for name in ("node", "epoch", "lsn")), strict=True
        ):
            positions.setdefault((node, epoch), set()).add(lsn)
        found |= arrivals_of(batch)
        count += batch.num_rows
    assert sum(map(len, positions.values())) == count == sum(oracle.truth.arrivals.values())
    assert found == oracle.truth.raws["a"] | oracle.truth.raws["b"]
    judges = Counter(
        judge for batch in batches(lake, "rejected", ["judged_by"]) for judge in batch.column(0).to_pylist()
    )
    assert judges == {"node": oracle.truth.rejected}


def columns_of(table: str, *names: str) -> Callable[[Lake], Iterator[tuple[Any, ...]]]:
    """The rows of a table, as the truth puts them: numbers as int, times in microseconds, bytes as hex."""

    def read(lake: Lake) -> Iterator[tuple[Any, ...]]:
        for batch in batches(lake, table, names):
            yield from zip(*(plain(batch.column(name)) for name in names), strict=True)

    return read


def plain(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        found: list[Any] = column.cast(pa.int64()).to_pylist()
        return found
    values = column.to_pylist()
    if pa.types.is_decimal(column.type):
        return [int(value) for value in values]
    return [value.hex() if isinstance(value, bytes) else value for value in values]


def publications(lake: Lake) -> Iterator[tuple[Any, ...]]:
    names = ("topic", "publisher", "seq", "name")
    for batch in batches(lake, "svs_publications", (*names, "payload", "complete", "conflicting")):
        assert set(batch.column("complete").to_pylist()) <= {True}
        assert set(batch.column("conflicting").to_pylist()) <= {False}
        payloads = [hashlib.sha256(payload).hexdigest() for payload in batch.column("payload").to_pylist()]
        yield from zip(*(plain(batch.column(name)) for name in names), payloads, strict=True)


def notifications(lake: Lake) -> Iterator[tuple[Any, ...]]:
    """The id of a notification ends with the sequence number its author gave it."""
    for publisher, height, data_hash, id_ in columns_of(
        "shrex_notifications", "publisher", "height", "data_hash", "id"
    )(lake):
        yield publisher, height, data_hash, int(id_[-16:], 16)


ROWS: dict[str, Callable[[Lake], Iterator[tuple[Any, ...]]]] = {
    "relay_messages": columns_of("relay_messages", "topic", "message", "tag", "prompt", "ttl", "published_at"),
    "sds_messages": columns_of("sds_messages", "record_id", "schema", "author", "publish_id"),
    "sds_omm": columns_of("sds_omm", "record_id", "author", "subject", "MEAN_MOTION", "epoch_at"),
    "sds_cdm": columns_of("sds_cdm", "record_id", "author", "subject", "MISS_DISTANCE", "tca_at"),
    "sds_epm": lambda lake: (
        (*row, None) for row in columns_of("sds_epm", "record_id", "author", "subject", "LEGAL_NAME")(lake)
    ),
    "sdsp_frames": columns_of("sdsp_frames", "uid", "serial", "ver", "frame"),
    "svs_packets": columns_of("svs_packets", "publisher", "seq", "segment"),
    "svs_publications": publications,
    "headers": columns_of("headers", "chain_id", "height", "hash", "data_hash"),
    "shrex_notifications": notifications,
    "shrex_results": columns_of("shrex_results", "peer", "height", "result", "received_at"),
}


def assert_objects(oracle: Oracle, lake: Lake) -> None:
    states = {row["uid"]: state_of(row) for row in rows(lake, "sdsp_objects").to_pylist() if row["serial"] is not None}
    assert {uid: (state.serial, state.value) for uid, state in states.items()} == oracle.expected_objects()


def assert_gaps(oracle: Oracle, lake: Lake) -> None:
    found = rows(lake, "gaps").to_pylist()
    assert not [row for row in found if row["protocol"] == "journal"]
    missing: Counter[tuple[str, str]] = Counter()
    for row in found:
        missing[row["protocol"], row["series"]] += int(row["missing"])
        assert (row["closed_at"] is None) == (row["missing"] > 0)
    assert dict(+missing) == oracle.missing()
    assert any(row["missing"] == 0 for row in found), "some gaps were closed"


def assert_peers(oracle: Oracle, lake: Lake) -> None:
    found = rows(lake, "shrex_peers")
    assert dict(zip(found["peer"].to_pylist(), found["requests"].to_pylist(), strict=True)) == oracle.truth.peers


def assert_answers(oracle: Oracle, lake: Lake) -> None:
    """SQL counts as the truth does, and has nothing to complain of."""
    identities = {table.name: table.identity for table in every_table()}
    with Queries(lake, every_table(), QueryLimits(seconds=600)) as queries:
        for table, truth in oracle.truth.rows.items():
            asked = f"SELECT count(*) AS n, count(DISTINCT ({', '.join(identities[table])})) AS d FROM {table}"
            assert queries.ask(asked).rows.to_pylist() == [{"n": len(truth), "d": len(truth)}], table
        assert audit(queries) == []
        assert queries.ask("SELECT count(*) AS n FROM audit").rows.to_pylist() == [{"n": 0}]


def whole_objects(oracle: Oracle) -> set[str]:
    """Objects all of whose frames, from the first on, arrived: a live subscriber that joined then follows these."""
    return {
        uid
        for uid, (serial, _) in oracle.expected_objects().items()
        if oracle.truth.numbers["sdsp", uid] == set(range(serial + 1))
    }


def live_states(oracle: Oracle) -> dict[str, bytes]:
    """What live subscribers make of the frames in the order in which they came."""
    deltas, chosen = Deltas.installed(), whole_objects(oracle)
    sessions = {uid: SubscriberSession(uid, deltas, random=lambda: 0.5) for uid in chosen}
    for frame in oracle.frames:
        if frame.uid in sessions:
            sessions[frame.uid].receive(FrameReceived(frame), 0.0)
    return {uid: session.state.to_bytes() for uid, session in sessions.items() if session.state is not None}


def lake_states(oracle: Oracle, lake: Lake) -> dict[str, bytes]:
    chosen = whole_objects(oracle)
    assert len(chosen) > 10
    found = rows(lake, "sdsp_objects").to_pylist()
    return {row["uid"]: state_of(row).to_bytes() for row in found if row["uid"] in chosen}
