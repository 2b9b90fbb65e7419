"""Links: only proven and known servers, one link between two, and what breaks the rules ends it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from syncline.core.errors import DecodeError, RefusedError
from syncline.core.keys import NodeKey
from syncline.core.verdict import Reason
from syncline.protocols.relay.session.handshake import Handshake, Identity, Neighbour, Role
from syncline.protocols.relay.session.link import Link
from syncline.protocols.relay.wire.links import (
    Ack,
    Challenge,
    Hello,
    Interest,
    decode_control,
    decode_parcel,
    encode_control,
    encode_parcel,
)
from syncline.protocols.relay.wire.messages import NetworkMessage, encode
from tests.protocols.relay.desk import Desk
from tests.relays import topic_of

A, B, MALLORY = (NodeKey(bytes([number]) * 32) for number in (1, 2, 3))
NEWS = topic_of("news")


def side(role: Role, key: NodeKey, *trusted: NodeKey, former: NodeKey | None = None, nonce: bytes = b"") -> Handshake:
    names = {each.peer_id for each in trusted}
    identity = Identity(key, 1, "name", former)
    return Handshake(role, identity, lambda name: name in names, nonce or (role[0].encode() * 32))


def shake(one: Handshake, other: Handshake) -> tuple[Neighbour, Neighbour]:
    """Run both sides to the end."""
    first, second = decode_control(one.open()), decode_control(other.open())
    to_other, to_one = one.receive(second), other.receive(first)
    assert isinstance(to_other, bytes)
    assert isinstance(to_one, bytes)
    at_other, at_one = other.receive(decode_control(to_other)), one.receive(decode_control(to_one))
    assert isinstance(at_one, Neighbour)
    assert isinstance(at_other, Neighbour)
    return at_one, at_other


def test_two_servers_that_know_each_other_prove_their_keys() -> None:
    at_a, at_b = shake(side("dialer", A, B), side("listener", B, A))
    assert (at_a.key, at_b.key) == (B.peer_id, A.peer_id)


def test_an_unknown_server_is_refused_although_its_proof_is_good() -> None:
    with pytest.raises(RefusedError, match="not known here") as raised:
        shake(side("dialer", MALLORY, B), side("listener", B, A))
    assert raised.value.reason is Reason.UNAUTHORISED


def test_a_dialer_refuses_another_server_than_it_dialed() -> None:
    with pytest.raises(RefusedError, match="not known here"):
        shake(side("dialer", A, B), side("listener", MALLORY, A))


def hello_of(role: Role, key: NodeKey, to: Challenge, nonce: bytes) -> Hello:
    shaking = Handshake(role, Identity(key, 1), lambda name: True, nonce)
    answer = shaking.receive(to)
    assert isinstance(answer, bytes)
    hello = decode_control(answer)
    assert isinstance(hello, Hello)
    return hello


def challenge_of(shaking: Handshake) -> Challenge:
    challenge = decode_control(shaking.open())
    assert isinstance(challenge, Challenge)
    return challenge


def test_a_proof_for_another_challenge_role_or_key_is_worthless() -> None:
    def refused(hello: Hello) -> Reason:
        b = side("listener", B, A, MALLORY)
        b.receive(challenge_of(side("dialer", A)))
        with pytest.raises(RefusedError) as raised:
            b.receive(hello)
        return raised.value.reason

    to_b = challenge_of(side("listener", B))
    good = hello_of("dialer", A, to_b, b"d" * 32)
    replayed = hello_of("dialer", A, msgspec.structs.replace(to_b, nonce="00" * 32), b"d" * 32)
    reflected = hello_of("listener", A, to_b, b"d" * 32)
    for_mallory = hello_of("dialer", A, msgspec.structs.replace(to_b, key=MALLORY.peer_id), b"d" * 32)
    forged = msgspec.structs.replace(hello_of("dialer", MALLORY, to_b, b"d" * 32), key=A.peer_id)
    garbled = msgspec.structs.replace(good, proof="zz")
    for bad in (replayed, reflected, for_mallory, forged, garbled):
        assert refused(bad) is Reason.INVALID_SIGNATURE


def test_a_link_to_oneself_another_version_and_a_second_challenge_are_refused() -> None:
    with pytest.raises(RefusedError, match="ourselves"):
        side("dialer", A, A).receive(challenge_of(side("listener", A)))
    with pytest.raises(RefusedError, match="version 9"):
        side("dialer", A, B).receive(msgspec.structs.replace(challenge_of(side("listener", B)), version=9))
    with pytest.raises(RefusedError, match="fresh"):
        side("dialer", A, B, nonce=b"n" * 32).receive(challenge_of(side("listener", B, nonce=b"n" * 32)))
    shaking = side("dialer", A, B)
    shaking.receive(challenge_of(side("listener", B)))
    with pytest.raises(RefusedError, match="not the time"):
        shaking.receive(challenge_of(side("listener", B)))


def test_a_new_key_is_believed_when_the_known_one_vouches_for_it() -> None:
    new = NodeKey(bytes([9]) * 32)
    at_a, _ = shake(side("dialer", A, B), side("listener", new, A, former=B))
    assert (at_a.key, at_a.former) == (new.peer_id, B.peer_id)


def test_a_former_key_that_does_not_vouch_is_refused() -> None:
    dialer, listener = side("dialer", A, B), side("listener", MALLORY, A)
    dialer.receive(msgspec.structs.replace(challenge_of(listener), former=B.peer_id))
    answer = listener.receive(challenge_of(dialer))
    assert isinstance(answer, bytes)
    hello = decode_control(answer)
    assert isinstance(hello, Hello)
    with pytest.raises(RefusedError, match="former key"):
        dialer.receive(msgspec.structs.replace(hello, former_proof=hello.proof))


def test_parcels_are_read_as_they_were_written_and_short_ones_refused() -> None:
    parcel = encode_parcel(NEWS, b"message")
    assert parcel == b"\x00\x40" + NEWS.encode() + b"message"
    assert decode_parcel(parcel) == (NEWS, b"message")
    for bad in (b"", b"\x00", b"\x00\x05abcd", b"\x00\x02\xff\xfe"):
        with pytest.raises(DecodeError):
            decode_parcel(bad)


# -- a link into a running hub -----------------------------------------------------------------------------------


class FarEnd:
    """A server at the other end of a link, played by hand."""

    def __init__(self, desk: Desk, key: NodeKey = A) -> None:
        self.desk = desk
        self.link: Link = desk.hub.open_link(lambda name: True, dialed=False)
        hand = Handshake("dialer", Identity(key, 1, "far"), lambda name: True, b"x" * 32)
        self.said: list[Any] = []
        self.text(hand.open())
        challenge = next(each for each in self.heard() if isinstance(each, Challenge))
        answer = hand.receive(challenge)
        assert isinstance(answer, bytes)
        self.text(answer)
        self.heard()

    def text(self, payload: bytes) -> None:
        self.desk.hub.links.receive(self.link, payload, is_text=True)

    def control(self, message: Any) -> None:
        self.text(encode_control(message))

    def parcel(self, payload: bytes) -> None:
        self.desk.hub.links.receive(self.link, payload, is_text=False)

    def heard(self) -> list[Any]:
        self.desk.run()
        return [decode_control(p) if is_text else decode_parcel(p) for is_text, p in self.link.take()]


def message_at(desk: Desk, text: str = "hello", **changes: Any) -> bytes:
    fields = {"tag": 1, "prompt": False, "timestamp": desk.clock.now() // 1_000, "ttl": 300, "message": text.encode()}
    return encode(NetworkMessage(**{**fields, **changes}))


def wants(server: NodeKey, *topics: str) -> Interest:
    return Interest(server=server.peer_id, epoch=1, seq=1, base=None, links=[], add=list(topics))


def test_a_message_from_a_server_is_cached_delivered_and_confirmed() -> None:
    desk = Desk()
    far, bob = FarEnd(desk), desk.client()
    desk.subscribe(bob, NEWS)
    far.heard()
    far.parcel(encode_parcel(NEWS, message_at(desk)))
    assert far.heard() == [Ack(1)]
    assert [each["params"]["data"]["message"] for each in desk.heard(bob)] == ["hello"]
    assert desk.last_arrival().peer == A.peer_id


def test_a_message_goes_only_where_it_is_wanted_and_never_back() -> None:
    desk = Desk()
    one, other, third = FarEnd(desk, A), FarEnd(desk, B), FarEnd(desk, MALLORY)
    one.control(wants(A, NEWS))
    other.control(wants(B, NEWS))
    for end in (one, other, third):
        end.heard()
    raw = message_at(desk)
    one.parcel(encode_parcel(NEWS, raw))
    assert one.heard() == [Ack(1)]
    assert other.heard() == [(NEWS, raw)]
    assert third.heard() == []
    other.parcel(encode_parcel(NEWS, raw))  # it comes back by a loop
    assert other.heard() == [Ack(1)]
    assert one.heard() == []
    assert desk.last_arrival().reason is Reason.LOOP


def test_a_window_of_unconfirmed_messages_holds_a_slow_server_back() -> None:
    desk = Desk(link_window=3)
    far, alice = FarEnd(desk), desk.client()
    far.control(wants(A, NEWS))
    far.heard()
    for number in range(8):
        desk.publish(alice, NEWS, str(number))
    assert len(far.heard()) == 3
    far.control(Ack(2))
    assert len(far.heard()) == 2
    far.control(Ack(99))
    assert len(far.heard()) == 3


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"rubbish", Reason.MALFORMED),
        (b"irn\x03" + bytes(26), Reason.UNSUPPORTED_VERSION),
    ],
)
def test_a_bad_message_is_confirmed_recorded_and_counted(raw: bytes, reason: Reason) -> None:
    desk = Desk()
    far = FarEnd(desk)
    far.parcel(encode_parcel(NEWS, raw))
    assert far.heard() == [Ack(1)]
    assert (desk.last_arrival().reason, far.link.strikes) == (reason, 1)


def test_a_future_timestamp_never_keeps_a_message_longer() -> None:
    desk = Desk()
    far = FarEnd(desk)
    far.parcel(encode_parcel(NEWS, message_at(desk, timestamp=desk.clock.now() // 1_000 + 3_600_000)))
    far.heard()
    assert desk.last_arrival().reason is Reason.FUTURE_TIMESTAMP
    assert len(desk.hub.cache) == 0


def test_an_expired_message_is_not_taken_in_nor_held_against_the_server() -> None:
    desk = Desk()
    far = FarEnd(desk)
    far.parcel(encode_parcel(NEWS, message_at(desk, timestamp=desk.clock.now() // 1_000 - 301_000)))
    assert far.heard() == [Ack(1)]
    assert (desk.last_arrival().reason, far.link.strikes) == (Reason.EXPIRED, 0)


def test_quotas_hold_for_servers_too() -> None:
    desk = Desk(link_bytes=200, message_bytes=100)
    far = FarEnd(desk)
    far.parcel(encode_parcel(NEWS, message_at(desk, "a" * 101)))
    far.heard()
    assert desk.last_arrival().reason is Reason.QUOTA_EXCEEDED
    far.parcel(encode_parcel(NEWS, message_at(desk, "b" * 100)))
    far.parcel(encode_parcel(NEWS, message_at(desk, "c" * 100)))
    far.heard()
    assert [each.reason for each in desk.disk.arrivals] == [Reason.QUOTA_EXCEEDED, None, Reason.QUOTA_EXCEEDED]


def test_a_neighbour_is_not_to_blame_for_quotas_of_ours() -> None:
    """It cannot know them, and the link carries other topics too."""
    desk = Desk(topic_messages=1)
    far = FarEnd(desk)
    for number in range(1_100):
        far.parcel(encode_parcel(NEWS, message_at(desk, f"{number}")))
        desk.run()
    assert desk.last_arrival().reason is Reason.QUOTA_EXCEEDED
    assert (far.link.end, far.link.strikes) == (None, 0)


def test_more_than_a_thousand_bad_messages_end_the_link() -> None:
    desk = Desk()
    far = FarEnd(desk)
    for _ in range(1_001):
        far.parcel(encode_parcel(NEWS, b"rubbish"))
        desk.run()
    assert far.link.end == (4003, "more than 1000 bad messages")


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"{}", b'{"type":"dance"}', b'{"type":"ack","count":"many"}', b"\xff", b'{"type":"challenge"}'],
)
def test_control_that_is_none_ends_the_link(payload: bytes) -> None:
    far = FarEnd(Desk())
    far.text(payload)
    assert far.link.end is not None
    assert far.link.end[0] == 4003


def test_messages_before_the_handshake_end_the_link() -> None:
    desk = Desk()
    link = desk.hub.open_link(lambda name: True, dialed=False)
    desk.hub.links.receive(link, encode_parcel(NEWS, message_at(desk)), is_text=False)
    assert link.end == (4003, "malformed: messages come after the handshake")
    assert desk.disk.arrivals == []


def test_of_two_links_between_the_same_servers_one_stays() -> None:
    desk = Desk()
    old, new = FarEnd(desk), FarEnd(desk)
    assert old.link.end == (4001, "there is a newer link")
    assert new.link.end is None
    assert [link.peer for link in desk.hub.links.open_links()] == [A.peer_id]


def test_a_silent_neighbour_is_pinged_and_then_given_up() -> None:
    desk = Desk()
    far = FarEnd(desk)
    desk.clock.advance(10)
    desk.hub.tick()
    assert [type(each).__name__ for each in far.heard()] == ["Ping"]
    desk.clock.advance(20)
    desk.hub.tick()
    assert far.link.end == (4002, "silent for 30 s")


def test_too_much_interest_ends_the_link() -> None:
    desk = Desk(interest=2)
    far = FarEnd(desk)
    far.control(wants(A, topic_of("1"), topic_of("2"), topic_of("3")))
    assert far.link.end == (4003, "quota_exceeded: a link may bring 2 topics")


def test_strangers_that_never_prove_themselves_keep_nobody_out() -> None:
    desk = Desk()
    strangers = [desk.hub.open_link(lambda name: True, dialed=False) for _ in range(70)]
    assert [each.end is not None for each in strangers] == [True] * 6 + [False] * 64
    far = FarEnd(desk)
    assert far.link.end is None
    desk.clock.advance(10)
    desk.hub.tick()
    assert all(each.end is not None for each in strangers)
    assert strangers[-1].end == (4002, "silent for 10 s")
