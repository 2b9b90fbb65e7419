from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason
from syncline.formats.sse import KEEP_ALIVE, Decoder, ServerEvent, encode


def read(stream: bytes, *, cut: int = 10**9, most: int = 10_000) -> list[ServerEvent]:
    decoder = Decoder(most)
    return [event for at in range(0, len(stream), cut) for event in decoder.feed(stream[at : at + cut])]


def test_an_event_has_a_name_an_id_and_data() -> None:
    assert encode(b'{"n":1}', name="frame", id="7") == b'event: frame\nid: 7\ndata: {"n":1}\n\n'
    assert read(encode(b'{"n":1}', name="frame", id="7")) == [ServerEvent(b'{"n":1}', "frame", "7")]


def test_the_examples_of_the_standard() -> None:
    """The HTML standard, section 9.2.6."""
    assert read(b"data: YHOO\ndata: +2\ndata: 10\n\n") == [ServerEvent(b"YHOO\n+2\n10")]
    stream = b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n"
    assert read(stream) == [
        ServerEvent(b"first event", id="1"),
        ServerEvent(b"second event"),
        ServerEvent(b" third event"),
    ]
    assert read(b"data\n\ndata\ndata\n\ndata:") == [ServerEvent(b""), ServerEvent(b"\n")]
    assert read(b"data:test\n\ndata: test\n\n") == [ServerEvent(b"test"), ServerEvent(b"test")]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("cut", [1, 2, 3, 5, 1000])
def test_lines_may_end_in_three_ways_and_be_cut_anywhere(end: bytes, cut: int) -> None:
    lines = [
        b"\xef\xbb\xbfevent: frame",
        b"id: 1",
        b"data: a",
        b"data: b",
        b"",
        b": comment",
        b"retry: 5",
        b"data: c",
        b"",
        b"",
    ]
    expected = [ServerEvent(b"a\nb", "frame", "1"), ServerEvent(b"c", "message", "1")]
    assert read(end.join(lines), cut=cut) == expected


def test_unicode_line_ends_are_no_line_ends() -> None:
    text = "one\u2028two\u2029three\u0085four\x0b\x0c".encode()
    assert read(encode(text)) == [ServerEvent(text)]


def test_an_event_that_is_too_large_is_refused_and_keep_alives_do_not_add_up() -> None:
    assert read(KEEP_ALIVE * 1_000, most=100) == []
    assert read(encode(b"x" * 90), most=100) == [ServerEvent(b"x" * 90)]
    for stream in (encode(b"x" * 101), b"data: " + b"x" * 101, b"data: x\n" * 50, b":" + b"x" * 101):
        with pytest.raises(DecodeError) as refused:
            read(stream, cut=7, most=100)
        assert refused.value.reason is Reason.OVERSIZE


@given(st.lists(st.binary(max_size=40).filter(lambda data: b"\r" not in data), max_size=8), st.integers(1, 50))
def test_what_was_encoded_comes_back_however_it_is_cut(datas: list[bytes], cut: int) -> None:
    stream = b"".join(encode(data, name="frame", id=str(n)) for n, data in enumerate(datas))
    assert read(stream, cut=cut) == [ServerEvent(data, "frame", str(n)) for n, data in enumerate(datas)]


@given(st.binary(max_size=300), st.integers(1, 50))
def test_rubbish_raises_nothing_else(stream: bytes, cut: int) -> None:
    assert all(isinstance(event, ServerEvent) for event in read(stream, cut=cut))
