"""Notifications and headers, against the vectors and against other implementations."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason
from syncline.protocols.shrex.rules.notifications import EMPTY_ROOT, judge_message, judge_payload
from syncline.protocols.shrex.wire import header as headers
from syncline.protocols.shrex.wire.header import Header, merkle_root
from syncline.protocols.shrex.wire.notification import Notification, decode, encode, topic_of
from syncline.protocols.shrex.wire.result import Outcome, PeerResult
from syncline.protocols.shrex.wire.result import decode as decode_result
from syncline.protocols.shrex.wire.result import encode as encode_result
from syncline.testing.headers import chain, demo_headers

Vectors = Callable[[str], list[dict[str, Any]]]


def sha(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


# notifications


def test_every_vector_reads_as_it_means_and_is_sane_or_not(vectors: Vectors) -> None:
    heights = []
    for vector in vectors("shrex"):
        meaning = vector["meaning"]
        if "publish" in meaning:
            continue
        raw = bytes.fromhex(vector["hex"])
        notification, verdict = judge_payload(raw)
        assert verdict.accepted == (meaning["sanity"] == "sane"), vector["name"]
        if meaning.get("decode_error"):
            assert (notification, verdict.reason) == (None, Reason.MALFORMED)
            continue
        assert notification == Notification(int(meaning["height_text"]), bytes.fromhex(meaning["data_hash_hex"]))
        if meaning["sanity"] == "reject":
            assert verdict.reason is Reason.INVALID_FIELD
        if vector["produced_by"].startswith("google protobuf 6") and verdict.accepted:
            assert encode(notification) == raw
            heights.append(notification.height)
    assert min(heights) == 1
    assert max(heights) == 2**64 - 1


def test_signed_notifications_of_js_are_read_whole(vectors: Vectors) -> None:
    seen = 0
    for vector in vectors("shrex"):
        for meaning in vector["meaning"].get("publish", ()):
            from syncline.formats.pubsub import decode_rpc

            [raw] = decode_rpc(bytes.fromhex(vector["hex"])).messages
            signed, notification, verdict = judge_message(raw, meaning["topic"])
            assert verdict.accepted == meaning["signature_valid"]
            assert notification == decode(bytes.fromhex(meaning["data_hex"]))
            assert signed is not None
            assert judge_message(raw, "/another")[2].reason is Reason.INVALID_TOPIC
            seen += 1
    assert seen == 3


@given(st.integers(1, 2**64 - 1), st.binary(min_size=32, max_size=32))
def test_a_notification_reads_back_in_36_to_45_bytes(height: int, data_hash: bytes) -> None:
    raw = encode(Notification(height, data_hash))
    assert 36 <= len(raw) <= 45
    assert decode(raw) == Notification(height, data_hash)


@pytest.mark.parametrize(
    ("notification", "reason"),
    [
        (Notification(0, sha("x")), Reason.INVALID_FIELD),
        (Notification(5, sha("x")[:31]), Reason.INVALID_FIELD),
        (Notification(5, sha("x") + b"x"), Reason.INVALID_FIELD),
        (Notification(5, bytes(32)), Reason.INVALID_FIELD),
        (Notification(5, b""), Reason.INVALID_FIELD),
        (Notification(5, EMPTY_ROOT), Reason.INVALID_FIELD),
        (Notification(5, sha("x")), None),
        (Notification(2**64 - 1, sha("x")), None),
    ],
)
def test_each_sanity_check_refuses_what_it_must(notification: Notification, reason: Reason | None) -> None:
    assert judge_payload(encode(notification))[1].reason is reason


def test_a_notification_larger_than_the_protocol_allows_is_refused() -> None:
    good = encode(Notification(5, sha("x")))
    padding = 1_024 - len(good) - 3
    assert judge_payload(good + b"\x1a" + bytes((padding & 0x7F | 0x80, padding >> 7)) + bytes(padding))[1].accepted
    padding += 1
    larger = good + b"\x1a" + bytes((padding & 0x7F | 0x80, padding >> 7)) + bytes(padding)
    assert judge_payload(larger)[1].reason is Reason.OVERSIZE
    assert judge_message(bytes(4_097), "/t")[2].reason is Reason.OVERSIZE


@given(st.binary(max_size=60))
def test_any_bytes_are_a_notification_or_refused(data: bytes) -> None:
    notification, verdict = judge_payload(data)
    assert verdict.accepted == (notification is not None and verdict.reason is None)


def test_the_topic_is_that_of_the_text_or_of_the_real_network() -> None:
    assert topic_of("spec", "mocha") == "/eds-sub/0.0.1"
    assert topic_of("celestia", "mocha") == "mocha/eds-sub/v0.2.0"


# headers


def golden() -> Header:
    """The header of CometBFT's own hash test."""
    return Header(
        block_version=1,
        app_version=2,
        chain_id="chainId",
        height=3,
        time="2019-10-13T16:14:44Z",
        last_block_hash=bytes(32),
        last_parts_total=6,
        last_parts_hash=bytes(32),
        last_commit_hash=sha("last_commit_hash"),
        data_hash=sha("data_hash"),
        validators_hash=sha("validators_hash"),
        next_validators_hash=sha("next_validators_hash"),
        consensus_hash=sha("consensus_hash"),
        app_hash=sha("app_hash"),
        last_results_hash=sha("last_results_hash"),
        evidence_hash=sha("evidence_hash"),
        proposer_address=sha("proposer_address")[:20],
    )


def test_the_hash_is_the_one_that_cometbft_computes() -> None:
    assert golden().hash.hex() == "f740121f553b5418c3efbd343c2dbfe9e007bb67b0d020a0741374bab65242a4"


NOTHING = hashlib.sha256().hexdigest()  # what CometBFT writes where there is nothing
FIRST = {
    "version": {"block": "11", "app": "1"},
    "chain_id": "dockerchain",
    "height": "1",
    "time": "2022-07-21T22:06:01.373424724Z",
    "last_block_id": {"hash": "", "parts": {"total": 0, "hash": ""}},
    "last_commit_hash": NOTHING,
    "data_hash": NOTHING,
    "validators_hash": "9D1A9A1EC41D301004C5766EF94FD941B5ADBE90205C1586DFEA76BC9DF4FE77",
    "next_validators_hash": "9D1A9A1EC41D301004C5766EF94FD941B5ADBE90205C1586DFEA76BC9DF4FE77",
    "consensus_hash": "048091BC7DDC283F77BFBF91D73C44DA58C3DF8A9CBC867405D8B7F3DAADA22F",
    "app_hash": "",
    "last_results_hash": NOTHING,
    "evidence_hash": NOTHING,
    "proposer_address": "CCD08E1A253A3A53929EA9FB71C3C9018E9D2678",
}
"""The first block of a development chain, as a CometBFT node answered it."""
FIRST_HASH = "f4fa302b25af6113b997eb3870189a29177a593184f0ae0ac08db4d1be1be568"


def test_the_first_block_of_a_chain_has_the_hash_its_node_gave_it_whichever_way_nothing_is_written() -> None:
    assert headers.from_document(FIRST).hash.hex() == FIRST_HASH
    for missing in ("last_block_id", "app_hash"):
        absent = {name: value for name, value in FIRST.items() if name != missing}
        assert headers.from_document(absent).hash.hex() == FIRST_HASH
        assert headers.from_document({**FIRST, missing: None}).hash.hex() == FIRST_HASH
    again = headers.decode(headers.encode(headers.from_document(FIRST)))
    assert (again.hash.hex(), again.last_block_hash, again.app_hash) == (FIRST_HASH, b"", b"")


def test_a_block_of_an_app_of_version_0_has_the_hash_the_network_agreed_on() -> None:
    """Block 5,901,208 of the Cosmos Hub, whose nodes leave a version of 0 out."""
    block = {
        "version": {"block": "11"},
        "chain_id": "cosmoshub-4",
        "height": "5901208",
        "time": "2021-04-18T01:22:14.006419503Z",
        "last_block_id": {
            "hash": "008884190C21C603E758FD8271946C3DD5E8A2A9F74F20ED00F4FA2376425C37",
            "parts": {"total": 1, "hash": "7B3DAFB0A30F043CCF9D4D74A6EEDAAB5CC52A2E7E4BF8113E8EA2A1FED59F68"},
        },
        "last_commit_hash": "BCFF383EC45F0454A17B2A4F08DF71C8A630A567B9C69170E647E53E3E8E4957",
        "data_hash": NOTHING,
        "validators_hash": "B2BFC39012E931F7980FBCDFE52D4461EA2D6387180F44120B0B0D129919F5C8",
        "next_validators_hash": "B2BFC39012E931F7980FBCDFE52D4461EA2D6387180F44120B0B0D129919F5C8",
        "consensus_hash": "0F2908883A105C793B74495EB7D6DF2EEA479ED7FC9349206A65CB0F9987A0B8",
        "app_hash": "44CCA5932610E4790081F4C39AFD72999ED5BBFBE5E24AA9D35422F369A85C7F",
        "last_results_hash": "3F51C34758AEB30A69294CD60758BB6F93FB5663DEA74B3A4B0D484184234941",
        "evidence_hash": NOTHING,
        "proposer_address": "A6935D877B9776C45B96EEAE526959A3B9A5AB1A",
    }
    found = "2c419625e506d928d55d1818fc8f16ccaebd87f5ea66d40f511ef5e70beb6471"
    for version in (
        {"block": "11"},
        {"block": 11, "app": "0"},
        {"block": "11", "app": ""},
        {"block": "11", "app": None},
    ):
        assert headers.from_document({**block, "version": version}).hash.hex() == found


def test_the_beginning_of_1970_is_an_empty_field_and_other_spellings_of_a_time_are_one_header() -> None:
    header = msgspec.structs.replace(golden(), time="1970-01-01T00:00:00Z", app_version=0, chain_id="", app_hash=b"")
    hashes = [getattr(header, name) for name in headers.HASHES]
    leaves = [b"\x08\x01", b"", b"\x08\x03", b"", b"\x0a\x20" + bytes(32) + b"\x12\x24\x08\x06\x12\x20" + bytes(32)]
    leaves += [b"\x0a" + bytes((len(each),)) + each if each else b"" for each in hashes]
    assert (header.hash, header.microseconds) == (merkle_root(leaves), 0)
    document = msgspec.json.decode(headers.encode(golden()))
    for written in ("2019-10-13T16:14:44Z", "2019-10-13T16:14:44.0Z", "2019-10-13T16:14:44.000000000Z"):
        assert headers.encode(headers.from_document({**document, "time": written})) == headers.encode(golden())
    tenth = headers.from_document({**document, "time": "2019-10-13T16:14:10.500Z"})
    assert (tenth.time, tenth.microseconds % 1_000_000) == ("2019-10-13T16:14:10.5Z", 500_000)
    minute = headers.from_document({**document, "time": "2019-10-13T16:14:00.0Z"})
    assert minute.time == "2019-10-13T16:14:00Z"


def test_every_one_of_the_fourteen_fields_is_part_of_the_hash() -> None:
    header = golden()
    hashes = {header.hash}
    for name in header.__struct_fields__:
        value = getattr(header, name)
        changed: Any = (
            value + 1 if isinstance(value, int) else "2019-10-13T16:14:45Z" if name == "time" else value + value[:1]
        )
        hashes.add(msgspec.structs.replace(header, **{name: changed}).hash)
    assert len(hashes) == 1 + len(header.__struct_fields__)
    assert msgspec.structs.replace(header, time="2019-10-13T16:14:44.000000001Z").hash != header.hash
    assert msgspec.structs.replace(header, time="2019-10-13T16:14:44.000Z").hash == header.hash


def test_merkle_roots_follow_rfc_6962() -> None:
    leaf = [hashlib.sha256(b"\x00" + bytes((n,))).digest() for n in range(3)]
    pair = hashlib.sha256(b"\x01" + leaf[0] + leaf[1]).digest()
    assert merkle_root([]) == hashlib.sha256(b"").digest()
    assert merkle_root([b"\x00"]) == leaf[0]
    assert merkle_root([b"\x00", b"\x01"]) == pair
    assert merkle_root([b"\x00", b"\x01", b"\x02"]) == hashlib.sha256(b"\x01" + pair + leaf[2]).digest()


def test_a_header_reads_back_bare_and_as_a_node_answers_it() -> None:
    header = golden()
    document = msgspec.json.decode(headers.encode(header))
    assert headers.decode(headers.encode(header)) == header
    answer = {"header": document, "commit": {"block_id": {"hash": header.hash.hex().upper()}}, "dah": {}}
    assert headers.from_document(answer) == header
    other = document["last_block_id"].pop("parts")
    document["last_block_id"]["part_set_header"] = other
    assert headers.from_document(document) == header


@pytest.mark.parametrize(
    ("change", "about"),
    [
        ({"height": "0"}, ""),
        ({"height": -1}, "height"),
        ({"height": True}, "height"),
        ({"height": "1" * 21}, "height"),
        ({"height": str(2**63)}, "height"),
        ({"data_hash": "zz"}, "data_hash"),
        ({"data_hash": "00"}, ""),
        ({"validators_hash": ""}, ""),
        ({"app_hash": "0" * 130}, "app_hash"),
        ({"time": "yesterday"}, "time"),
        ({"time": "2019-02-30T00:00:00Z"}, "time"),
        ({"time": "1969-12-31T23:59:59Z"}, "time"),
        ({"chain_id": 7}, "chain_id"),
        ({"version": []}, "version"),
        ({"time": "2019-10-13T16:14:4\u0664Z"}, "time"),
        ({"height": "\u0663"}, "height"),
        ({"last_block_id": []}, "last_block_id"),
        ({"last_block_id": {"hash": "", "parts": 7}}, "last_block_id.parts"),
    ],
)
def test_a_header_with_a_bad_field_is_refused_by_its_name(change: dict[str, Any], about: str) -> None:
    document = {**msgspec.json.decode(headers.encode(golden())), **change}
    with pytest.raises(DecodeError) as refused:
        headers.from_document(document)
    assert refused.value.about == about


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"7", b'{"header": {}}', b"\xff", b"[" * 100_000])
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        headers.decode(data)


def test_a_commit_for_another_header_is_refused() -> None:
    document = msgspec.json.decode(headers.encode(golden()))
    with pytest.raises(DecodeError) as refused:
        headers.from_document({"header": document, "commit": {"block_id": {"hash": "00" * 32}}})
    assert refused.value.reason is Reason.WRONG_HASH


def test_invented_chains_link_and_the_demo_has_sixty_headers() -> None:
    made = chain(5)
    assert [each.height for each in made] == [1, 2, 3, 4, 5]
    assert all(later.last_block_hash == earlier.hash for earlier, later in pairwise(made))
    more = chain(2, after=made[-1])
    assert more[0].last_block_hash == made[-1].hash
    demo = demo_headers()
    assert (len(demo), demo[0].height, demo[-1].height) == (60, 7_000_000, 7_000_059)


def test_a_result_reads_back_and_nonsense_does_not() -> None:
    result = PeerResult(peer="p", height=5, data_hash="00", result=Outcome.COOLDOWN, source="pool")
    assert decode_result(encode_result(result)) == result
    for data in (b"{}", b"", b"\xff", encode_result(result).replace(b"cooldown", b"unknown")):
        with pytest.raises(DecodeError):
            decode_result(data)
