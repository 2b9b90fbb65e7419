"""A streaming job of a user's own, for tests to kill: a node's feed into Parquet, or a folder of rows to a node."""

from __future__ import annotations

import sys

from syncline.lake.session import SessionOptions, start_session


def main(direction: str, node: str, folder: str) -> None:
    spark = start_session(SessionOptions(master="local[2]"))
    print("started", flush=True)
    if direction == "read":
        rows = spark.readStream.format("syncline").option("node", node).option("maxRecords", 7).load()
        writer = rows.select("lsn", "raw").writeStream.format("parquet").option("path", f"{folder}/rows")
    else:
        rows = spark.readStream.schema("text string").option("maxFilesPerTrigger", 1).json(f"{folder}/rows").coalesce(1)
        writer = rows.writeStream.format("syncline").option("node", node).option("protocol", "chirp")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
