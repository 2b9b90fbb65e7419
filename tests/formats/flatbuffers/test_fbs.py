"""Schemas as text: what is understood, what is refused, and the name a field list has."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from syncline.core.errors import UsageError
from syncline.formats.flatbuffers import Kind, Schema, fbs
from syncline.formats.flatbuffers.linking import link

HERE = Path(__file__).parent


def linked(text: str, root: str = "T", identifier: str = "TEST") -> Schema:
    return link({"t": fbs.parse(text)}, root, identifier)


def test_a_union_takes_two_slots_and_later_fields_move_on(zoo: Schema) -> None:
    slots = {field.name: (field.id, field.kind) for field in zoo.root.fields}
    assert slots["beast_type"] == (14, Kind.UNION_TYPE)
    assert slots["beast"] == (15, Kind.UNION)
    assert slots["keeper"] == (16, Kind.TABLE)


def test_defaults_are_of_the_fields_type(zoo: Schema) -> None:
    defaults = {field.name: field.default for field in zoo.root.fields}
    assert (defaults["flag"], defaults["d"], defaults["g"], defaults["x"]) == (True, 7, -3, 0.5)
    assert (defaults["colour"], defaults["name"], defaults["place"], defaults["ints"]) == (0, None, None, None)


def test_enum_values_count_on_from_the_last_number(zoo: Schema) -> None:
    assert zoo.enums["Colour"].values == (("Red", -1), ("Green", 0), ("Blue", 5))


def test_structs_are_laid_out_with_their_padding(zoo: Schema) -> None:
    point, place = zoo.structs["Point"], zoo.structs["Place"]
    assert (point.offsets, point.size, point.align) == ((0, 8), 16, 8)
    assert (place.offsets, place.size, place.align) == ((0, 16, 18), 24, 8)


def test_only_what_the_root_reaches_is_in_a_schema() -> None:
    schema = linked("table T { a: U; } table U { b: int; } table V { c: int; } enum E : byte { X }")
    assert set(schema.tables) == {"T", "U"}
    assert schema.enums == {}


def test_the_fingerprint_is_the_hash_of_the_canonical_field_list() -> None:
    text = "enum E : byte { X, Y = 3 } table T { a: E = Y; b: [U]; c: double = 0.1; d: bool = true; } table U { e: uint16; }"
    schema = linked(text)
    assert schema.canonical == (
        "schema TEST T\n"
        "table T\n0 a E 3\n1 b [U]\n2 c double 0.1\n3 d bool 1\n"
        "table U\n0 e ushort 0\n"
        "enum E byte\n0 X\n3 Y\n"
    )
    assert schema.fingerprint == hashlib.sha256(schema.canonical.encode()).hexdigest()


@pytest.mark.parametrize(
    "changed",
    [
        "table T { a: int; b: string = 1; }".replace(" = 1", ""),
        "table T { b: string; a: uint; }",
        "table T { a: uint = 1; b: string; }",
        "table T { a: uint; c: string; }",
        "table T { a: uint; b: string; c: bool; }",
    ],
)
def test_any_change_of_a_field_changes_the_fingerprint(changed: str) -> None:
    assert linked(changed).fingerprint != linked("table T { a: uint; b: string; }").fingerprint


def test_comments_and_the_order_of_declarations_do_not_change_the_fingerprint() -> None:
    one = linked("table U { b: int; } /* note */ table T { a: U; } // note")
    other = linked("table T { a: U; } table U { b: int; }")
    assert one.fingerprint == other.fingerprint


def test_text_written_from_a_document_means_the_same() -> None:
    for name in ("zoo.fbs", "zoo_parts.fbs"):
        document = fbs.parse((HERE / name).read_text())
        assert fbs.parse(fbs.text_of(document, "a note\nof two lines")) == document


def test_a_path_leads_through_tables_to_a_field(zoo: Schema) -> None:
    assert [field.name for field in zoo.at("keeper.boss.age")] == ["keeper", "boss", "age"]


@pytest.mark.parametrize("path", ["nothing", "keeper.nothing", "name.length", "keepers.age", ""])
def test_a_path_that_leads_nowhere_is_refused(zoo: Schema, path: str) -> None:
    with pytest.raises(UsageError, match="has no field"):
        zoo.at(path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("namespace a;", "'namespace'"),
        ("attribute priority;", "'attribute'"),
        ("rpc_service S { }", "'rpc_service'"),
        ("table T { a: int (deprecated); }", r"line 1 of a schema has '\('"),
        ("table T { a int; }", "'int' where ':' belongs"),
        ("table T { a: int", "'' where ';' belongs"),
        ("enum E : float { X }", "cannot be of type float"),
        ("table T { a: Nowhere; }", "no type 'Nowhere'"),
        ("struct S { a: int; } union X { S } table T { a: X; }", "no table 'S'"),
        ("struct S { a: string; } table T { s: S; }", "a struct cannot hold a string"),
        ("struct S { a: int; } table T { s: [S]; }", "vectors of struct"),
        ("table U { a: int; }", "no table 'T'"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        linked(text)


def test_an_identifier_has_four_characters() -> None:
    with pytest.raises(UsageError, match="four characters"):
        linked("table T { a: int; }", identifier="TOOLONG")
