"""Whole Arrow batches of buffers to typed columns by numpy gathers, every buffer checked as `Reader` checks it.

No loop runs over rows. A bad buffer is flagged with its fault and gives a row of nulls; it never raises, and it cannot
make a neighbour's bytes show up in its row.
"""

from syncline.formats.flatbuffers.columns.decode import ColumnDecoder, Columns
from syncline.formats.flatbuffers.columns.layout import Layout

__all__ = ["ColumnDecoder", "Columns", "Layout"]
