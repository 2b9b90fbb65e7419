from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError
from syncline.core.limits import STREAM_WINDOW, STREAMS_PER_CONNECTION
from syncline.core.verdict import Reason
from syncline.networks.libp2p.yamux import (
    ACK,
    DATA,
    FIN,
    GO_AWAY,
    PING,
    RST,
    SYN,
    WINDOW,
    Changed,
    Event,
    GoneAway,
    MuxStream,
    Opened,
    Pong,
    Session,
)


def frame(kind: int, flags: int, number: int, length: int, content: bytes = b"") -> bytes:
    return struct.pack(">BBHII", 0, kind, flags, number, length) + content


def pair() -> tuple[Session, Session]:
    return Session(initiator=True), Session(initiator=False)


def carry(sender: Session, receiver: Session) -> list[Event]:
    return receiver.receive(sender.take(10**9))


def opened(dialler: Session, listener: Session) -> tuple[MuxStream, MuxStream]:
    ours = dialler.open()
    [theirs] = [event.stream for event in carry(dialler, listener) if isinstance(event, Opened)]
    carry(listener, dialler)
    return ours, theirs


def test_bytes_cross_in_both_directions_and_end() -> None:
    a, b = pair()
    ours, theirs = opened(a, b)
    assert (ours.id, theirs.id) == (1, 1)
    assert a.write(ours, memoryview(b"there")) == 5
    carry(a, b)
    assert b.read(theirs, 3) == b"the"
    assert b.read(theirs, 10) == b"re"
    b.write(theirs, memoryview(b"back"))
    b.end(theirs)
    carry(b, a)
    assert (a.read(ours, 10), ours.remote_end) == (b"back", True)
    assert a.streams == {1: ours}
    a.end(ours)
    carry(a, b)
    assert theirs.remote_end
    assert (a.streams, b.streams, b.inbound) == ({}, {}, 0)


def test_a_writer_stops_at_the_window_and_goes_on_when_half_of_it_is_read() -> None:
    a, b = pair()
    ours, theirs = opened(a, b)
    assert a.write(ours, memoryview(bytes(STREAM_WINDOW + 1))) == STREAM_WINDOW
    assert a.write(ours, memoryview(b"x")) == 0
    carry(a, b)
    assert len(b.read(theirs, STREAM_WINDOW // 2 - 1)) == STREAM_WINDOW // 2 - 1
    assert b.output == b""
    b.read(theirs, 1)
    assert [type(event) for event in carry(b, a)] == [Changed]
    assert a.write(ours, memoryview(bytes(STREAM_WINDOW))) == STREAM_WINDOW // 2


@given(st.lists(st.integers(1, 700), min_size=1, max_size=30), st.binary(min_size=1, max_size=5_000))
def test_frames_are_found_wherever_the_stream_is_cut(cuts: list[int], data: bytes) -> None:
    a, b = pair()
    first, second = a.open(), a.open()
    for index in range(0, len(data), 100):
        a.write(first if index % 200 else second, memoryview(data[index : index + 100]))
    a.end(first)
    wire, position, turn = a.take(10**9), 0, 0
    while position < len(wire):
        step = cuts[turn % len(cuts)]
        b.receive(wire[position : position + step])
        position, turn = position + step, turn + 1
    odd = b"".join(data[index : index + 100] for index in range(0, len(data), 100) if index % 200)
    even = b"".join(data[index : index + 100] for index in range(0, len(data), 100) if not index % 200)
    assert (bytes(b.streams[1].inbox), bytes(b.streams[3].inbox)) == (odd, even)
    assert b.streams[1].remote_end


def test_a_peer_that_sends_past_its_window_ends_the_session() -> None:
    _, b = pair()
    b.receive(frame(WINDOW, SYN, 1, 0) + frame(DATA, 0, 1, STREAM_WINDOW, bytes(STREAM_WINDOW)))
    with pytest.raises(DecodeError) as refused:
        b.receive(frame(DATA, 0, 1, 1, b"x"))
    assert refused.value.reason is Reason.QUOTA_EXCEEDED


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x01" + bytes(11), Reason.MALFORMED),  # another version
        (frame(4, 0, 1, 0), Reason.MALFORMED),  # no such type
        (frame(DATA, SYN, 2, 0), Reason.INVALID_FIELD),  # our own parity
        (frame(WINDOW, SYN, 0, 0), Reason.INVALID_FIELD),
        (frame(WINDOW, SYN, 3, 0) + frame(WINDOW, SYN, 3, 0), Reason.INVALID_FIELD),  # opened twice
        (frame(WINDOW, SYN, 3, 0) + frame(WINDOW, SYN, 1, 0), Reason.INVALID_FIELD),  # going back
        (frame(WINDOW, SYN, 1, 0) + frame(WINDOW, 0, 1, 2**32 - 1), Reason.INVALID_FIELD),  # a window beyond 32 bits
        (frame(DATA, 0, 1, 2**31), Reason.OVERSIZE),
        (frame(DATA, 0, 1, STREAM_WINDOW + 1), Reason.OVERSIZE),
    ],
)
def test_broken_frames_end_the_session(data: bytes, reason: Reason) -> None:
    with pytest.raises(DecodeError) as refused:
        Session(initiator=False).receive(data)
    assert refused.value.reason is reason


def test_too_many_streams_are_reset_one_by_one() -> None:
    b = Session(initiator=False)
    numbers = range(1, 2 * (STREAMS_PER_CONNECTION + 3), 2)
    events = b.receive(b"".join(frame(WINDOW, SYN, number, 0) for number in numbers))
    assert len([event for event in events if isinstance(event, Opened)]) == STREAMS_PER_CONNECTION
    assert (b.inbound, b.refused) == (STREAMS_PER_CONNECTION, 3)
    last = frame(WINDOW, RST, 2 * (STREAMS_PER_CONNECTION + 3) - 1, 0)
    assert b.output.endswith(last)
    b.receive(frame(WINDOW, RST, 1, 0))
    assert b.inbound == STREAMS_PER_CONNECTION - 1


def test_a_reset_drops_what_was_not_read() -> None:
    a, b = pair()
    ours, theirs = opened(a, b)
    a.write(ours, memoryview(b"unread"))
    carry(a, b)
    a.reset(ours)
    assert [event for event in carry(a, b) if isinstance(event, Changed)] == [Changed(theirs)]
    assert (theirs.reset, bytes(theirs.inbox), b.streams) == (True, b"", {})
    b.receive(frame(DATA, 0, 1, 3, b"abc"))  # may still have been under way
    a.reset(ours)
    assert a.output == b""


def test_an_abandoned_stream_is_ended_without_disturbing_what_the_peer_has_yet_to_read() -> None:
    a, b = pair()
    ours, theirs = opened(a, b)
    a.write(ours, memoryview(b"last words"))
    a.abandon(ours)
    carry(a, b)
    assert (bytes(theirs.inbox), theirs.remote_end, theirs.reset) == (b"last words", True, False)
    b.write(theirs, memoryview(b"unheard"))
    b.end(theirs)
    carry(b, a)
    assert (bytes(ours.inbox), a.streams) == (b"", {})


def test_pings_are_answered_and_goodbyes_told() -> None:
    a, b = pair()
    a.ping(7)
    carry(a, b)
    assert carry(b, a) == [Pong(7)]
    b.go_away()
    assert carry(b, a) == [GoneAway(0)]
    a.open()
    carry(a, b)
    assert (b.streams, b.refused) == ({}, 1)
    assert frame(PING, ACK, 0, 1) == struct.pack(">BBHII", 0, PING, ACK, 0, 1)
    assert (GO_AWAY, FIN) == (3, 4)


@given(st.binary(max_size=400))
def test_any_bytes_give_events_or_a_typed_error(data: bytes) -> None:
    session = Session(initiator=False)
    try:
        session.receive(data)
    except DecodeError:
        return
    assert len(session._buffer) <= STREAM_WINDOW + 12
