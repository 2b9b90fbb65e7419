"""How rows of one key meet: decoded rows are written by the task that decoded them, bucket by bucket, into one Arrow
file, and read from all such files by the task that owns the bucket. Works on any storage the tables are on.

This is a shuffle without rows: Spark's own would turn every Arrow batch into rows and back, twice.
"""

from __future__ import annotations

import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from syncline.lake.roots import make_folder


class Parcel(msgspec.Struct, frozen=True):
    """Rows of one table and one bucket: some batches of one exchange file."""

    table: str
    bucket: int
    path: str
    batches: list[int]
    rows: int


def buckets_of(keys: pa.ChunkedArray | pa.Array, count: int) -> npt.NDArray[np.int32]:
    """The bucket of each key: the CRC-32 of its text, so that any program can compute it."""
    encoded = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    encoded = pc.dictionary_encode(encoded)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    hashed = np.array([bucket_of(key, count) for key in encoded.dictionary.to_pylist()], np.int32)
    found: npt.NDArray[np.int32] = hashed[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def bucket_of(key: str, count: int) -> int:
    return zlib.crc32(key.encode()) % count


class ExchangeWriter:
    """One task's outgoing rows of one table."""

    def __init__(self, filesystem: Any, folder: str, table: str, schema: pa.Schema) -> None:
        self._filesystem = filesystem
        self._path = f"{folder}/{table}-{uuid.uuid4().hex}.arrow"
        self._table = table
        self._schema = schema
        self._writer: ipc.RecordBatchFileWriter | None = None
        self._stream: Any = None
        self._batches: defaultdict[int, list[int]] = defaultdict(list)
        self._rows: defaultdict[int, int] = defaultdict(int)
        self._count = 0

    def write(self, rows: pa.Table, buckets: npt.NDArray[np.int32]) -> None:
        if rows.num_rows == 0:
            return
        if self._writer is None:
            make_folder(self._filesystem, self._path.rpartition("/")[0])
            self._stream = self._filesystem.open_output_stream(self._path)
            options = ipc.IpcWriteOptions(compression="lz4")
            self._writer = ipc.new_file(self._stream, self._schema, options=options)
        order = np.argsort(buckets, kind="stable")
        ordered = rows.take(pa.array(order))
        present, starts = np.unique(buckets[order], return_index=True)
        for bucket, start, end in zip(present.tolist(), starts, [*starts[1:], len(order)], strict=True):
            for batch in ordered.slice(start, end - start).combine_chunks().to_batches():
                self._writer.write_batch(batch)
                self._batches[bucket].append(self._count)
                self._count += 1
            self._rows[bucket] += int(end - start)

    def close(self) -> list[Parcel]:
        if self._writer is not None:
            self._writer.close()
            self._stream.close()
        return [
            Parcel(self._table, bucket, self._path, batches, self._rows[bucket])
            for bucket, batches in sorted(self._batches.items())
        ]


def read_parcels(filesystem: Any, parcels: Iterable[Parcel], schema: pa.Schema) -> pa.Table:
    """The rows of these parcels, in their order."""
    return pa.Table.from_batches(_batches(filesystem, parcels), schema)


def _batches(filesystem: Any, parcels: Iterable[Parcel]) -> Iterator[pa.RecordBatch]:
    for parcel in parcels:
        with filesystem.open_input_file(parcel.path) as stream, ipc.open_file(stream) as file:
            for index in parcel.batches:
                yield file.get_batch(index)
