"""The verdict on every kind of packet: one test for each way it can be wrong, and what record it makes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from syncline.core.errors import SettingsError
from syncline.core.keys import NodeKey
from syncline.core.limits import SVS_SEGMENTS, SVS_SEQ_MAX, TEXT_MAX
from syncline.core.record import Incoming
from syncline.core.verdict import ACCEPT, Outcome, Reason
from syncline.formats import tlv
from syncline.formats.ndn import names
from syncline.formats.ndn import types as t
from syncline.formats.ndn.packets import decode_data, encode_data, encode_interest
from syncline.formats.ndn.signing import Ed25519Signer, Ed25519Verifier, Hmac
from syncline.protocols.svs import wire
from syncline.protocols.svs.rules import ANYTHING, Judged, Keys, Trust, TrustedKey, examine, judge_arrival, judge_sync
from syncline.protocols.svs.rules.trust import read_line, signers_of, trust_of
from syncline.protocols.svs.wire.mapping import MappingEntry, timestamp_block

NODE, GROUP, CHAT = names.parse("/node/a"), names.parse("/group"), names.parse("/chat/hello")
SYNC, OUTER, INNER, MAPPING = (Hmac(name.encode()) for name in ("sync", "outer", "inner", "mapping"))
TRUST = Trust(sync=Keys([SYNC]), outer=Keys([OUTER]), inner=Keys([INNER]), mapping=Keys([MAPPING]))


def packets(payload: bytes = b"hi", seq: int = 1, **changes: Any) -> list[bytes]:
    options: dict[str, Any] = {"inner": INNER, "outer": OUTER, **changes}
    return wire.encapsulate(NODE, GROUP, seq, CHAT, payload, **options)


def outer(
    name: str = "/node/a/group/%01",
    *,
    content: bytes | None = None,
    content_type: int | None = 6,
    freshness: int | None = 1_000,
    final: str | None = None,
    signer: Hmac = OUTER,
) -> bytes:
    inside = encode_data(CHAT, b"hi", INNER) if content is None else content
    block = None if final is None else names.parse(final)
    return encode_data(
        names.parse(name), inside, signer, content_type=content_type, freshness=freshness, final_block=block
    )


def inner(name: str = "/chat/hello", final: str | None = None, signer: Hmac = INNER) -> bytes:
    block = None if final is None else names.parse(final)
    return encode_data(names.parse(name), b"hi", signer, final_block=block)


def reason(raw: bytes, trust: Trust = TRUST) -> tuple[Reason | None, str]:
    verdict = examine(raw, GROUP, trust).verdict
    about = verdict.detail.rpartition("[")[2].rstrip("]") if "[" in verdict.detail else ""
    assert (verdict.outcome is Outcome.REJECT) == (verdict.reason is not None)
    return verdict.reason, about


def test_good_packets_are_accepted() -> None:
    assert reason(outer()) == (None, "")
    assert [reason(packet)[0] for packet in packets(bytes(20_000))] == [None, None, None]
    segment = inner("/chat/hello/v=0/seg=0", "/seg=0")
    assert reason(outer("/node/a/group/%01/v=0/seg=0", content=segment, final="/seg=0")) == (None, "")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", Reason.MALFORMED),
        (b"\x05\x00", Reason.MALFORMED),
        (outer(content=bytes(9_000)), Reason.OVERSIZE),
        (outer("/node/a/other/%01"), Reason.INVALID_TOPIC),
        (outer("/node/a/group/x1x"), Reason.INVALID_FIELD),
        (outer("/node/a/group/%00"), Reason.INVALID_FIELD),
        (outer(content_type=None), Reason.INVALID_FIELD),
        (outer(content_type=0), Reason.INVALID_FIELD),
        (outer(freshness=None), Reason.INVALID_FIELD),
        (outer(freshness=0), Reason.INVALID_FIELD),
        (outer(content=b"no data"), Reason.MALFORMED),
        (outer(final="/seg=0"), Reason.INVALID_FIELD),
        (outer(content=inner(final="/seg=0")), Reason.INVALID_FIELD),
        (outer("/node/a/group/%01/v=0/seg=0", content=inner("/chat/hello/v=0/seg=0", "/seg=0")), Reason.INVALID_FIELD),
        (outer("/node/a/group/%01/v=0/seg=0", content=inner("/chat/hello/v=0/seg=0"), final="/seg=0"),
         Reason.INVALID_FIELD),
        (outer("/node/a/group/%01/v=0/seg=0", content=inner("/chat/hello/v=0/seg=0", "/seg=1"), final="/seg=2"),
         Reason.INVALID_FIELD),
        (outer("/node/a/group/%01/v=0/seg=0", content=inner("/chat/hello/v=0/seg=1", "/seg=1"), final="/seg=1"),
         Reason.INVALID_FIELD),
        (outer("/node/a/group/%01/v=0/seg=0", content=inner("/chat/hello/v=1/seg=0", "/seg=1"), final="/seg=1"),
         Reason.INVALID_FIELD),
        (outer("/node/a/group/%01/v=0/seg=0", content=inner("/chat/hello", "/seg=1"), final="/seg=1"),
         Reason.INVALID_FIELD),
        (outer("/node/a/group/%01/v=0/seg=3", content=inner("/chat/hello/v=0/seg=3", "/seg=2"), final="/seg=2"),
         Reason.INVALID_FIELD),
        (outer("/node/a/group/%01/v=0/seg=0", content=inner(final="/off=1"), final="/off=1"), Reason.INVALID_FIELD),
        (outer("/node/a/group/%01/v=0/seg=0", content=inner(final=f"/seg={SVS_SEGMENTS}"),
               final=f"/seg={SVS_SEGMENTS}"), Reason.TOO_COMPLEX),
        (outer(content=encode_data(names.generic(bytes(TEXT_MAX)), b"", INNER)), Reason.OVERSIZE),
    ],
)  # fmt: skip
def test_a_bad_outer_packet_is_rejected_with_its_reason(raw: bytes, expected: Reason) -> None:
    assert reason(raw)[0] is expected


def test_a_number_beyond_what_is_believed_is_rejected() -> None:
    assert reason(packets(seq=SVS_SEQ_MAX)[0])[0] is None
    assert reason(packets(seq=SVS_SEQ_MAX + 1)[0])[0] is Reason.INVALID_FIELD
    assert reason(packets(seq=2**63)[0])[0] is Reason.INVALID_FIELD


def mapping(*entries: MappingEntry, node: bytes = NODE, low: int = 1, high: int = 9, signer: Hmac = MAPPING) -> bytes:
    return encode_data(
        wire.mapping_name(NODE, GROUP, low, high), wire.encode_mapping(node, entries), signer, freshness=1_000
    )


def test_good_mappings_are_accepted() -> None:
    assert reason(mapping()) == (None, "")
    assert reason(mapping(MappingEntry(1, CHAT), MappingEntry(9, CHAT))) == (None, "")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (mapping(MappingEntry(10, CHAT)), Reason.INVALID_FIELD),
        (mapping(MappingEntry(0, CHAT)), Reason.INVALID_FIELD),
        (mapping(low=0), Reason.INVALID_FIELD),
        (mapping(high=2**63), Reason.INVALID_FIELD),
        (mapping(node=names.parse("/node/b")), Reason.INVALID_FIELD),
        (encode_data(wire.mapping_name(NODE, GROUP, 1, 1), b"x", MAPPING), Reason.MALFORMED),
    ],
)
def test_a_bad_mapping_is_rejected_with_its_reason(raw: bytes, expected: Reason) -> None:
    assert reason(raw)[0] is expected


def sync(signer: Hmac | None = SYNC, parameters: bytes | None = None, name: bytes | None = None) -> bytes:
    return encode_interest(
        wire.sync_name(GROUP) if name is None else name,
        nonce=b"0001",
        parameters=wire.encode_vector({NODE: 3}) if parameters is None else parameters,
        signer=signer,
    )


def test_a_sync_interest_gives_its_vector_and_its_mapping() -> None:
    judged = judge_sync(sync(), GROUP, TRUST)
    assert (judged.verdict, judged.vector, judged.mapping) == (ACCEPT, {NODE: 3}, None)
    told = wire.encode_mapping(NODE, [MappingEntry(3, CHAT)])
    judged = judge_sync(sync(parameters=wire.encode_vector({NODE: 3}) + told), GROUP, TRUST)
    assert judged.mapping == wire.MappingData(NODE, (MappingEntry(3, CHAT),))
    judged = judge_sync(sync(parameters=wire.encode_vector({NODE: 3}) + b"\xf0\x01x" + told), GROUP, TRUST)
    assert judged.mapping == wire.MappingData(NODE, (MappingEntry(3, CHAT),))  # what is not critical is passed over


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\x06\x00", Reason.MALFORMED),
        (sync(name=names.parse("/other/v=2")), Reason.INVALID_TOPIC),
        (sync(name=names.parse("/group/v=3")), Reason.INVALID_TOPIC),
        (encode_interest(wire.sync_name(GROUP), nonce=b"0001"), Reason.INVALID_TOPIC),
        (sync(signer=None), Reason.INVALID_SIGNATURE),
        (sync(signer=OUTER), Reason.INVALID_SIGNATURE),
        (sync(parameters=b"x"), Reason.MALFORMED),
        (sync(parameters=wire.encode_vector({NODE: 3}) + b"\x01\x00"), Reason.MALFORMED),
        (sync(parameters=wire.encode_vector({NODE: 3}) + 2 * wire.encode_mapping(NODE, [])), Reason.MALFORMED),
        (sync().replace(b"0001", b"0002")[:-1] + b"\0", Reason.WRONG_HASH),
    ],
)
def test_a_bad_sync_interest_is_rejected_and_tells_nothing(raw: bytes, expected: Reason) -> None:
    judged = judge_sync(raw, GROUP, TRUST)
    assert (judged.verdict.reason, judged.vector, judged.mapping) == (expected, {}, None)


def test_each_of_the_four_keys_wrong_in_turn_is_refused_at_its_own_step() -> None:
    wrong = Hmac(b"wrong")
    assert [reason(packets()[0]), reason(mapping())] == [(None, ""), (None, "")]
    assert reason(packets(outer=INNER)[0]) == (Reason.INVALID_SIGNATURE, "outer")  # not even a key of another kind
    assert reason(packets(inner=OUTER)[0]) == (Reason.INVALID_SIGNATURE, "inner")
    assert reason(mapping(signer=OUTER)) == (Reason.INVALID_SIGNATURE, "mapping")
    assert reason(packets(outer=wrong)[0]) == (Reason.INVALID_SIGNATURE, "outer")
    assert reason(packets(inner=wrong)[0]) == (Reason.INVALID_SIGNATURE, "inner")
    assert reason(mapping(signer=wrong)) == (Reason.INVALID_SIGNATURE, "mapping")
    assert judge_sync(sync(signer=wrong), GROUP, TRUST).verdict.reason is Reason.INVALID_SIGNATURE


def test_the_outer_packet_is_validated_before_it_is_opened() -> None:
    looked: list[str] = []

    def note(name: str, answer: bool) -> Any:
        def validate(packet: Any, node: bytes) -> bool:
            looked.append(name)
            return answer

        return validate

    refusing = Trust(outer=note("outer", False), inner=note("inner", True))
    assert reason(outer(content=b"not even a Data"), refusing) == (Reason.INVALID_SIGNATURE, "outer")
    assert looked == ["outer"]
    looked.clear()
    accepting = Trust(outer=note("outer", True), inner=note("inner", True))
    assert reason(outer(), accepting) == (None, "")
    assert looked == ["outer", "inner"]


def test_a_key_may_be_bound_to_a_nodes_prefix() -> None:
    key = NodeKey(bytes(range(32)))
    signer = Ed25519Signer(key)
    [packet] = wire.encapsulate(NODE, GROUP, 1, CHAT, b"", inner=signer, outer=signer)
    verifier = Ed25519Verifier(key.public)

    def trust(scope: str) -> Trust:
        keys = Keys([TrustedKey(verifier, names.parse(scope))])
        return Trust(outer=keys, inner=keys)

    assert reason(packet, trust("/node/a")) == (None, "")
    assert reason(packet, trust("/node")) == (None, "")
    assert reason(packet, trust("/node/b")) == (Reason.INVALID_SIGNATURE, "outer")


def test_unsigned_packets_pass_only_where_anything_does() -> None:
    raw = sync(signer=None)
    assert judge_sync(raw, GROUP, Trust(sync=ANYTHING)).verdict == ACCEPT
    assert judge_sync(raw, GROUP, Trust()).verdict.reason is Reason.INVALID_SIGNATURE


def test_keys_are_read_from_settings() -> None:
    key = NodeKey(bytes(range(32)))
    lines = [
        "/group sync hmac:c3luYw==",
        f"/group outer+inner ed25519:{key.public.hex()}@/node/a",
        "/other all hmac:b3RoZXI=",
    ]
    trust = trust_of(GROUP, lines)
    signers = signers_of(GROUP, ["/group outer+inner node", "/group sync hmac:c3luYw=="], key)
    [packet] = wire.encapsulate(NODE, GROUP, 1, CHAT, b"", inner=signers.inner, outer=signers.outer)
    assert reason(packet, trust) == (None, "")
    assert judge_sync(sync(signer=Hmac(b"sync")), GROUP, trust).verdict == ACCEPT
    assert (
        reason(
            encode_data(wire.mapping_name(NODE, GROUP, 1, 1), wire.encode_mapping(NODE, []), signers.mapping), trust
        )[0]
        is None
    )
    assert judge_sync(sync(signer=Hmac(b"other")), GROUP, trust).verdict.reason is Reason.INVALID_SIGNATURE


@pytest.mark.parametrize(
    "line",
    ["", "/group sync", "/group fly digest", "/group all rsa:xx", "/group all hmac:%%", "/group all ed25519:00",
     "/group all ecdsa:AAAA", "/group all hmac:"],
)  # fmt: skip
def test_a_line_that_is_no_key_is_refused_without_showing_it(line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        trust_of(GROUP, [line])
    secret = line.partition(":")[2]
    assert not secret or secret not in f"{caught.value}{caught.value.hint}{caught.value.about}"


def test_only_keys_that_can_sign_are_signers() -> None:
    key = NodeKey(bytes(range(32)))
    for line in (f"/group all ed25519:{key.public.hex()}", "/group all hmac:%%"):
        with pytest.raises(SettingsError, match="not a key to sign with"):
            signers_of(GROUP, [line], key)
    assert read_line("/group all node").roles == ("sync", "outer", "inner", "mapping")


def arrival(raw: bytes, trust: Trust = TRUST) -> Any:
    judged: Judged = examine(raw, GROUP, trust)
    incoming = Incoming(protocol="svs", topic="/group", raw=raw, peer="tcp://x", received_at=5)
    return judge_arrival(incoming, GROUP, judged)


def test_an_outer_packet_makes_a_record_named_by_node_number_kind_and_segment() -> None:
    name = tlv.encode(t.NAME, NODE + GROUP)
    [single] = packets(seq=300)
    record = arrival(single)
    assert (record.kind, record.key, record.publisher, record.seq) == ("outer", "/chat/hello", "/node/a", 300)
    assert record.id == name + b"\x00" + (300).to_bytes(8, "big")
    assert (record.verdict, record.raw, record.peer) == (Outcome.ACCEPT, single, "tcp://x")
    second = arrival(packets(bytes(9_000), seq=300)[1])
    assert second.id == name + b"\x01" + (300).to_bytes(8, "big") + (1).to_bytes(8, "big")


def test_a_mapping_makes_a_record_that_a_fuller_answer_does_not_repeat() -> None:
    less, more = mapping(MappingEntry(1, CHAT)), mapping(MappingEntry(1, CHAT), MappingEntry(2, CHAT))
    one, two = arrival(less), arrival(more)
    assert (one.kind, one.seq, one.publisher, one.published_at) == ("mapping", 1, "/node/a", None)
    assert one.id[:-8] == two.id[:-8]
    assert one.id != two.id
    again = arrival(mapping(MappingEntry(1, CHAT), signer=Hmac(b"mapping", names.parse("/key"))))
    assert again.id == one.id  # another signature of the same answer


def test_the_mapping_of_one_publication_says_when_it_was_published() -> None:
    assert arrival(mapping(MappingEntry(1, CHAT, timestamp_block(77)))).published_at == 77
    assert arrival(mapping(MappingEntry(1, CHAT, timestamp_block(2**63)))).published_at is None


def test_a_rejected_packet_keeps_its_bytes_and_cannot_take_the_place_of_the_honest_one() -> None:
    forged = packets(outer=Hmac(b"wrong"))[0]
    record = arrival(forged)
    assert (record.verdict, record.reason, record.raw) == (Outcome.REJECT, Reason.INVALID_SIGNATURE, forged)
    assert (record.publisher, record.seq, record.key) == ("/node/a", 1, "")
    nonsense = arrival(b"nonsense")
    assert (nonsense.kind, nonsense.publisher, nonsense.seq, len(nonsense.id)) == ("outer", "", None, 32)


def test_a_name_too_long_for_a_record_is_left_out_of_it() -> None:
    node = names.generic(bytes(TEXT_MAX))
    [packet] = wire.encapsulate(node, GROUP, 1, CHAT, b"", inner=INNER, outer=OUTER)
    record = arrival(packet)
    assert (record.reason, record.publisher) == (Reason.OVERSIZE, "")
    assert msgspec.structs.asdict(record)["raw"] == packet
    assert decode_data(packet).name.startswith(node)


def test_a_packet_with_a_very_long_name_makes_a_record_that_the_journal_can_hold() -> None:
    for node, accepted in (("/" + "n" * 1_000, True), ("/" + "n" * 2_000, False)):
        name = names.parse(node + "/group/%01")
        raw = encode_data(name, inner(), OUTER, content_type=6, freshness=1_000)
        judged = examine(raw, GROUP, TRUST)
        incoming = Incoming(protocol="svs", topic="/group", raw=raw, peer="p", received_at=0)
        arrival = judge_arrival(incoming, GROUP, judged)
        assert arrival.accepted is accepted
        assert 32 < len(arrival.id) <= TEXT_MAX
