"""Names as bytes: text forms, order, prefixes, numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError, UsageError
from syncline.core.limits import NDN_NAME_COMPONENTS
from syncline.core.verdict import Reason
from syncline.formats.ndn import names
from syncline.formats.ndn import types as t

component = st.tuples(st.sampled_from([8, 8, 8, 1, 2, 32, 50, 54, 56, 58, 253, 65535]), st.binary(max_size=300))
name_parts = st.lists(component, max_size=6)


def joined(parts: list[tuple[int, bytes]]) -> bytes:
    return b"".join(names.component(kind, value) for kind, value in parts)


@pytest.mark.parametrize(
    ("text", "wire"),
    [
        ("/", ""),
        ("/a", "080161"),
        ("/a/", "080161"),
        ("ndn:/a/b", "080161080162"),
        ("/ndn/svs/v=2", "08036e646e0803737673360102"),
        ("/ndn/svs/54=%02", "08036e646e0803737673360102"),
        ("/x/seg=256", "08017832020100"),
        ("/%00%FF", "080200ff"),
        ("/...", "0800"),
        ("/....", "08012e"),
        ("/a=b", "0803613d62"),
        ("/ü", "0802c3bc"),
        ("/sha256digest=" + "ab" * 32, "0120" + "ab" * 32),
    ],
)
def test_a_name_is_read_from_its_text(text: str, wire: str) -> None:
    assert names.parse(text) == bytes.fromhex(wire)


@pytest.mark.parametrize(
    "text",
    ["", "a", "/a//b", "/.", "/..", "/%", "/%G0", "/seg=-1", "/seg=x", "/seg=1_000", "/seg=+1", "/seg=\u0663",
     "/v=18446744073709551616", "/70000=a", "/params-sha256=00", "/sha256digest=zz",
     "/" + "/".join(["a"] * (NDN_NAME_COMPONENTS + 1))],
)  # fmt: skip
def test_text_that_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        names.parse(text)


@given(name_parts)
def test_text_and_bytes_say_the_same(parts: list[tuple[int, bytes]]) -> None:
    name = joined(parts)
    assert names.parse(names.text(name)) == name
    assert list(names.components(name)) == parts
    assert names.boundaries(name)[-1:] == ([len(name)] if parts else [])


def canonical_key(parts: list[tuple[int, bytes]]) -> list[tuple[int, int, bytes]]:
    """NDN's canonical order as its specification words it: by type, then length, then value, component by component."""
    return [(kind, len(value), value) for kind, value in parts]


@given(name_parts, name_parts)
def test_byte_order_is_canonical_order(one: list[tuple[int, bytes]], other: list[tuple[int, bytes]]) -> None:
    assert (joined(one) < joined(other)) == (canonical_key(one) < canonical_key(other))


@given(name_parts, name_parts)
def test_a_byte_prefix_is_a_name_prefix(one: list[tuple[int, bytes]], other: list[tuple[int, bytes]]) -> None:
    assert joined(other).startswith(joined(one)) == (other[: len(one)] == one)
    assert joined(one + other).startswith(joined(one))


@pytest.mark.parametrize("wire", ["08", "0802", "080261", "0000", "08016108", "fe000100000161"])
def test_bytes_that_are_no_name_are_refused(wire: str) -> None:
    with pytest.raises(DecodeError):
        names.boundaries(bytes.fromhex(wire))


def test_a_name_of_too_many_components_is_refused() -> None:
    fits = names.generic(b"") * NDN_NAME_COMPONENTS
    assert len(names.boundaries(fits)) == NDN_NAME_COMPONENTS
    with pytest.raises(DecodeError) as caught:
        names.boundaries(fits + names.generic(b""))
    assert caught.value.reason is Reason.TOO_COMPLEX


def test_a_number_is_read_only_from_a_component_of_its_kind() -> None:
    name = names.number(t.GENERIC, 25) + names.number(t.SEGMENT, 70_000) + names.generic(b"abc")
    assert names.number_of(t.GENERIC, name, 0, 3) == 25
    assert names.number_of(t.SEGMENT, name, 0, 3) is None
    assert names.number_of(t.SEGMENT, name, 3, 9) == 70_000
    assert names.number_of(t.GENERIC, name, 9, 14) is None
