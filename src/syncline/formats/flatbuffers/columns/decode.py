"""The public face of column decoding: choose a schema and columns once, then hand in batch after batch."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from syncline.formats.flatbuffers.columns import arrow
from syncline.formats.flatbuffers.columns.layout import Layout
from syncline.formats.flatbuffers.columns.rows import Rows
from syncline.formats.flatbuffers.columns.run import Run
from syncline.formats.flatbuffers.schema import Schema


class Columns(msgspec.Struct, frozen=True):
    """The columns of a batch, and per row what was wrong with it (a `Fault`, 0 for nothing)."""

    batch: pa.RecordBatch
    faults: npt.NDArray[np.uint8]


class ColumnDecoder:
    """Decodes size-prefixed buffers of one schema. Holds no state between calls.

    `fields` chooses columns. With `partial` the rest is not even looked at: faster, and right for buffers that were
    verified before; without it every buffer is verified whole whatever is chosen. `defaults=False` leaves absent scalars
    null instead of giving them their default. `strict` asserts that no gather leaves its row.
    """

    def __init__(
        self,
        schema: Schema,
        fields: Collection[str] | None = None,
        *,
        partial: bool = False,
        defaults: bool = True,
        strict: bool = False,
    ) -> None:
        self.layout = Layout(schema, fields, partial=partial)
        self._identifier = int.from_bytes(schema.identifier, "little")
        self._defaults = defaults
        self._strict = strict
        self._names = {name: arrow.Names(enum.values) for name, enum in schema.enums.items()}
        self._names |= {name: arrow.Names(union.values) for name, union in schema.unions.items()}

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out."""
        return self.layout.arrow

    def decode(self, payloads: pa.Array | pa.ChunkedArray) -> Columns:
        """The columns of a binary array. A null is a bad row like any other.

        Batches of about ten thousand rows are fastest: what is gathered stays in the cache.
        """
        if isinstance(payloads, pa.ChunkedArray):
            payloads = payloads.combine_chunks()
        run = Run(Rows(payloads.cast(pa.binary()), strict=self._strict), self._names, defaults=self._defaults)
        found = run.root(self.layout.table, self._identifier)
        chosen = [found[position] for position in self.layout.positions]
        faults = run.rows.fault
        if faults.any():
            chosen = arrow.blanked(chosen, faults != 0)
        return Columns(pa.RecordBatch.from_arrays(chosen, schema=self.layout.arrow), faults)
