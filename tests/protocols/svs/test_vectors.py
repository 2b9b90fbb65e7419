"""What NDNts and python-ndn put on the wire in a group, read, judged and written again byte for byte."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from syncline.core.verdict import ACCEPT
from syncline.formats.ndn import names
from syncline.formats.ndn.packets import decode_data, decode_interest, encode_data, encode_interest
from syncline.formats.ndn.signing import Digest, Hmac
from syncline.protocols.svs import wire
from syncline.protocols.svs.rules import Keys, Trust, examine, judge_sync
from syncline.protocols.svs.wire.mapping import decode_mapping, encode_mapping
from syncline.protocols.svs.wire.vector import decode_boot_vector, encode_boot_vector

FILE = json.loads((Path(__file__).parents[2] / "vectors" / "svs.json").read_text())
VECTORS: list[dict[str, Any]] = FILE["vectors"]
HMAC = Hmac(base64.b64decode(FILE["hmac_key_base64"]))
BOTH = Keys([Digest(), HMAC])
TRUST = Trust(sync=BOTH, outer=BOTH, inner=BOTH, mapping=BOTH)


def where(test: Any) -> list[Any]:
    return [pytest.param(vector, id=vector["name"]) for vector in VECTORS if test(vector["meaning"])]


def group_of(name: str) -> bytes:
    return names.parse("/some/group" if "/some/group/" in name else "/ndn/svs")


@pytest.mark.parametrize("vector", where(lambda m: m.get("version") == 2))
def test_a_state_vector_is_read_and_written(vector: dict[str, Any]) -> None:
    raw = bytes.fromhex(vector["hex"])
    found, end = wire.decode_vector(raw)
    assert end == len(raw)
    assert [(names.text(node), seq) for node, seq in found.items()] == [
        (entry["node"], entry["seq"]) for entry in vector["meaning"]["entries"]
    ]
    assert wire.encode_vector(dict(reversed(found.items()))) == raw  # canonical order, whatever the order given


@pytest.mark.parametrize("vector", where(lambda m: m.get("version") == 3))
def test_a_state_vector_of_version_3_is_read_and_written(vector: dict[str, Any]) -> None:
    raw = bytes.fromhex(vector["hex"])
    found = decode_boot_vector(raw)
    assert {names.text(node): boots for node, boots in found.items()} == {
        entry["node"]: {boot["boot"]: boot["seq"] for boot in entry["boots"]} for entry in vector["meaning"]["entries"]
    }
    assert encode_boot_vector(found) == raw


@pytest.mark.parametrize("vector", where(lambda m: "state_vector" in m))
def test_a_sync_interest_is_judged_and_written(vector: dict[str, Any]) -> None:
    raw = bytes.fromhex(vector["hex"])
    judged = judge_sync(raw, names.parse("/ndn/svs"), TRUST)
    assert (judged.verdict, judged.mapping) == (ACCEPT, None)
    assert [(names.text(node), seq) for node, seq in judged.vector.items()] == [
        (entry["node"], entry["seq"]) for entry in vector["meaning"]["state_vector"]
    ]
    again = encode_interest(
        wire.sync_name(names.parse("/ndn/svs")),
        nonce=bytes.fromhex(vector["meaning"]["nonce_hex"]),
        can_be_prefix=True,
        must_be_fresh=True,
        lifetime=1_000,
        parameters=wire.encode_vector(judged.vector),
        signer=HMAC if "hmac_key_base64" in vector else Digest(),
    )
    assert again == raw


@pytest.mark.parametrize("vector", where(lambda m: "encapsulated" in m))
def test_an_outer_data_is_judged_and_decapsulated(vector: dict[str, Any]) -> None:
    meaning, raw = vector["meaning"], bytes.fromhex(vector["hex"])
    group = group_of(meaning["name"])
    judged = examine(raw, group, TRUST)
    assert judged.verdict == ACCEPT
    outer = judged.packet
    assert isinstance(outer, wire.Outer)
    inner = meaning["encapsulated"]
    segmented = "/54=%00/50=" in meaning["name"]
    assert (outer.segment is None) is not segmented
    assert wire.outer_name(outer.node, group, outer.seq, outer.segment) == names.parse(meaning["name"])
    assert names.text(outer.name) == inner["name"].split("/54=")[0]
    assert len(outer.content) == inner["content_bytes"]
    if "final_block_id" in meaning:
        assert meaning["final_block_id"] == f"50=%{outer.final:02X}"


def test_an_unsegmented_publication_is_written_as_ndnts_would() -> None:
    for name, seq, signer in (("outer_unsegmented_digest", 25, Digest()), ("outer_unsegmented_hmac", 256, HMAC)):
        [vector] = [each for each in VECTORS if each["name"] == name]
        meaning = vector["meaning"]
        packets = wire.encapsulate(
            names.parse("/node/a"),
            names.parse("/some/group"),
            seq,
            names.parse("/ndn/data/example"),
            meaning["encapsulated"]["content_text"].encode(),
            inner=Digest(),
            outer=signer,
            freshness=meaning["freshness_ms"],
        )
        assert [packet.hex() for packet in packets] == [vector["hex"]]


def test_segments_are_written_as_ndnts_would() -> None:
    vectors = [each for each in VECTORS if each["name"].startswith("ndnts_three_segments_outer_data")]
    payload = b"".join(bytes.fromhex(each["meaning"]["encapsulated"]["content_hex"]) for each in vectors)
    packets = wire.encapsulate(
        names.parse("/node/a"), names.parse("/ndn/svs"), 1, names.parse("/chat/big"), payload,
        inner=Digest(), outer=Digest(), largest=200,
    )  # fmt: skip
    assert [packet.hex() for packet in packets] == [each["hex"] for each in vectors]


@pytest.mark.parametrize("vector", where(lambda m: "mapping" in m))
def test_a_mapping_is_judged_read_and_written(vector: dict[str, Any]) -> None:
    meaning, raw = vector["meaning"], bytes.fromhex(vector["hex"])
    judged = examine(raw, names.parse("/ndn/svs"), TRUST)
    assert judged.verdict == ACCEPT
    mapping = judged.packet
    assert isinstance(mapping, wire.MappingData)
    assert names.text(mapping.node) == meaning["mapping"]["node"]
    assert [(entry.seq, names.text(entry.name), entry.timestamp) for entry in mapping.entries] == [
        (entry["seq"], entry["name"], entry.get("timestamp_us")) for entry in meaning["mapping"]["entries"]
    ]
    data = decode_data(raw)
    assert encode_mapping(mapping.node, mapping.entries) == data.content
    again = encode_data(
        data.name,
        data.content,
        HMAC if "hmac_key_base64" in vector else Digest(),
        freshness=data.freshness or None,
    )
    assert again == raw
    assert decode_mapping(data.content) == mapping


@pytest.mark.parametrize("vector", where(lambda m: m.get("packet") == "Interest" and "/MAPPING/" in m["name"]))
def test_a_mapping_query_is_read_and_written(vector: dict[str, Any]) -> None:
    group = names.parse("/ndn/svs")
    asked = wire.read_name(decode_interest(bytes.fromhex(vector["hex"])).name, group)
    assert isinstance(asked, wire.MappingName)
    assert wire.mapping_name(asked.node, group, asked.low, asked.high) == names.parse(vector["meaning"]["name"])
