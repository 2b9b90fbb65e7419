"""Every stage as a `DataFrame → DataFrame` transform gives what the pipeline gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from syncline.core.errors import UsageError
from syncline.lake.batch import InProcess, Lander
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import built_in_stages
from syncline.lake.transforms import decoded, disagreements, folded, one_per_message, read_segments, rejects, verified
from tests.lake.conftest import rows
from tests.lake.oracle import World

KEYED = ("relay_messages", "sds_epm", "sdsp_frames", "svs_packets", "headers")
STATES = (
    ("sdsp_objects", "", "uid"), ("svs_publications", "", "publication"), ("gaps", "svs_packets", "first"),
    ("gaps", "sdsp_frames", "series"),
)  # fmt: skip


@pytest.fixture
def narrow(spark: Any) -> Iterator[Any]:
    """Spark with one shuffle partition: there are few rows, and every partition starts Python anew."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.spark
def test_the_stages_of_every_protocol_as_transforms_give_what_the_pipeline_gives(narrow: Any, tmp_path: Path) -> None:
    world = World(tmp_path, 5)
    world.hear(300, last=True)
    world.close()
    sealed = sorted(found for found in list_segments(world.lake.segments) if isinstance(found, Segment))
    Lander(world.lake, built_in_stages(), InProcess(), buckets=2).land(sealed)
    records = read_segments(narrow, world.lake).coalesce(1).cache()
    judged = records.transform(verified)
    differing = judged.where("raw IS NOT NULL AND verdict <> lake_verdict").select("verdict", "reason").distinct()
    assert [tuple(row) for row in differing.collect()] in ([], [("reject", "rate_limited")]), "a matter of context"
    assert records.transform(rejects).count() == world.oracle.truth.rejected
    assert records.transform(disagreements).count() == 0
    sources = {}
    for name in KEYED:
        found = records.transform(decoded(name)).transform(one_per_message(name)).cache()
        assert found.count() == len(world.oracle.truth.rows[name]), name
        sources[name] = found
    for table, source, key in STATES:
        given = source or {"sdsp_objects": "sdsp_frames", "svs_publications": "svs_packets"}[table]
        made = sources[given].transform(folded(table, source)).toArrow()
        assert ordered(made, key) == ordered(of_protocol(rows(world.lake, table), given), key), table


def of_protocol(found: pa.Table, source: str) -> pa.Table:
    if "protocol" in found.column_names:
        found = found.filter(pa.compute.equal(found["protocol"], source.split("_")[0])).drop_columns("protocol")
    return found.drop_columns("bucket")


def ordered(found: pa.Table, key: str) -> list[str]:
    return sorted(map(str, found.select(sorted(found.column_names)).sort_by(key).to_pylist()))


def test_a_state_with_several_sources_needs_one_to_be_named() -> None:
    with pytest.raises(UsageError, match="gaps is folded from sdsp_frames, headers, svs_packets"):
        folded("gaps")
    with pytest.raises(UsageError, match="folded from nothing"):
        folded("nothing")
