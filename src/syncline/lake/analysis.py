"""Day-one questions as `DataFrame → DataFrame`, for notebooks: the views of `views.py`, and propagation.

Each takes the table it is about (`spark.read.format("syncline").option("table", "sds_omm")…`) or anything of its shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from syncline.lake.propagate import NEEDED, STATE_SCHEMA, moments, propagated
from syncline.lake.views import CONJUNCTIONS, OMM_LATEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def omm_latest(omm: DataFrame) -> DataFrame:
    """The mean elements with the newest epoch of every object."""
    return omm.sparkSession.sql(OMM_LATEST.over("{omm}"), omm=omm)


def omm_as_of(omm: DataFrame, at: datetime) -> DataFrame:
    """The newest ones whose epoch is not after `at`; without an offset it is UTC."""
    from pyspark.sql import functions

    moment = at if at.tzinfo else at.replace(tzinfo=UTC)
    return omm_latest(omm.where(functions.col("epoch_at") <= functions.lit(moment)))


def conjunctions(cdm: DataFrame) -> DataFrame:
    """Close approaches, a row for each message: order them by `tca_at` or by `probability`."""
    return cdm.sparkSession.sql(CONJUNCTIONS.over("{cdm}"), cdm=cdm)


def propagate(omm: DataFrame, at: datetime | Sequence[datetime]) -> DataFrame:
    """Position (km) and velocity (km/s) in TEME of every row's object at every time, by SGP4; `error` says why not."""
    from pyspark.sql.pandas.types import from_arrow_schema

    times = moments(at)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from propagated(batch, times)

    return omm.select(*NEEDED).mapInArrow(work, from_arrow_schema(STATE_SCHEMA))
