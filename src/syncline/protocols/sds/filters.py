"""Filters: a tree of conditions on the fields of a payload, compared by the type the schema gives each field.

A filter is compiled against a schema once and then holds or does not hold for rows of the columns it names. Everything a
stranger can get wrong is a DecodeError that names the field or operator. Decoding payloads is done in `columns.py`.
"""

from __future__ import annotations

import json
import math
import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from syncline.core import limits
from syncline.core.errors import DecodeError, UsageError
from syncline.core.verdict import Reason
from syncline.formats.flatbuffers import Field, Kind, Schema
from syncline.formats.flatbuffers.columns.layout import SEPARATOR
from syncline.protocols.sds.wire import Filter

Row = Mapping[str, Any]  # columns of a payload, by name
Holds = Callable[[Row], bool]
Read = Callable[[Row], Any]  # the value of a field in a row; None where there is none
Parse = Callable[[str], Any]
Bounds = tuple[Any, Any]

_ORDERED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_TEXT: Final[dict[str, Callable[[str, str], bool]]] = {
    "contains": lambda value, part: part in value,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
}
_LISTS: Final = ("in", "notIn")
_NEGATIVE: Final = ("ne", "notIn")  # what also holds for a field without a value
_LAST: Final = "\U0010ffff"  # sorts after every other character
OPERATORS: Final = (*_ORDERED, *_TEXT, *_LISTS)


class Condition(msgspec.Struct, frozen=True):
    """A compiled filter: whether it holds for a row of `columns`.

    `equal` are the fields that must have one value for it to hold at all, `bounds` those that must lie between two
    (both included, None: no bound): an index can use them.
    """

    holds: Holds
    columns: frozenset[str] = frozenset()
    equal: Mapping[str, Any] = {}
    bounds: Mapping[str, Bounds] = {}


ALWAYS: Final = Condition(lambda row: True)


def compiled(filter_: Filter | None, schema: Schema) -> Condition:
    """The condition a filter states on payloads of a schema."""
    if filter_ is None:
        return ALWAYS
    nodes = _count(filter_, limits.SDS_FILTER_DEPTH)
    if nodes > limits.SDS_FILTER_NODES:
        raise _wrong(f"{nodes} conditions, {limits.SDS_FILTER_NODES} are allowed", Reason.TOO_COMPLEX)
    return _compiled(filter_, schema)


def _count(filter_: Filter, depth: int) -> int:
    if depth == 0:
        raise _wrong(f"filters nest at most {limits.SDS_FILTER_DEPTH} deep", Reason.TOO_COMPLEX)
    return 1 + sum(_count(each, depth - 1) for each in (*filter_.and_filters, *filter_.or_filters))


def _compiled(filter_: Filter, schema: Schema) -> Condition:
    """The node's own condition, all of and_filters, and at least one of or_filters if there are any."""
    parts = [_compiled(each, schema) for each in filter_.and_filters]
    if filter_.field or filter_.operator or filter_.value:
        parts.insert(0, _own(filter_, schema))
    elif not filter_.and_filters and not filter_.or_filters:
        raise _wrong("a filter without a condition")
    choices = [_compiled(each, schema) for each in filter_.or_filters]
    tests = [part.holds for part in parts]
    options = [choice.holds for choice in choices]

    def holds(row: Row) -> bool:
        return all(test(row) for test in tests) and (not options or any(option(row) for option in options))

    needed = frozenset(column for part in (*parts, *choices) for column in part.columns)
    equal = {name: value for part in parts for name, value in part.equal.items()}
    bounds: dict[str, Bounds] = {}
    for name, bound in (item for part in parts for item in part.bounds.items()):
        bounds[name] = _both(bounds.get(name, (None, None)), bound)
    return Condition(holds, needed, equal, bounds)


def _both(one: Bounds, other: Bounds) -> Bounds:
    """What lies within two bounds of a field."""
    lows = [low for low, _ in (one, other) if low is not None]
    highs = [high for _, high in (one, other) if high is not None]
    return max(lows, default=None), min(highs, default=None)


def _own(filter_: Filter, schema: Schema) -> Condition:
    path, name = filter_.field, filter_.operator
    field = field_at(schema, path)
    if name not in OPERATORS:
        raise _wrong(f"there is no operator {name[:80]!r}")
    read, columns = reader_of(schema, path), frozenset({column_of(path)})
    if field.kind is Kind.VECTOR:
        return Condition(_among(field, schema, filter_, read), columns)
    parse = _parser(field, schema, path)
    if name in _LISTS:
        return _in_list(filter_, parse, read, columns)
    if name in _TEXT:
        if field.kind is not Kind.STRING:
            raise _wrong(f"{name} needs text, and {path} is {field.type_text}")
        holds = _compared(_TEXT[name], filter_.value, read, otherwise=False)
        first = (filter_.value, filter_.value + _LAST)
        return Condition(holds, columns, bounds={path: first} if name == "startsWith" else {})
    value = parse(filter_.value)
    holds = _compared(_ORDERED[name], value, read, otherwise=name in _NEGATIVE)
    bounds = {
        "eq": (value, value),
        "gt": (value, None),
        "gte": (value, None),
        "lt": (None, value),
        "lte": (None, value),
    }
    return Condition(
        holds, columns, {path: value} if name == "eq" else {}, {path: bounds[name]} if name in bounds else {}
    )


def _compared(compare: Callable[[Any, Any], bool], value: Any, read: Read, *, otherwise: bool) -> Holds:
    def holds(row: Row) -> bool:
        found = read(row)
        return otherwise if found is None else compare(found, value)

    return holds


def _in_list(filter_: Filter, parse: Parse, read: Read, columns: frozenset[str]) -> Condition:
    values = {parse(each) for each in _list_values(filter_.value)}
    wanted = filter_.operator == "in"

    def holds(row: Row) -> bool:
        found = read(row)
        return (found is not None and found in values) == wanted

    return Condition(holds, columns, bounds={filter_.field: (min(values), max(values))} if wanted and values else {})


def _among(field: Field, schema: Schema, filter_: Filter, read: Read) -> Holds:
    """`contains` on a vector of numbers or texts: one of its elements is the value."""
    if filter_.operator != "contains" or field.element not in (Kind.STRING, Kind.SCALAR, Kind.ENUM):
        raise _wrong(f"{filter_.operator} does not apply to {filter_.field}, which is {field.type_text}")
    element = msgspec.structs.replace(field, kind=field.element, element=None)
    value = _parser(element, schema, filter_.field)(filter_.value)
    numbers = dict(schema.values_of(element)) if element.type else {}

    def holds(row: Row) -> bool:
        found = read(row)
        return found is not None and any(numbers.get(each, each) == value for each in found)

    return holds


def _list_values(text: str) -> list[str]:
    """A list is written as a JSON array, or with commas."""
    values: list[Any] = text.split(",")
    if text.startswith("["):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise _wrong("a list is a JSON array or separated by commas") from None
    if len(values) > limits.SDS_FILTER_VALUES:
        raise _wrong(f"{len(values)} values, {limits.SDS_FILTER_VALUES} are allowed", Reason.TOO_COMPLEX)
    if any(isinstance(value, list | dict) or value is None for value in values):
        raise _wrong("a list holds texts, numbers, true and false")
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


def field_at(schema: Schema, path: str) -> Field:
    """The field a path names; a DecodeError that names the path if there is none."""
    try:
        return schema.at(path)[-1]
    except UsageError:
        raise _wrong(f"{schema.name} has no field {path[:80]!r}") from None


def column_of(path: str) -> str:
    """The column that holds the field at a path."""
    return path.replace(".", SEPARATOR)


def reader_of(schema: Schema, path: str) -> Read:
    """Reads the value at a path from a row, as it is compared: enums by number."""
    field, column = field_at(schema, path), column_of(path)
    if field.kind not in (Kind.ENUM, Kind.UNION_TYPE):
        return operator.itemgetter(column)
    numbers = dict(schema.values_of(field))
    return lambda row: numbers.get(row[column])


def _parser(field: Field, schema: Schema, path: str) -> Parse:
    """Reads a filter's text as a value of a field's type."""
    if field.kind is Kind.STRING:
        return str
    if field.kind in (Kind.ENUM, Kind.UNION_TYPE):
        return _named(dict(schema.values_of(field)), path)
    if field.kind is not Kind.SCALAR or field.scalar is None:
        raise _wrong(f"{path} is {field.type_text}, which is not compared")
    if field.scalar.name == "bool":
        return _named({"true": True, "false": False}, path)
    return _number(field.scalar.code, path)


def _named(values: Mapping[str, Any], path: str) -> Parse:
    def parse(text: str) -> Any:
        if text in values:
            return values[text]
        if text.isascii() and text.lstrip("-").isdigit() and len(text) < 20 and int(text) in values.values():
            return int(text)
        raise _wrong(f"{text[:80]!r} is no value of {path}")

    return parse


def _number(code: str, path: str) -> Parse:
    def parse(text: str) -> int | float:
        try:
            if len(text) > 64:
                raise ValueError
            if code not in "fd":
                return _whole(text)
            value = float(text)
            return float(struct.unpack("<f", struct.pack("<f", value))[0]) if code == "f" else value
        except (ValueError, OverflowError):
            raise _wrong(f"{text[:80]!r} is no number, as {path} is") from None

    return parse


def _whole(text: str) -> int | float:
    """A number to compare whole numbers with: whole itself, or between two."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if math.isnan(value):
            raise
        return int(value) if value.is_integer() else value


def sort_key(schema: Schema, path: str) -> Callable[[Row], tuple[int, Any]]:
    """How rows are ordered by a field: those without a value first, what is not a number last."""
    field = field_at(schema, path)
    if field.kind not in (Kind.SCALAR, Kind.ENUM, Kind.STRING, Kind.UNION_TYPE):
        raise _wrong(f"{path} is {field.type_text}, which has no order")
    read = reader_of(schema, path)

    def key(row: Row) -> tuple[int, Any]:
        value = read(row)
        if value is None:
            return 0, 0
        if isinstance(value, float) and math.isnan(value):
            return 2, 0
        return 1, value

    return key


def from_where(where: Mapping[str, Any] | Filter | None) -> Filter | None:
    """A filter from plain terms: `{"NORAD_CAT_ID": 25544, "EPOCH": {"gte": "2026"}, "OBJECT_ID": ["a", "b"]}`."""
    if where is None or isinstance(where, Filter):
        return where
    terms: list[Filter] = []
    for field, wanted in where.items():
        tests = wanted if isinstance(wanted, Mapping) else {"in" if isinstance(wanted, list | tuple) else "eq": wanted}
        terms += [Filter(field=field, operator=name, value=value_text(value)) for name, value in tests.items()]
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else Filter(and_filters=tuple(terms))


def value_text(value: Any) -> str:
    """A value as a filter writes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return json.dumps([value_text(each) for each in value])
    return repr(value) if isinstance(value, int | float) else str(value)


def _wrong(message: str, reason: Reason = Reason.INVALID_FIELD) -> DecodeError:
    return DecodeError(message, reason=reason)
