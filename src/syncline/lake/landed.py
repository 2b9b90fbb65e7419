"""Which segments a table holds. The answer is in the table's own log, written by the commit that added the rows, so
that neither a lost checkpoint nor a replayed batch nor a second pipeline can land a segment twice.

delta-rs answers for one name at a time, in a time that grows with the number of names; many at once are read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from syncline.lake.roots import Root
from syncline.lake.segments import Segment

LOG: Final = "_delta_log"
SEGMENT_PREFIX: Final = "seg/"
CHAIN_PREFIX: Final = "lsn/"
BATCH_PREFIX: Final = "batch/"
_COMMIT: Final = re.compile(rf"{LOG}/(\d{{20}})\.json")
_CHECKPOINT: Final = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint(?:\..+)?\.parquet")


def segment_name(segment: Segment) -> str:
    """The application id under which a table remembers a segment."""
    return SEGMENT_PREFIX + segment.path


def chain_name(segment: Segment) -> str:
    """The application id whose version is the newest lsn of a chain that a table holds."""
    return CHAIN_PREFIX + segment.chain


def is_of_protocol(name: str, protocol: str) -> bool:
    """Whether an application id names a segment, or the newest position, of this protocol. Of the journal: of any."""
    if protocol == "journal":
        return name.startswith((SEGMENT_PREFIX, CHAIN_PREFIX))
    return name.startswith(f"{SEGMENT_PREFIX}protocol={protocol}/") or (
        name.startswith(CHAIN_PREFIX) and name.endswith(f"/{protocol}")
    )


def newest_of_chains(segments: Iterable[Segment]) -> dict[str, int]:
    """The highest lsn of each chain among these segments."""
    newest: dict[str, int] = {}
    for segment in segments:
        name = chain_name(segment)
        newest[name] = max(segment.hi, newest.get(name, 0))
    return newest


class _Transaction(msgspec.Struct, rename="camel"):
    app_id: str
    version: int


class _Line(msgspec.Struct):
    txn: _Transaction | None = None


_LINES: Final = msgspec.json.Decoder(_Line)


def next_commit(root: Root, version: int) -> Path:
    """The file that appears in a local table's log when somebody commits after `version`."""
    return root.path / LOG / f"{version + 1:020d}.json"


def read_transactions(root: Root, version: int, wanted: Iterable[str] | None = None) -> dict[str, int]:
    """Every application id of a Delta table with its version, as of the table's `version`; or only the wanted ones, which
    keeps memory as small as they are.
    """
    names = None if wanted is None else pa.array(wanted, pa.string())
    filesystem = root.filesystem()
    infos = filesystem.get_file_info(pafs.FileSelector(LOG))
    paths = [info.path for info in infos if info.type == pafs.FileType.File]
    start = max(
        (int(m[1]) for path in paths if (m := _CHECKPOINT.fullmatch(path)) and int(m[1]) <= version), default=-1
    )
    found: dict[str, int] = {}
    for path in paths:
        match = _CHECKPOINT.fullmatch(path)
        if match and int(match[1]) == start:
            found.update(_of_checkpoint(filesystem, path, names))
    for path in sorted(paths):
        match = _COMMIT.fullmatch(path)
        if match and start < int(match[1]) <= version:
            found.update(_of_commit(filesystem, path))
    if names is None:
        return found
    return {name: found[name] for name in names.to_pylist() if name in found}


def _of_checkpoint(filesystem: Any, path: str, names: pa.Array | None) -> dict[str, int]:
    found: dict[str, int] = {}
    with filesystem.open_input_file(path) as stream:
        for batch in pq.ParquetFile(stream).iter_batches(columns=["txn"], use_threads=False):
            entries = batch.column("txn").drop_null()
            apps, versions = entries.field("appId"), entries.field("version")
            if names is not None:
                kept = pc.is_in(apps, value_set=names)
                apps, versions = apps.filter(kept), versions.filter(kept)
            found.update(zip(apps.to_pylist(), versions.to_pylist(), strict=True))
    found.pop(None, None)  # type: ignore[call-overload]
    return found


def _of_commit(filesystem: Any, path: str) -> dict[str, int]:
    with filesystem.open_input_file(path) as file:
        lines = file.read().splitlines()
    decoded = (_LINES.decode(line) for line in lines if b'"txn"' in line[:16])
    return {line.txn.app_id: line.txn.version for line in decoded if line.txn is not None}
