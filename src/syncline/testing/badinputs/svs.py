"""NDN packets of a group that break one requirement each: structure, names, numbers, signatures, vectors, mappings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial

from syncline.core import limits
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import Outcome, Reason
from syncline.formats import tlv
from syncline.formats.ndn import names
from syncline.formats.ndn import types as t
from syncline.formats.ndn.packets import encode_data, encode_interest
from syncline.formats.ndn.signing import Hmac
from syncline.protocols.svs.rules import Keys, Trust, examine, judge_arrival, judge_sync
from syncline.protocols.svs.wire.mapping import MappingEntry, encode_mapping
from syncline.protocols.svs.wire.naming import mapping_name, sync_name
from syncline.protocols.svs.wire.vector import encode_vector
from syncline.testing.badinputs.case import Bad

R = Reason
NOW = 1_772_323_200_000_000
NODE, GROUP, CHAT = names.parse("/node/a"), names.parse("/group"), names.parse("/chat/hello")
SYNC, OUTER, INNER, MAPPING, WRONG = (Hmac(name.encode()) for name in ("sync", "outer", "inner", "mapping", "wrong"))
TRUST = Trust(sync=Keys([SYNC]), outer=Keys([OUTER]), inner=Keys([INNER]), mapping=Keys([MAPPING]))


def inner(name: str = "/chat/hello", final: str | None = None, signer: Hmac = INNER, content: bytes = b"hi") -> bytes:
    return encode_data(names.parse(name), content, signer, final_block=None if final is None else names.parse(final))


def outer(
    name: str = "/node/a/group/%01", *, content: bytes | None = None, content_type: int | None = 6,
    freshness: int | None = 1_000, final: str | None = None, signer: Hmac = OUTER,
) -> bytes:  # fmt: skip
    block = None if final is None else names.parse(final)
    inside = inner() if content is None else content
    return encode_data(
        names.parse(name), inside, signer, content_type=content_type, freshness=freshness, final_block=block
    )


def arrival(raw: bytes) -> Arrival:
    incoming = Incoming(protocol="svs", topic="/group", raw=raw, peer="peer-svs", received_at=NOW)
    return judge_arrival(incoming, GROUP, examine(raw, GROUP, TRUST))


def _bad(name: str, raw: bytes, reason: Reason) -> Bad:
    return Bad(protocol="svs", name=name, reason=reason, judged=lambda: arrival(raw), raw=raw)


def cases() -> Iterator[Bad]:
    assert arrival(outer()).accepted
    assert not sync_arrival(interest()).reason
    yield from _structure()
    yield from _names()
    yield from _outer()
    yield from _mappings()
    yield from _sync()


def _structure() -> Iterator[Bad]:
    good = outer()
    body = good[tlv.read_header(good, 0, len(good))[1] :]
    for name, raw, reason in (
        ("nothing", b"", R.MALFORMED),
        ("a type alone", b"\x06", R.MALFORMED),
        ("an empty Data", b"\x06\x00", R.MALFORMED),
        ("an Interest", encode_interest(names.parse("/node/a/group/%01"), nonce=b"abcd"), R.MALFORMED),
        ("cut in the middle", good[: len(good) // 2], R.MALFORMED),
        ("a byte short", good[:-1], R.MALFORMED),
        ("a byte more", good + b"\0", R.MALFORMED),
        ("a length not in its shortest form", b"\x06\xfe" + len(body).to_bytes(4, "big") + body, R.MALFORMED),
        ("a length of 2^64-1", b"\x06\xff" + b"\xff" * 8, R.MALFORMED),
        ("type 0", b"\x00\x00", R.MALFORMED),
        ("no name", tlv.encode(t.DATA, tlv.encode(t.CONTENT, b"x")), R.MALFORMED),
        ("no signature", tlv.encode(t.DATA, tlv.encode(t.NAME, names.parse("/node/a/group/%01"))), R.INVALID_SIGNATURE),
        ("an unknown critical element", tlv.encode(t.DATA, body + tlv.encode(129, b"")), R.MALFORMED),
        ("oversize", outer(content=bytes(limits.NDN_PACKET_BYTES)), R.OVERSIZE),
        ("a name of very many components", _many_components(), R.TOO_COMPLEX),
    ):
        yield _bad(f"packet: {name}", raw, reason)


def _many_components() -> bytes:
    name = NODE + names.parse("/x") * 100 + GROUP + names.parse("/%01")
    return encode_data(name, inner(), OUTER, content_type=6, freshness=1_000)


def _names() -> Iterator[Bad]:
    for name, reason in (
        ("/node/a/other/%01", R.INVALID_TOPIC),
        ("/group/%01", R.INVALID_TOPIC),
        ("/node/a/group/x1x", R.INVALID_FIELD),
        ("/node/a/group", R.INVALID_FIELD),
        ("/node/a/group/%00", R.INVALID_FIELD),
        ("/node/a/group/%00%00%01", R.INVALID_FIELD),
        ("/node/a/group/%01/v=0", R.INVALID_FIELD),
        ("/node/a/group/%01/v=0/x", R.INVALID_FIELD),
        ("/node/a/group/%01/v=1/seg=0", R.INVALID_FIELD),
        ("/node/a/group/%FF%FF%FF%FF%FF%FF%FF%FF", R.INVALID_FIELD),
    ):
        yield _bad(f"name {name}", outer(name), reason)
    yield _bad("name too long for a record", outer("/" + "n" * 2_000 + "/group/%01"), R.OVERSIZE)
    far = outer(content=inner("/" + "c" * 2_000))
    yield _bad("application name too long for a record", far, R.OVERSIZE)


def _outer() -> Iterator[Bad]:
    segment = inner("/chat/hello/v=0/seg=0", "/seg=0")
    cases: tuple[tuple[str, bytes, Reason], ...] = (
        ("no ContentType", outer(content_type=None), R.INVALID_FIELD),
        ("ContentType 0", outer(content_type=0), R.INVALID_FIELD),
        ("ContentType 5", outer(content_type=5), R.INVALID_FIELD),
        ("no FreshnessPeriod", outer(freshness=None), R.INVALID_FIELD),
        ("FreshnessPeriod 0", outer(freshness=0), R.INVALID_FIELD),
        ("signed with another key", outer(signer=WRONG), R.INVALID_SIGNATURE),
        ("signed with the inner key", outer(signer=INNER), R.INVALID_SIGNATURE),
        ("one bit off", outer()[:-1] + bytes([outer()[-1] ^ 1]), R.INVALID_SIGNATURE),
        ("an inner one signed with another key", outer(content=inner(signer=WRONG)), R.INVALID_SIGNATURE),
        ("an inner one signed with the outer key", outer(content=inner(signer=OUTER)), R.INVALID_SIGNATURE),
        ("content that is no Data", outer(content=b"hello"), R.MALFORMED),
        ("content that is empty", outer(content=b""), R.MALFORMED),
        ("content that is cut", outer(content=inner()[:-3]), R.MALFORMED),
        ("content with more behind it", outer(content=inner() + b"\0"), R.MALFORMED),
        ("a FinalBlockId without segments", outer(final="/seg=0"), R.INVALID_FIELD),
        (
            "inner and outer with other FinalBlockIds",
            outer("/node/a/group/%01/v=0/seg=0", content=segment, final="/seg=1"),
            R.INVALID_FIELD,
        ),
        (
            "a segment without FinalBlockId",
            outer("/node/a/group/%01/v=0/seg=0", content=inner("/chat/hello/v=0/seg=0")),
            R.INVALID_FIELD,
        ),
        (
            "a segment around an unsegmented one",
            outer("/node/a/group/%01/v=0/seg=0", final="/seg=0", content=inner(final="/seg=0")),
            R.INVALID_FIELD,
        ),
        (
            "another segment inside",
            outer("/node/a/group/%01/v=0/seg=0", content=inner("/chat/hello/v=0/seg=1", "/seg=1"), final="/seg=1"),
            R.INVALID_FIELD,
        ),
        (
            "a segment behind the last",
            outer("/node/a/group/%01/v=0/seg=2", content=inner("/chat/hello/v=0/seg=2", "/seg=1"), final="/seg=1"),
            R.INVALID_FIELD,
        ),
        (
            "a FinalBlockId that is no segment",
            outer("/node/a/group/%01/v=0/seg=0", content=inner("/chat/hello/v=0/seg=0", "/x"), final="/x"),
            R.INVALID_FIELD,
        ),
        (
            "too many segments",
            outer(
                "/node/a/group/%01/v=0/seg=0",
                content=inner("/chat/hello/v=0/seg=0", f"/seg={limits.SVS_SEGMENTS}"),
                final=f"/seg={limits.SVS_SEGMENTS}",
            ),
            R.TOO_COMPLEX,
        ),
    )
    for name, raw, reason in cases:
        yield _bad(f"outer: {name}", raw, reason)


def mapping(content: bytes, low: int = 1, high: int = 3, signer: Hmac = MAPPING) -> bytes:
    return encode_data(mapping_name(NODE, GROUP, low, high), content, signer, freshness=1_000)


def _mappings() -> Iterator[Bad]:
    entry = MappingEntry(2, CHAT, b"")
    good = encode_mapping(NODE, [entry])
    assert arrival(mapping(good)).accepted
    many = [MappingEntry(1, CHAT, b"")] * (limits.SVS_MAPPING_ENTRIES + 1)
    huge = encode_mapping(NODE, many)
    cases: tuple[tuple[str, bytes, Reason], ...] = (
        ("signed with another key", mapping(good, signer=WRONG), R.INVALID_SIGNATURE),
        ("signed with the outer key", mapping(good, signer=OUTER), R.INVALID_SIGNATURE),
        ("of another node", mapping(encode_mapping(names.parse("/node/b"), [entry])), R.INVALID_FIELD),
        ("an entry below the range", mapping(good, 3, 4), R.INVALID_FIELD),
        ("an entry above the range", mapping(good, 1, 1), R.INVALID_FIELD),
        ("a range that starts at 0", mapping(good, 0, 3), R.INVALID_FIELD),
        ("empty", mapping(b""), R.MALFORMED),
        ("not a mapping", mapping(b"hello"), R.MALFORMED),
        ("without the node", mapping(tlv.encode(205, b"")), R.MALFORMED),
        ("cut short", mapping(good[:-2]), R.MALFORMED),
    )
    for name, raw, reason in cases:
        yield _bad(f"mapping: {name}", raw, reason)
    if len(huge) < limits.NDN_PACKET_BYTES:
        yield _bad("mapping: too many entries", mapping(huge, 1, 1), R.TOO_COMPLEX)
    backwards = names.parse("/node/a/group/MAPPING/%03/%01")
    yield _bad("mapping: a range that runs backwards", encode_data(backwards, good, MAPPING), R.INVALID_FIELD)


def interest(parameters: bytes | None = None, *, signer: Hmac | None = SYNC, name: bytes | None = None) -> bytes:
    vector = encode_vector({NODE: 3}) if parameters is None else parameters
    return encode_interest(sync_name(GROUP) if name is None else name, nonce=b"abcd", parameters=vector, signer=signer)


def sync_arrival(raw: bytes) -> Arrival:
    """Sync Interests are judged, but no records: the verdict on a made-up one."""
    made = Arrival(
        protocol="svs", topic="/group", kind="sync", id=hashlib.sha256(raw).digest(), received_at=NOW,
        verdict=Outcome.ACCEPT, peer="peer-svs", raw=raw[:1_000],
    )  # fmt: skip
    return made.judged(judge_sync(raw, GROUP, TRUST).verdict)


def _sync() -> Iterator[Bad]:
    good = interest()
    entry = tlv.encode(t.NAME, NODE)
    many = encode_vector({names.parse(f"/n/{number}"): 1 for number in range(limits.SVS_VECTOR_ENTRIES + 1)})
    cases: tuple[tuple[str, bytes, Reason], ...] = (
        ("nothing", b"", R.MALFORMED),
        ("a Data", outer(), R.MALFORMED),
        ("cut short", good[:-1], R.MALFORMED),
        ("without parameters", encode_interest(sync_name(GROUP), nonce=b"abcd"), R.INVALID_TOPIC),
        ("of another group", interest(name=sync_name(names.parse("/other"))), R.INVALID_TOPIC),
        ("of another version", interest(name=GROUP + names.parse("/v=3")), R.INVALID_TOPIC),
        ("unsigned", interest(signer=None), R.INVALID_SIGNATURE),
        ("signed with another key", interest(signer=WRONG), R.INVALID_SIGNATURE),
        ("signed with the outer key", interest(signer=OUTER), R.INVALID_SIGNATURE),
        (
            "parameters changed on the way",
            good.replace(encode_vector({NODE: 3}), encode_vector({NODE: 4})),
            R.WRONG_HASH,
        ),
        ("an empty vector of parameters", interest(b""), R.MALFORMED),
        ("no vector", interest(b"hello"), R.MALFORMED),
        ("an entry without a name", interest(tlv.encode(201, tlv.encode(202, b""))), R.MALFORMED),
        ("an entry without a number", interest(tlv.encode(201, tlv.encode(202, entry))), R.MALFORMED),
        (
            "a node without a name",
            interest(tlv.encode(201, tlv.encode(202, tlv.encode(t.NAME, b"") + tlv.encode(204, b"\1")))),
            R.MALFORMED,
        ),
        (
            "a number of three octets",
            interest(tlv.encode(201, tlv.encode(202, entry + tlv.encode(204, b"\1\1\1")))),
            R.MALFORMED,
        ),
        ("an unknown critical element", interest(tlv.encode(201, tlv.encode(255, b""))), R.MALFORMED),
        ("a vector of too many nodes", interest(many), R.TOO_COMPLEX),
        ("garbage behind the vector", interest(encode_vector({NODE: 3}) + b"\x01"), R.MALFORMED),
    )
    for name, raw, reason in cases:
        yield Bad(protocol="svs", name=f"sync: {name}", reason=reason, raw=raw, judged=partial(sync_arrival, raw))
