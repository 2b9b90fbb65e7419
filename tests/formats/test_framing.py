from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason
from syncline.formats.framing import Framing, decode_varint, encode_varint

KINDS = pytest.mark.parametrize("kind", ["varint", "u16be", "u32le"])


@given(st.integers(0, 2**64 - 1))
def test_a_varint_reads_back(value: int) -> None:
    data = encode_varint(value)
    assert decode_varint(b"\xff" + data + b"\x01", 1) == (value, 1 + len(data))


def test_a_varint_that_is_not_whole_waits() -> None:
    assert decode_varint(b"\x80\x80", 0) is None
    assert decode_varint(b"", 0) is None


@pytest.mark.parametrize("data", [b"\x80" * 10, b"\xff" * 10, b"\xff" * 9 + b"\x02", b"\x80" * 11 + b"\x00"])
def test_a_varint_beyond_64_bits_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_varint(data, 0)


@KINDS
@given(contents=st.lists(st.binary(max_size=300), max_size=20), cuts=st.lists(st.integers(1, 50), min_size=1))
def test_frames_come_out_whole_wherever_the_stream_is_cut(kind: str, contents: list[bytes], cuts: list[int]) -> None:
    framing = Framing(kind, 300)  # type: ignore[arg-type]
    stream = b"".join(framing.wrap(content) for content in contents)
    reader, found, position, turn = framing.reader(), [], 0, 0
    while position < len(stream):
        step = cuts[turn % len(cuts)]
        found += reader.feed(stream[position : position + step])
        position, turn = position + step, turn + 1
    reader.finish()
    assert found == contents


@KINDS
def test_a_giant_length_is_refused_before_anything_is_kept(kind: str) -> None:
    framing = Framing(kind, 1_000)  # type: ignore[arg-type]
    header = {"varint": encode_varint(2**31), "u16be": b"\xff\xff", "u32le": b"\x00\x00\x00\x80"}[kind]
    reader = framing.reader()
    with pytest.raises(DecodeError) as refused:
        reader.feed(header)
    assert refused.value.reason is Reason.OVERSIZE
    with pytest.raises(DecodeError):
        framing.wrap(bytes(1_001))
    assert len(framing.reader().feed(framing.wrap(bytes(1_000)))) == 1


@KINDS
def test_a_stream_that_ends_inside_a_frame_is_an_error(kind: str) -> None:
    framing = Framing(kind, 100)  # type: ignore[arg-type]
    reader = framing.reader()
    assert reader.feed(framing.wrap(b"whole") + framing.wrap(b"cut")[:-1]) == [b"whole"]
    with pytest.raises(DecodeError):
        reader.finish()


def test_a_big_frame_in_one_byte_chunks_is_buffered_once() -> None:
    framing = Framing("varint", 200_000)
    reader, stream = framing.reader(), framing.wrap(bytes(200_000))
    looks = 0
    original = type(reader)._header

    def counting(self: object, data: bytes, position: int) -> tuple[int, int] | None:
        nonlocal looks
        looks += 1
        return original(reader, data, position)

    type(reader)._header = counting  # type: ignore[method-assign]
    try:
        frames = [frame for index in range(len(stream)) for frame in reader.feed(stream[index : index + 1])]
    finally:
        type(reader)._header = original  # type: ignore[method-assign]
    assert [len(frame) for frame in frames] == [200_000]
    assert looks < 10
