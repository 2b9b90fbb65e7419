"""The 29 standards: what npm's library wrote is read here and written again as the same bytes; every schema holds up."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import ModuleType

import pytest

from syncline.core.errors import DecodeError, UsageError
from syncline.protocols.sds import catalogue
from syncline.protocols.sds.catalogue import NAMES, standard
from syncline.testing.flatbuffers import mutated, random_value
from tests.formats.flatbuffers.objects import generate, in_full, packed, unpacked
from tests.protocols.sds.payloads import Payload

SCHEMAS = Path(catalogue.__file__).parent / "schemas"


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """REC holds all the others in its union, so its module has them all."""
    return generate(SCHEMAS / "REC.fbs", tmp_path_factory.mktemp("sds"))


def test_every_vector_decodes_field_for_field(payloads: list[Payload]) -> None:
    assert len(payloads) == 22
    for payload in payloads:
        assert repr(standard(payload.schema).reader.decode(payload.data)) == repr(payload.fields), payload.name


def test_every_vector_is_written_again_byte_for_byte(payloads: list[Payload]) -> None:
    for payload in payloads:
        assert standard(payload.schema).writer.encode(payload.fields) == payload.data, payload.name


@pytest.mark.parametrize("name", NAMES)
def test_generated_code_and_ours_agree_on_every_schema(name: str, generated: ModuleType) -> None:
    known, random = standard(name), Random(name)
    schema = known.schema
    for density in (0.1, 0.5, 0.9):
        value = random_value(random, schema, density=density)
        full = in_full(schema, schema.root, value)
        assert unpacked(generated, schema, known.writer.encode(value)) == full
        theirs = packed(generated, schema, value)
        assert in_full(schema, schema.root, known.reader.decode(theirs)) == full


def test_the_names_are_the_files() -> None:
    assert sorted(file.stem for file in SCHEMAS.glob("*.fbs")) == sorted(NAMES)
    assert len(NAMES) == 29


@pytest.mark.parametrize("name", NAMES)
def test_a_schemas_identifier_is_its_name_after_a_dollar(name: str) -> None:
    assert standard(name).schema.identifier == b"$" + name.encode()
    assert standard(name).schema.root.name == name


def test_a_name_may_carry_the_suffix_of_its_file() -> None:
    assert standard("OMM.fbs") is standard("OMM")
    assert catalogue.is_known("CDM.fbs")
    assert not catalogue.is_known("CDM.fbs.fbs")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UsageError, match="no schema 'XYZ'"):
        standard("XYZ")


def test_a_hello_names_the_version_of_a_schema_by_its_field_list() -> None:
    assert standard("OMM").capability == "schema:OMM:4c709d84eb75ad62"
    assert standard("CDM").capability == "schema:CDM:79f37311f04349e6"
    assert len({standard(name).schema.fingerprint for name in NAMES}) == 29


def test_what_we_accept_of_corrupted_payloads_generated_code_reads_alike(
    generated: ModuleType, payloads: list[Payload]
) -> None:
    """The generated reader checks nothing: where it reads something else than we do, we must have refused."""
    known, random, accepted = standard("OMM"), Random(1), 0
    honest = [payload.data for payload in payloads if payload.schema == "OMM"]
    for data in (mutated(random, random.choice(honest)) for _ in range(1_500)):
        try:
            value = known.reader.decode(data)
        except DecodeError:
            continue
        accepted += 1
        assert repr(unpacked(generated, known.schema, data)) == repr(in_full(known.schema, known.schema.root, value))
    assert accepted > 100
