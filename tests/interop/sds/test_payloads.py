"""Payloads both ways with npm's `spacedatastandards.org`: field for field, and the same bytes where both write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from syncline.formats.flatbuffers import Field, Kind, Schema, Table
from syncline.protocols.sds.catalogue import NAMES, standard
from syncline.testing.flatbuffers import random_value
from tests.formats.flatbuffers.objects import in_full
from tests.interop.sds.library import Library
from tests.protocols.sds.payloads import payloads_of
from tools.sds_schemas import TARGET, made_from

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def library(npm: Path) -> Iterator[Library]:
    running = Library()
    yield running
    running.close()


def with_vectors(schema: Schema, table: Table, value: dict[str, Any]) -> dict[str, Any]:
    """The value as JavaScript's object API holds it: there every vector is present, if empty."""
    made: dict[str, Any] = {}
    for field in table.fields:
        given = value.get(field.name)
        if field.kind is Kind.VECTOR and given is None:
            given = b"" if field.scalar is not None and field.scalar.code == "B" else []
        if field.element is Kind.TABLE and given is not None:
            given = [with_vectors(schema, schema.tables[field.type], each) for each in given]
        elif isinstance(given, dict):
            given = with_vectors(schema, _table_of(schema, field, value), given)
        if given is not None:
            made[field.name] = given
    return made


def _table_of(schema: Schema, field: Field, value: dict[str, Any]) -> Table:
    return schema.tables[value[f"{field.name}_type"] if field.kind is Kind.UNION else field.type]


def test_our_schema_files_are_what_the_package_declares(npm: Path) -> None:
    made = made_from(npm / "spacedatastandards.org")
    assert {file.name: file.read_text() for file in TARGET.glob("*.fbs")} == made


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_goes_both_ways_and_the_bytes_are_the_same(name: str, library: Library) -> None:
    known, random = standard(name), Random(name)
    schema = known.schema
    for density in (0.0, 0.2, 0.5, 1.0):
        value = with_vectors(schema, schema.root, random_value(random, schema, density=density))
        ours, theirs = known.writer.encode(value), library.write(schema, value)
        assert ours == theirs
        full = in_full(schema, schema.root, value)
        assert library.read(schema, ours) == full
        assert in_full(schema, schema.root, known.reader.decode(theirs)) == full


def test_sample_messages_are_written_as_the_same_bytes(
    library: Library, vectors: Callable[[str], list[dict[str, Any]]]
) -> None:
    for payload in payloads_of(vectors("sds")):
        if payload.schema in ("OMM", "CDM"):
            schema = standard(payload.schema).schema
            assert library.write(schema, payload.fields) == payload.data, payload.name


def test_the_package_is_the_version_the_schemas_name(npm: Path) -> None:
    version = json.loads((npm / "spacedatastandards.org" / "package.json").read_text())["version"]
    assert version.partition("+")[0] == "1.0.197"
