"""Raw bytes that were too large for a segment, fetched by their reference when a record is looked at. A reference is the
SHA-256 of the bytes, so what comes back is checked; nodes write them (journal/blobs).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import numpy as np
import pyarrow as pa

from syncline.core.errors import CorruptionError
from syncline.lake.roots import Root

AT_ONCE: Final = 4  # references whose bytes are in memory together; each may be as large as a message may be


def read_blob(root: Root, ref: str) -> bytes:
    """The bytes of a reference. Raises CorruptionError if they are gone or not those."""
    path = f"{ref[:2]}/{ref}" if root.is_local else ref
    try:
        with root.filesystem().open_input_file(path) as file:
            data: bytes = file.read()
    except FileNotFoundError:
        raise CorruptionError("raw bytes that a record refers to are gone", about=ref) from None
    if sha256(data).hexdigest() != ref:
        raise CorruptionError("raw bytes do not match their hash", about=ref)
    return data


def pieces(records: pa.Table) -> Iterator[pa.Table]:
    """The records in consecutive parts, none with more than a few references."""
    refers = np.asarray(records["raw_ref"].is_valid())
    start = 0
    for end in np.flatnonzero(refers)[AT_ONCE::AT_ONCE].tolist():
        yield records.slice(start, end - start)
        start = end
    yield records.slice(start)


def with_raw(records: pa.Table, root: Root) -> tuple[pa.Table, list[CorruptionError]]:
    """The records with the bytes they refer to in `raw`; those that cannot be had stay null, and are told."""
    if records["raw_ref"].null_count == records.num_rows:
        return records, []
    problems: list[CorruptionError] = []
    raws: list[Any] = records["raw"].to_pylist()
    for position, ref in enumerate(records["raw_ref"].to_pylist()):
        if ref is not None:
            try:
                raws[position] = read_blob(root, ref)
            except CorruptionError as error:
                problems.append(error)
    index = records.schema.get_field_index("raw")
    return records.set_column(index, records.schema.field(index), pa.array(raws, pa.binary())), problems
