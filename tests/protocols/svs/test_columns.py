"""Batches of outer packets: every row says what the node's own parser says of it, whatever stands beside it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from syncline.formats.ndn import names
from syncline.formats.ndn.packets import encode_data
from syncline.formats.ndn.signing import Digest, EcdsaSigner, Hmac
from syncline.protocols.svs import wire
from syncline.protocols.svs.columns import OUTER_SCHEMA, _Walk, decode_outer, digests_hold, row_of

NODE, GROUP, CHAT = names.parse("/node/a"), names.parse("/some/group"), names.parse("/chat/hello")
VECTORS = [
    bytes.fromhex(each["hex"])
    for each in json.loads((Path(__file__).parents[2] / "vectors" / "svs.json").read_text())["vectors"]
]


def samples() -> list[bytes]:
    """Packets of every honest kind."""
    ecdsa = EcdsaSigner(ec.derive_private_key(7, ec.SECP256R1()), names.parse("/key"))
    found = []
    for seq in (1, 255, 256, 65_536, 2**40, 2**53 - 1, 2**53, 2**63):
        for signer in (Digest(), Hmac(b"k"), Hmac(b"k", names.parse("/key/1")), ecdsa):
            for size in (0, 1, 100, 300, 8_000):
                found += wire.encapsulate(NODE, GROUP, seq, CHAT, bytes(size), inner=signer, outer=signer)
    found += wire.encapsulate(NODE, GROUP, 5, CHAT, bytes(2_600_00), inner=Digest(), outer=Digest(), largest=500)[:600]
    return found


SAMPLES = samples()


def expected(raws: list[bytes | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row_of(raw) for raw in raws], schema=OUTER_SCHEMA)


def column(raws: list[bytes | None]) -> pa.Array:
    return pa.array(raws, pa.binary())


def test_honest_packets_are_read_as_the_parser_reads_them() -> None:
    assert decode_outer(column([*SAMPLES])) == expected([*SAMPLES])


def test_most_of_them_take_the_fast_way() -> None:
    plain = [packet for packet in SAMPLES if row_of(packet).get("outer_signature") in (0, 4) and b"/key" not in packet]
    walk = _Walk(column([*plain]))
    named = [packet for packet, good in zip(plain, walk.good, strict=True) if not good]
    assert all(b"\x1c" in packet for packet in named)  # only those with a KeyLocator do not
    assert walk.good.mean() > 0.8


def test_packets_of_other_implementations_and_of_other_kinds_are_read_alike() -> None:
    raws: list[bytes | None] = [*VECTORS, None, b"", b"\x06", b"\x06\x00"]
    found = decode_outer(column(raws))
    assert found == expected(raws)
    assert found["reason"].null_count == 8 + 1  # the outer packets among the vectors, and the row without bytes


def test_a_slice_of_a_column_is_read_as_itself() -> None:
    whole = column([*SAMPLES[:50]])
    assert decode_outer(whole[7:31]) == expected([*SAMPLES[7:31]])
    assert decode_outer(whole[0:0]).num_rows == 0


def test_changed_bytes_change_no_other_row_and_are_read_as_the_parser_reads_them() -> None:
    random = Random(1)
    raws: list[bytes | None] = []
    for _ in range(4_000):
        packet = bytearray(random.choice(SAMPLES[:400]))
        for _ in range(random.randrange(1, 4)):
            packet[random.randrange(min(len(packet), 120))] = random.randrange(256)
        raws.append(bytes(packet[: random.choice((len(packet), len(packet), random.randrange(len(packet) + 1)))]))
    found = decode_outer(column(raws))
    assert found == expected(raws)
    assert 100 < found["reason"].null_count < 3_900


@given(st.lists(st.binary(max_size=80), max_size=5))
def test_any_bytes_are_read_as_the_parser_reads_them(raws: list[bytes]) -> None:
    assert decode_outer(column([*raws])) == expected([*raws])


def test_each_row_alone_is_read_as_in_the_batch() -> None:
    batch = decode_outer(column([*SAMPLES[:60]]))
    for index, packet in enumerate(SAMPLES[:60]):
        assert decode_outer(column([packet])) == batch.slice(index, 1)


def test_digests_are_checked_where_there_is_one() -> None:
    both = wire.encapsulate(NODE, GROUP, 1, CHAT, b"content", inner=Digest(), outer=Digest())[0]
    keyed = wire.encapsulate(NODE, GROUP, 1, CHAT, b"content", inner=Digest(), outer=Hmac(b"k"))[0]
    forged = both[:-1] + bytes((both[-1] ^ 1,))
    inside = encode_data(CHAT, b"content", Digest())
    inside = inside[:-1] + bytes((inside[-1] ^ 1,))
    broken = encode_data(wire.outer_name(NODE, GROUP, 1), inside, Hmac(b"k"), content_type=6, freshness=1)
    raws: list[Any] = [both, forged, keyed, broken, b"nonsense", None]
    assert digests_hold(column(raws)).to_pylist() == [True, False, None, False, None, None]
