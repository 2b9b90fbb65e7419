"""A class archive for Spark's Java process, which then starts in about half the time: made once per machine, Java and
PySpark (`syncline lake warm`), used whenever it is there. Java itself ignores an archive that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from syncline.core.errors import SynclineError
from syncline.lake.java import Java, cache_folder, find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SECONDS: Final = 300
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"


def archive_options(java: Java) -> str:
    """The options that make Java use the archive; empty if there is none."""
    base, top = _paths(java)
    return f"-Xshare:auto -XX:SharedArchiveFile={base}:{top} {_QUIET}" if base.exists() and top.exists() else ""


def warm_up() -> Path:
    """Make the archive, unless it is there, and say where it is."""
    java = find_java()
    base, top = _paths(java)
    if not (base.exists() and top.exists()):
        base.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=base.parent) as folder:
            new_base, new_top = Path(folder) / base.name, Path(folder) / top.name
            _run(
                [str(java.home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={new_base}", "-Xlog:disable"]
            )
            os.replace(new_base, base)  # noqa: PTH105 - the second archive remembers where the first one is
            _run([sys.executable, "-m", "syncline.lake.warm", str(base), str(new_top)])
            os.replace(new_top, top)  # noqa: PTH105
    return top


def _paths(java: Java) -> tuple[Path, Path]:
    import pyspark

    facts = f"{java.home}\0{java.version}\0{pyspark.__version__}\0{pyspark.__file__}"
    folder = cache_folder() / f"spark-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    return folder / "java.jsa", folder / "spark.jsa"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)  # noqa: S603
    if done.returncode != 0:
        raise SynclineError(f"the class archive could not be made: {done.stderr.strip()[-500:]}")


def _record(base: Path, top: Path) -> None:
    """Start Spark, use what a short command uses, and end Java in the way that makes it write the archive."""
    from syncline.lake.pipeline import FILES
    from syncline.lake.session import FAST_START, SessionOptions, start_session

    options = f"{FAST_START} -XX:SharedArchiveFile={base} -XX:ArchiveClassesAtExit={top} {_QUIET}"
    spark = start_session(SessionOptions(master="local[1]", java_options=options))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "files").mkdir()
        (Path(folder) / "files" / "one.bin").write_bytes(b"x")
        files = spark.readStream.format("binaryFile").schema(FILES)
        stream = files.load(f"{folder}/files").select("path").writeStream
        stream = stream.foreachBatch(_collect).option("checkpointLocation", f"{folder}/checkpoint")
        stream.trigger(availableNow=True).start().awaitTermination()
        spark.sparkContext.parallelize([1], 1).map(lambda x: x).collect()
        spark.range(3).createOrReplaceTempView("numbers")
        spark.sql("SELECT count(*) FROM numbers WHERE id > 1").toArrow()
    gateway = spark.sparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_SECONDS)


def _collect(batch: DataFrame, _: int) -> None:
    batch.collect()


if __name__ == "__main__":
    _record(Path(sys.argv[1]), Path(sys.argv[2]))
