"""From what a protocol read out of the bytes to rows of its tables: only what was accepted, with the columns of the
record each row came from. The reading itself is the protocol's (stages, columns).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from syncline.lake.stages import RECORD, Examined
from syncline.lake.tables import Table
from syncline.lake.verify import Mask


def rows_of(table: Table, records: pa.Table, examined: Examined, accepted: Mask) -> pa.Table:
    """The rows of `table` that the accepted records hold, in the columns of its files."""
    found = examined.rows[table.name]
    positions = np.asarray(found[RECORD])
    keep = accepted[positions]
    if not keep.all():
        found, positions = found.filter(pa.array(keep)), positions[keep]
    origin = records if _is_identity(positions, records.num_rows) else records.take(pa.array(positions))
    columns = [
        found[column.name] if column.name in found.column_names else origin[column.origin or column.name]
        for column in table.file_columns
    ]
    return pa.Table.from_arrays(columns, schema=table.file_schema)


def _is_identity(positions: np.ndarray[tuple[int], np.dtype[np.int64]], count: int) -> bool:
    return len(positions) == count and bool((positions == np.arange(count)).all())
