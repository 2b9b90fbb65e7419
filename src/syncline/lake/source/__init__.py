"""`format("syncline")` for Spark: tables of a lake, the live feed of nodes, and publishing through a node.

Only the door: says which options there are and which of the three rooms is meant. PySpark finds it through the package
`pyspark_syncline`, so nothing needs to be registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter
    from pyspark.sql.types import StructType


class SynclineSource(DataSource):
    """The options are in docs/spark.md; Spark does not care for their case."""

    @classmethod
    def name(cls) -> str:
        return "syncline"

    def schema(self) -> StructType:
        if "table" in self.options or "path" in self.options:
            from syncline.lake.source.tables import table_schema

            return table_schema(self.options)
        from syncline.lake.source.feed import feed_schema

        return feed_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        from syncline.lake.source.tables import TableReader

        return TableReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from syncline.lake.source.feed import FeedReader

        return FeedReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from syncline.lake.source.publish import Publisher

        return Publisher(self.options, schema)
