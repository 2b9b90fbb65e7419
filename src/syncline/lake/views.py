"""What an analyst asks on day one, as views over the tables: the newest elements of every object, those at a moment, and
conjunctions. Their SQL is the same for DuckDB and for Spark; engines make them known beside the tables.
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncline.lake.stages.sds import schema_table
from syncline.lake.tables import BUCKET

MOMENT: Final = "moment"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A named question. In `sql` the table is `{source}`; a view with a parameter is called like a function."""

    name: str
    doc: str
    source: str
    sql: str
    parameter: str = ""  # of type timestamp

    def over(self, source: str = "") -> str:
        """The SELECT over the table, or over another of its shape."""
        return self.sql.format(source=source or self.source)


# The standard names an object by its catalogue number; objects too new for one have a designator.
_OBJECT: Final = "coalesce(nullif(subject, ''), OBJECT_ID, OBJECT_NAME)"
_NEWEST: Final = "epoch_at DESC NULLS LAST, published_at DESC, record_id"
_OMM_COLUMNS: Final = ", ".join(column.name for column in schema_table("OMM").columns if column.name != BUCKET)


def _newest_omm(condition: str) -> str:
    return (
        f"SELECT {_OMM_COLUMNS} FROM (SELECT *, row_number() OVER (PARTITION BY {_OBJECT} ORDER BY {_NEWEST}) AS place "  # noqa: S608
        f"FROM {{source}} WHERE {condition}) AS ranked WHERE place = 1"
    )


def _object_of(number: int) -> str:
    place = f"OBJECT{number}__OBJECT__"
    return (
        f"{place}NORAD_CAT_ID AS object{number}_catalog, {place}OBJECT_NAME AS object{number}_name, "
        f"{place}OBJECT_ID AS object{number}_id"
    )


OMM_LATEST: Final = View(
    name="omm_latest",
    doc="the mean elements with the newest epoch of every object; of several messages with that epoch the last published",
    source="sds_omm",
    sql=_newest_omm("true"),
)
OMM_AS_OF: Final = View(
    name="omm_as_of",
    doc="those whose epoch is not after a moment: `SELECT * FROM omm_as_of(TIMESTAMPTZ '2026-03-01 00:00:00Z')`",
    source="sds_omm",
    sql=_newest_omm(f"epoch_at <= {MOMENT}"),
    parameter=MOMENT,
)
CONJUNCTIONS: Final = View(
    name="conjunctions",
    doc="close approaches from conjunction data messages, a row each: when, how near, how probable, between whom",
    source="sds_cdm",
    sql=(
        "SELECT tca_at, COLLISION_PROBABILITY AS probability, MISS_DISTANCE AS miss_distance_m, "  # noqa: S608
        f"RELATIVE_SPEED AS relative_speed_m_s, {_object_of(1)}, {_object_of(2)}, "
        "MESSAGE_ID AS message_id, ORIGINATOR AS originator, author, published_at, record_id "
        "FROM (SELECT *, row_number() OVER (PARTITION BY author, MESSAGE_ID ORDER BY published_at DESC, record_id) AS place "
        "FROM {source}) AS ranked WHERE place = 1"
    ),
)
VIEWS: Final = (OMM_LATEST, OMM_AS_OF, CONJUNCTIONS)
