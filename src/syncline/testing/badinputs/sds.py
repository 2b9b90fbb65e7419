"""SDS messages that break one requirement each, and frames that break a conversation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import base58
import msgspec

from syncline.core import limits
from syncline.core.keys import NodeKey
from syncline.core.limits import HOUR
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import Outcome, Reason
from syncline.protocols.sds.catalogue import standard
from syncline.protocols.sds.rules import Context, held, judge, kept, signed_publish
from syncline.protocols.sds.session.greeting import greeting
from syncline.protocols.sds.wire import Publish, Query, Sync, encode, signed_bytes
from syncline.testing.badinputs.case import Bad

R = Reason
NOW = 1_772_323_200_000_000
KEY, OTHER = NodeKey(bytes(range(32))), NodeKey(bytes(32))
CONTEXT = Context(network="testnet", memory=24 * HOUR)
TOPIC = "/spacedatanetwork/testnet/OMM"
PAYLOAD = standard("OMM").writer.encode({"OBJECT_NAME": "ISS (ZARYA)", "NORAD_CAT_ID": 25544})


def publish(**changes: Any) -> Publish:
    """A publish with its fields changed and then signed properly."""
    good = signed_publish(KEY, schema="OMM", payload=PAYLOAD, message_id="m-1", now=NOW)
    changed = msgspec.structs.replace(good, **changes)
    return msgspec.structs.replace(changed, signature=KEY.sign(signed_bytes(changed)))


def arrival(raw: bytes, topic: str = TOPIC) -> Arrival:
    return judge(Incoming(protocol="sds", topic=topic, raw=raw, peer="peer-sds", received_at=NOW), CONTEXT)


def _bad(name: str, raw: bytes, reason: Reason, topic: str = TOPIC, outcome: Outcome = Outcome.REJECT) -> Bad:
    return Bad(protocol="sds", name=name, reason=reason, outcome=outcome, judged=lambda: arrival(raw, topic), raw=raw)


def cases() -> Iterator[Bad]:
    assert arrival(encode(publish())).accepted
    yield from _frames()
    yield from _fields()
    yield from _signatures()
    yield from _payloads()


def _frames() -> Iterator[Bad]:
    good = encode(publish())
    for name, raw, reason in (
        ("nothing", b"", R.MALFORMED),
        ("one byte", b"\0", R.MALFORMED),
        ("cut to its length", good[:4], R.MALFORMED),
        ("cut in the middle", good[: len(good) // 2], R.MALFORMED),
        ("a byte short", good[:-1], R.MALFORMED),
        ("an unknown identifier", good[:8] + b"XXXX" + good[12:], R.MALFORMED),
        ("an identifier in lower case", good[:8] + b"spub" + good[12:], R.MALFORMED),
        ("a root beyond the end", good[:4] + b"\xff\xff\xff\x7f" + good[8:], R.MALFORMED),
        ("a root of 0", good[:4] + bytes(4) + good[8:], R.MALFORMED),
        ("all ones", b"\xff" * 200, R.MALFORMED),
        ("all zeros", bytes(200), R.MALFORMED),
        ("JSON", b'{"message_id": "m-1"}' + bytes(20), R.MALFORMED),
        ("a hello", encode(greeting(["OMM"])), R.MALFORMED),
        ("a query", encode(Query(query_id="q", schema="OMM")), R.MALFORMED),
        ("a sync", encode(Sync(sync_id="s")), R.MALFORMED),
        ("oversize", encode(publish(payload=bytes(limits.SDS_MESSAGE_BYTES + 1_000_000))), R.OVERSIZE),
    ):
        yield _bad(f"frame: {name}", raw, reason)


def _fields() -> Iterator[Bad]:
    refused: tuple[tuple[str, dict[str, Any], Reason], ...] = (
        ("no id", {"message_id": ""}, R.INVALID_FIELD),
        ("an id too long", {"message_id": "m" * (limits.SDS_TEXT_MAX + 1)}, R.INVALID_FIELD),
        ("no time", {"timestamp": ""}, R.INVALID_FIELD),
        ("a time that is none", {"timestamp": "yesterday"}, R.INVALID_FIELD),
        ("a time in seconds", {"timestamp": "1772323200"}, R.INVALID_FIELD),
        ("month 13", {"timestamp": "2026-13-01T00:00:00Z"}, R.INVALID_FIELD),
        ("the 30th of February", {"timestamp": "2026-02-30T00:00:00Z"}, R.INVALID_FIELD),
        ("hour 25", {"timestamp": "2026-03-01T25:00:00Z"}, R.INVALID_FIELD),
        ("a time too long", {"timestamp": "2026-03-01T00:00:00." + "0" * 80 + "Z"}, R.INVALID_FIELD),
        ("dated an hour ahead", {"timestamp": "2026-03-01T01:00:00Z"}, R.FUTURE_TIMESTAMP),
        ("dated 5 min 1 s ahead", {"timestamp": "2026-03-01T00:05:01Z"}, R.FUTURE_TIMESTAMP),
        ("dated year 9999", {"timestamp": "9999-12-31T23:59:59Z"}, R.FUTURE_TIMESTAMP),
        ("dated ahead by its offset", {"timestamp": "2026-03-01T00:00:00-12:00"}, R.FUTURE_TIMESTAMP),
        ("no schema", {"schema": ""}, R.UNKNOWN_SCHEMA),
        ("an unknown schema", {"schema": "XYZ"}, R.UNKNOWN_SCHEMA),
        ("a schema in lower case", {"schema": "omm"}, R.UNKNOWN_SCHEMA),
        ("a schema that is a path", {"schema": "../OMM"}, R.UNKNOWN_SCHEMA),
        ("another schema than the topic's", {"schema": "CDM"}, R.INVALID_TOPIC),
    )
    for name, changes, reason in refused:
        yield _bad(name, encode(publish(**changes)), reason)
    ignored: tuple[tuple[str, dict[str, Any], Reason], ...] = (
        ("expired by its ttl", {"timestamp": "2026-02-28T23:59:00Z", "ttl": 60}, R.EXPIRED),
        ("older than ids are remembered", {"timestamp": "2026-02-27T00:00:00Z"}, R.TOO_OLD),
        ("dated 1970", {"timestamp": "1970-01-01T00:00:00Z"}, R.TOO_OLD),
        ("dated year 1", {"timestamp": "0001-01-01T00:00:00Z"}, R.TOO_OLD),
    )
    for name, changes, reason in ignored:
        yield _bad(name, encode(publish(**changes)), reason, outcome=Outcome.IGNORE)
    good = encode(publish())
    for topic in (
        "",
        "OMM",
        "/spacedatanetwork/testnet/CDM",
        "/spacedatanetwork/mainnet/OMM",
        TOPIC + "/",
        TOPIC + "\n",
    ):
        yield _bad(f"on topic {topic!r}", good, R.INVALID_TOPIC, topic)
    record = held(publish(message_id=""), NOW)
    yield _bad("a record of an answer without id", kept(record), R.INVALID_FIELD)
    unsigned = held(publish(), NOW, with_signature=False)
    yield _bad("a record of an answer without signature", kept(unsigned), R.INVALID_SIGNATURE)


def _signatures() -> Iterator[Bad]:
    good = publish()
    rsa = base58.b58encode(b"\x12\x20" + bytes(32)).decode()
    secp = base58.b58encode(b"\x00\x25\x08\x02\x12\x21" + bytes(33)).decode()
    order = 2**252 + 27742317777372353535851937790883648493
    lax = (int.from_bytes(good.signature[32:], "little") + order).to_bytes(32, "little")
    for name, message, reason in (
        ("no signature", msgspec.structs.replace(good, signature=b""), R.INVALID_SIGNATURE),
        ("a signature of zeros", msgspec.structs.replace(good, signature=bytes(64)), R.INVALID_SIGNATURE),
        ("a signature of 63 bytes", msgspec.structs.replace(good, signature=good.signature[:63]), R.INVALID_SIGNATURE),
        (
            "a signature of 65 bytes",
            msgspec.structs.replace(good, signature=good.signature + b"\0"),
            R.INVALID_SIGNATURE,
        ),
        (
            "a malleable signature",
            msgspec.structs.replace(good, signature=good.signature[:32] + lax),
            R.INVALID_SIGNATURE,
        ),
        ("somebody else's name", msgspec.structs.replace(good, publisher_id=OTHER.peer_id), R.INVALID_SIGNATURE),
        ("another id", msgspec.structs.replace(good, message_id="m-2"), R.INVALID_SIGNATURE),
        ("another time", msgspec.structs.replace(good, timestamp="2026-03-01T00:00:01Z"), R.INVALID_SIGNATURE),
        ("another ttl", msgspec.structs.replace(good, ttl=60), R.INVALID_SIGNATURE),
        ("another payload", msgspec.structs.replace(good, payload=PAYLOAD + b"\0"), R.INVALID_SIGNATURE),
        ("a publisher by an RSA key", publish(publisher_id=rsa), R.INVALID_SIGNATURE),
        ("a publisher by a secp256k1 key", publish(publisher_id=secp), R.INVALID_SIGNATURE),
        ("no publisher", publish(publisher_id=""), R.INVALID_PUBLISHER),
        ("a publisher that is no base58", publish(publisher_id="0OIl"), R.INVALID_PUBLISHER),
        ("a publisher too short", publish(publisher_id=KEY.peer_id[:-4]), R.INVALID_PUBLISHER),
        ("a publisher too long", publish(publisher_id=KEY.peer_id * 2), R.INVALID_PUBLISHER),
        ("a publisher that is a did", publish(publisher_id=KEY.did), R.INVALID_PUBLISHER),
    ):
        yield _bad(f"signature: {name}", encode(message), reason)


def _payloads() -> Iterator[Bad]:
    for name, payload in (
        ("nothing", b""),
        ("four bytes", b"\0\0\0\0"),
        ("another identifier", PAYLOAD[:8] + b"$CDM" + PAYLOAD[12:]),
        ("cut short", PAYLOAD[: len(PAYLOAD) // 2]),
        ("a byte short", PAYLOAD[:-1]),
        ("all ones", b"\xff" * 64),
        ("a root beyond the end", PAYLOAD[:4] + b"\xff\xff\xff\x7f" + PAYLOAD[8:]),
        ("a root into its own header", PAYLOAD[:4] + bytes(4) + PAYLOAD[8:]),
        ("a vtable of ones", PAYLOAD[:12] + b"\xff" * 40 + PAYLOAD[52:]),
        ("text instead", b"1 25544U 98067A   26060.25000000"),
    ):
        yield _bad(f"payload: {name}", encode(publish(payload=payload)), R.INVALID_PAYLOAD)
