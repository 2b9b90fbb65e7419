"""npm's `spacedatastandards.org` as a peer: values to its objects and back, over lines of JSON."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

from syncline.formats.flatbuffers import Field, Kind, Schema, Table

SCRIPT = Path(__file__).parent / "peer.mjs"


class Library:
    """A running Node process with the library loaded."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=SCRIPT.parent
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=10)

    def write(self, schema: Schema, value: dict[str, Any]) -> bytes:
        """The buffer `writeFB` makes of a value of ours."""
        return bytes.fromhex(self._ask({"write": _to_js(schema, schema.root, value)})["hex"])

    def read(self, schema: Schema, data: bytes) -> dict[str, Any]:
        """What `readFB` makes of a buffer, in our terms and in full."""
        found: dict[str, Any] = _from_js(schema, schema.root, self._ask({"read": data.hex()})["value"])
        return found

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer


def _js_name(field: Field) -> str:
    """JavaScript writes the type of the union `value` as `valueType`; every other name is the schema's."""
    return field.name.removesuffix("_type") + "Type" if field.kind is Kind.UNION_TYPE else field.name


def _to_js(schema: Schema, table: Table, value: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"$type": table.name}
    for field in table.fields:
        if (given := value.get(field.name)) is not None:
            type_ = value[f"{field.name}_type"] if field.kind is Kind.UNION else field.type
            parts = [_part_to_js(schema, field, type_, each) for each in given] if field.element else None
            made[_js_name(field)] = parts if parts is not None else _part_to_js(schema, field, type_, given)
    return made


def _part_to_js(schema: Schema, field: Field, type_: str, value: Any) -> Any:
    if isinstance(value, dict):
        return _to_js(schema, schema.tables[type_], value)
    if isinstance(value, str) and (field.element or field.kind) in (Kind.ENUM, Kind.UNION_TYPE):
        return dict(schema.values_of(field))[value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]}
    return value


def _from_js(schema: Schema, table: Table, made: dict[str, Any]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for field in table.fields:
        given = made[_js_name(field)]
        type_ = value[f"{field.name}_type"] if field.kind is Kind.UNION else field.type
        if field.kind is Kind.VECTOR:
            parts = [_part_from_js(schema, field, type_, each) for each in given]
            value[field.name] = bytes(parts) if field.scalar is not None and field.scalar.code == "B" else parts
        else:
            value[field.name] = _part_from_js(schema, field, type_, given)
    return value


def _part_from_js(schema: Schema, field: Field, type_: str, given: Any) -> Any:
    if isinstance(given, dict):
        return float(given["$float"]) if "$float" in given else _from_js(schema, schema.tables[type_], given)
    if given is not None and (field.element or field.kind) in (Kind.ENUM, Kind.UNION_TYPE):
        return {number: name for name, number in schema.values_of(field)}[given]
    return given
