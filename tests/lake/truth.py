"""Compares every table with the generator's truth, row by row."""

from __future__ import annotations

import json
from typing import Any

from syncline.lake.roots import Lake
from syncline.testing.traffic import Truth
from tests.lake.conftest import rows


def assert_tables_equal(lake: Lake, truth: Truth) -> None:
    """count == distinct == expected, in every table, and every value is the publisher's."""
    records = rows(lake, "records")
    names = [
        f"{row['node']}/{row['epoch']}/{row['lsn']}" for row in records.select(["node", "epoch", "lsn"]).to_pylist()
    ]
    assert len(names) == len(set(names))
    assert set(names) == truth.names()
    raws = dict(zip(names, records["raw"].to_pylist(), strict=True))
    assert raws == {name: record.raw for name, record in truth.records.items()}

    rejected = rows(lake, "rejected").to_pylist()
    refused = [f"{row['node']}/{row['epoch']}/{row['lsn']}" for row in rejected]
    assert len(refused) == len(set(refused))
    assert set(refused) == truth.rejected()
    assert {row["judged_by"] for row in rejected} <= {"node"}

    frames = rows(lake, "sdsp_frames").to_pylist()
    identities = [(row["uid"], row["serial"]) for row in frames]
    assert len(identities) == len(set(identities))
    assert {key: row["frame"].encode() for key, row in zip(identities, frames, strict=True)} == {
        key: published.raw for key, published in truth.published.items()
    }
    for row in frames:
        origin = truth.records[f"{row['node']}/{row['epoch']}/{row['lsn']}"]
        assert (origin.raw, origin.id) == (row["frame"].encode(), row["id"])

    assert objects(lake) == {
        uid: ("frozen" if last.frame.frozen else "synced", last.frame.serial, last.frame.ver, last.value)
        for uid, last in truth.newest().items()
    }


def objects(lake: Lake) -> dict[str, tuple[Any, ...]]:
    """Status, serial, ver and value of every object; fails if one has two rows."""
    found = rows(lake, "sdsp_objects").to_pylist()
    assert len({row["uid"] for row in found}) == len(found)
    return {
        row["uid"]: (
            row["status"],
            row["serial"],
            row["ver"],
            None if row["value"] is None else json.loads(row["value"]),
        )
        for row in found
    }
