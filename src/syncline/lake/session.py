"""Starts Spark: with a Java that fits, quietly, fast enough for short commands, and with our code on the executors.

Knows nothing of segments or tables. A session that is already there (a notebook's) is used as it is.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from syncline.core.errors import MissingError, UnreachableError
from syncline.lake.java import Java, find_java, quiet_home
from syncline.lake.ship import package_archive
from syncline.lake.warm import archive_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK: Final = "127.0.0.1"
# Short commands end before the second compiler and the parallel collector have paid for their start.
FAST_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LOG_CONFIGURATION: Final = Path(__file__).with_name("log4j2.properties")


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How Spark is to be started."""

    master: str = "local[*]"
    name: str = "syncline"
    ship: bool | None = None  # None: whenever executors may be on other machines
    ui: bool = False
    java_options: str | None = None  # None: those that start fastest
    conf: Mapping[str, str] = {}

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")


def start_session(options: SessionOptions = SessionOptions()) -> SparkSession:  # noqa: B008 - frozen
    """The running session, or a new one. Raises MissingError if Spark or Java is not there."""
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingError("PySpark is not installed", hint="run `pip install 'syncline[spark]'`") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    java = find_java()
    builder = SparkSession.builder.master(options.master).appName(options.name)
    for name, value in (_defaults(options, java) | dict(options.conf)).items():
        builder = builder.config(name, value)
    try:
        with _environment(_variables(options, java)):
            session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise MissingError(f"Spark's Java process did not start: {error}", hint="run `syncline doctor`") from error
    except Exception as error:
        if options.is_local:
            raise
        raise UnreachableError(
            "the Spark master does not take us", hint="check --master, and that it is up", about=options.master
        ) from error
    if not options.is_local if options.ship is None else options.ship:
        ship(session)
    return session


def ship(session: SparkSession) -> None:
    """Give the executors our package."""
    folder = Path(tempfile.mkdtemp(prefix="syncline-ship-"))
    session.sparkContext.addPyFile(str(package_archive(folder)))


def _variables(options: SessionOptions, java: Java) -> dict[str, str]:
    found = {
        "JAVA_HOME": str(quiet_home(java)),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if options.is_local:
        found["SPARK_LOCAL_IP"] = LOOPBACK
    return found


def _defaults(options: SessionOptions, java: Java) -> dict[str, str]:
    chosen = f"{FAST_START} {archive_options(java)}" if options.java_options is None else options.java_options
    found = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{LOG_CONFIGURATION} {chosen}",
        "spark.ui.enabled": str(options.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(
            Path(tempfile.gettempdir()) / "syncline-warehouse"
        ),  # never in the user's folder
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.stopTimeout": "60s",
    }
    if options.is_local:
        found |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return found


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The variables Spark's start scripts read, set only while they run."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
