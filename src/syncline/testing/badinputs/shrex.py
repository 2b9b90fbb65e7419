"""Notifications and headers that break one requirement of ShrEx/Sub each, inside signed messages that are otherwise good."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from syncline.core import limits
from syncline.core.keys import NodeKey
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import Outcome, Reason, Verdict
from syncline.formats import pubsub
from syncline.formats.protobuf import bytes_field, varint_field
from syncline.protocols.shrex.rules.headers import Kept, Trusted, link
from syncline.protocols.shrex.rules.notifications import EMPTY_ROOT, Known, judge_message, verify
from syncline.protocols.shrex.wire import header as header_wire
from syncline.protocols.shrex.wire.notification import TOPIC, Notification, encode
from syncline.testing.badinputs.case import Bad
from syncline.testing.headers import chain

R = Reason
NOW = 1_772_323_200_000_000
KEY = NodeKey(bytes(range(32)))
HASH = hashlib.sha256(b"root").digest()
PAYLOAD = encode(Notification(7, HASH))
CURVE = 2**255 - 19


def kept(raw: bytes, verdict: Verdict) -> Arrival:
    return Arrival(
        protocol="shrex", topic=TOPIC, kind="notification", id=hashlib.sha256(raw).digest(), received_at=NOW,
        verdict=Outcome.ACCEPT, peer="peer-shrex", raw=raw[:1_000],
    ).judged(verdict)  # fmt: skip


def arrival(raw: bytes, topic: str = TOPIC) -> Arrival:
    incoming = Incoming(protocol="shrex", topic=topic, raw=raw, peer="peer-shrex", received_at=NOW)
    return kept(raw, judge_message(incoming.raw, topic)[2])


def signed(data: bytes = PAYLOAD, *, topic: str = TOPIC, key: NodeKey = KEY, seqno: int = 1) -> bytes:
    return pubsub.compose(key, topic, data, seqno)


def _bad(name: str, raw: bytes, reason: Reason, outcome: Outcome = Outcome.REJECT) -> Bad:
    return Bad(protocol="shrex", name=name, reason=reason, outcome=outcome, judged=lambda: arrival(raw), raw=raw)


def cases() -> Iterator[Bad]:
    yield from _payloads()
    yield from _messages()
    yield from _verification()
    yield from _headers()


def _payloads() -> Iterator[Bad]:
    for name, data, reason in (
        ("nothing", b"", R.INVALID_FIELD),
        ("height alone", varint_field(1, 7), R.INVALID_FIELD),
        ("hash alone", bytes_field(2, HASH), R.INVALID_FIELD),
        ("height 0", encode(Notification(0, HASH)), R.INVALID_FIELD),
        ("a hash of zeros", encode(Notification(7, bytes(32))), R.INVALID_FIELD),
        ("the root of an empty block", encode(Notification(7, EMPTY_ROOT)), R.INVALID_FIELD),
        ("a hash of 31 bytes", encode(Notification(7, HASH[:31])), R.INVALID_FIELD),
        ("a hash of 33 bytes", encode(Notification(7, HASH + b"x")), R.INVALID_FIELD),
        ("an empty hash", encode(Notification(7, b"")), R.INVALID_FIELD),
        ("a hash in hex", encode(Notification(7, HASH.hex().encode())), R.INVALID_FIELD),
        ("oversize", PAYLOAD + bytes_field(9, bytes(limits.SHREX_NOTIFICATION_BYTES)), R.OVERSIZE),
        (
            "one byte oversize",
            PAYLOAD + bytes_field(9, bytes(limits.SHREX_NOTIFICATION_BYTES - len(PAYLOAD) - 2)),
            R.OVERSIZE,
        ),
        ("cut short", PAYLOAD[:-1], R.MALFORMED),
        ("cut in the height", b"\x08\xff", R.MALFORMED),
        ("a height of eleven bytes", b"\x08" + b"\xff" * 10 + b"\x01" + bytes_field(2, HASH), R.MALFORMED),
        ("height as bytes", bytes_field(1, b"7") + bytes_field(2, HASH), R.MALFORMED),
        ("hash as a number", varint_field(1, 7) + varint_field(2, 7), R.MALFORMED),
        ("a lying length", varint_field(1, 7) + b"\x12\x7f" + HASH, R.MALFORMED),
        ("a length of 2^63", varint_field(1, 7) + b"\x12" + b"\xff" * 8 + b"\x7f" + HASH, R.MALFORMED),
        ("field 0", b"\x00\x00", R.MALFORMED),
        ("an unknown wire type", b"\x0f\x00", R.MALFORMED),
        ("a group", b"\x0b\x0c", R.MALFORMED),
        ("JSON", b'{"height": 7}', R.MALFORMED),
    ):
        yield _bad(f"payload: {name}", signed(data), reason)


def _messages() -> Iterator[Bad]:
    good = signed()
    author, rest = good[:40], good[40:]
    for name, raw, reason in (
        ("nothing at all", b"", R.INVALID_TOPIC),
        ("no signature", good[:-66], R.INVALID_SIGNATURE),
        ("a signature of zeros", good[:-64] + bytes(64), R.INVALID_SIGNATURE),
        ("a signature cut short", good[:-66] + b"\x2a\x3f" + good[-64:-1], R.INVALID_SIGNATURE),
        ("a signature one bit off", good[:-1] + bytes([good[-1] ^ 1]), R.INVALID_SIGNATURE),
        ("a malleable signature", good[:-32] + _plus_order(good[-32:]), R.INVALID_SIGNATURE),
        ("somebody else's signature", signed(key=NodeKey(bytes(32)))[:40] + rest, R.INVALID_SIGNATURE),
        ("the payload of another", good.replace(HASH, HASH[::-1]), R.INVALID_SIGNATURE),
        ("another topic inside", signed(topic="/eds-sub/0.0.2"), R.INVALID_TOPIC),
        ("no topic inside", signed(topic=""), R.INVALID_TOPIC),
        ("an author given twice", author + good, R.INVALID_FIELD),
        ("data given twice", good + bytes_field(2, b"more"), R.INVALID_FIELD),
        ("a topic given twice", good + bytes_field(4, TOPIC.encode()), R.INVALID_FIELD),
        ("an author that is no PeerID", bytes_field(1, b"eve") + rest, R.INVALID_PUBLISHER),
        ("no author", rest, R.INVALID_PUBLISHER),
        ("another key beside", good + bytes_field(6, b"\x08\x01\x12\x20" + bytes(32)), R.INVALID_SIGNATURE),
        ("no sequence number", good.replace(b"\x1a\x08" + (1).to_bytes(8, "big"), b""), R.INVALID_FIELD),
        ("a sequence number of nine bytes", good.replace(b"\x1a\x08", b"\x1a\x09\x00"), R.INVALID_FIELD),
        ("a topic that is not UTF-8", good.replace(b"/eds-sub", b"\xff\xfe-sub"), R.MALFORMED),
        ("cut in a length", good[:1], R.MALFORMED),
        ("cut in a field", good[:30], R.MALFORMED),
        ("a lying length", b"\x0a\x7f" + good[2:40], R.MALFORMED),
        ("oversize", good + bytes_field(15, bytes(limits.SHREX_MESSAGE_BYTES)), R.OVERSIZE),
    ):
        yield _bad(f"message: {name}", raw, reason)
    rsa = bytes_field(1, b"\x12\x20" + bytes(32)) + rest
    yield _bad("message: an author whose key is not in its name", rsa, R.INVALID_PUBLISHER, Outcome.IGNORE)


def _plus_order(scalar: bytes) -> bytes:
    """The same signature with the group's order added to its second half: valid to lax verifiers."""
    order = 2**252 + 27742317777372353535851937790883648493
    return ((int.from_bytes(scalar, "little") + order) % 2**256).to_bytes(32, "little")


def _verification() -> Iterator[Bad]:
    def bad(name: str, height: int, known: Known, reason: Reason, outcome: Outcome = Outcome.REJECT) -> Bad:
        return Bad(
            protocol="shrex", name=f"verification: {name}", reason=reason, outcome=outcome,
            judged=lambda: kept(name.encode(), verify(Notification(height, HASH), known)),
        )  # fmt: skip

    other = HASH[::-1]
    yield bad("another hash than the header's", 7, Known(other, 1, 9), R.HEADER_MISMATCH)
    yield bad("a height our chain has passed", 7, Known(None, 1, 9), R.HEADER_UNKNOWN)
    yield bad("a height to come", 10, Known(None, 1, 9), R.HEADER_UNKNOWN, Outcome.IGNORE)
    yield bad("height 2^64-1", 2**64 - 1, Known(None, 1, 9), R.HEADER_UNKNOWN, Outcome.IGNORE)
    yield bad("before any header is known", 7, Known(None, 0, 0), R.HEADER_UNKNOWN, Outcome.IGNORE)
    yield bad("below the window", 3, Known(None, 5, 9), R.OUT_OF_WINDOW, Outcome.IGNORE)


def _headers() -> Iterator[Bad]:
    headers = chain(3)
    first, second, third = headers

    def bad(name: str, verdict: Verdict, reason: Reason, outcome: Outcome = Outcome.REJECT) -> Bad:
        return Bad(
            protocol="shrex", name=f"header: {name}", reason=reason, outcome=outcome,
            judged=lambda: kept(name.encode(), verdict),
        )  # fmt: skip

    kept_first = Kept(first.hash, first.data_hash)
    forged = msgspec.structs.replace(second, data_hash=HASH)
    yield bad("does not continue the chain", link(third, kept_first, None, is_first=False), R.HEADER_MISMATCH)
    yield bad(
        "not the trusted one", link(forged, kept_first, Trusted(2, second.hash), is_first=False), R.HEADER_MISMATCH
    )
    yield bad("not linked to anything", link(third, None, None, is_first=False), R.HEADER_UNKNOWN, Outcome.IGNORE)
    yield bad(
        "not linked to the trusted one yet", link(third, None, Trusted(1, first.hash), is_first=True), R.HEADER_UNKNOWN,
        Outcome.IGNORE,
    )  # fmt: skip
    raw = header_wire.encode(first)
    for name, data in (("nothing", b""), ("cut short", raw[: len(raw) // 2]), ("garbage", b"\xff" * 40)):
        yield Bad(
            protocol="shrex", name=f"header bytes: {name}", reason=R.MALFORMED,
            judged=lambda data=data: kept(data, _header_verdict(data)), raw=data,  # type: ignore[misc]
        )  # fmt: skip


def _header_verdict(data: bytes) -> Verdict:
    from syncline.core.errors import DecodeError
    from syncline.core.verdict import ACCEPT

    try:
        header_wire.decode(data)
    except DecodeError as error:
        return error.verdict
    return ACCEPT
