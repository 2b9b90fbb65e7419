"""The forwarder under attack: every table holds its bound, and honest traffic goes on."""

from __future__ import annotations

import tracemalloc

import pytest

from syncline.core import limits
from syncline.core.errors import OverloadedError
from syncline.formats.ndn.link import decode_link, fragment
from syncline.formats.ndn.packets import decode_data
from syncline.formats.tlv import encode, integer_element
from syncline.networks.ndn.content import ContentStore
from syncline.networks.ndn.faces import Reassembly
from syncline.networks.ndn.forwarder import Forwarder, Limits
from syncline.networks.ndn.pending import DeadNonces
from tests.networks.ndn.conftest import Bench, data, interest, seen


def test_a_flood_of_interests_fills_only_the_floods_share() -> None:
    bench = Bench(Forwarder(limits=Limits(pending=1_000, pending_per_face=100)))
    attacker, honest, producer = bench.face(), bench.face(), bench.face()
    bench.route("/", producer)
    for number in range(5_000):
        bench.send(attacker, interest(f"/flood/{number}", bench.nonce(), lifetime=60_000))
    assert (len(bench.forwarder.pending), attacker.pending, attacker.counters.refused) == (100, 100, 4_900)
    producer.take()
    bench.send(honest, interest("/a", bench.nonce()))
    assert seen(producer.take()) == ["I /a"]
    bench.send(producer, data("/a"))
    assert seen(honest.take()) == ["D /a"]


def test_many_attackers_together_fill_only_the_table() -> None:
    bench = Bench(Forwarder(limits=Limits(pending=50, pending_per_face=20)))
    producer = bench.face()
    bench.route("/", producer)
    attackers = [bench.face() for _ in range(5)]
    for attacker in attackers:
        for number in range(20):
            bench.send(attacker, interest(f"/{attacker.id}/{number}", bench.nonce(), lifetime=1_000))
    assert len(bench.forwarder.pending) == 50
    bench.advance(1.2)
    assert (len(bench.forwarder.pending), [attacker.pending for attacker in attackers]) == (0, [0] * 5)


def test_a_flood_of_data_stays_within_packets_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ContentStore(packets=100)
    for number in range(1_000):
        store.add(decode_data(data(f"/flood/{number}")), 1, 0.0)
    assert (len(store), len(store._names)) == (100, 100)
    assert store.bytes == sum(len(data(f"/flood/{number}")) for number in range(900, 1_000))
    monkeypatch.setattr("syncline.networks.ndn.content.NDN_CONTENT_BYTES", 10_000)
    store.add(decode_data(data("/big", bytes(8_000))), 1, 0.0)
    assert store.bytes <= 10_000


def test_dead_nonces_are_bounded_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.networks.ndn.pending.NDN_DEAD_NONCES", 100)
    nonces = DeadNonces()
    for number in range(1_000):
        nonces.add(b"", number.to_bytes(4, "big"), 0.0)
    assert len(nonces) <= 200
    assert (999).to_bytes(4, "big") in nonces
    nonces.add(b"", b"later", limits.NDN_DEAD_NONCE_SECONDS)
    nonces.add(b"", b"last", 2 * limits.NDN_DEAD_NONCE_SECONDS)
    assert (999).to_bytes(4, "big") not in nonces
    assert b"later" in nonces


def test_fragments_that_never_complete_are_bounded() -> None:
    partials = Reassembly()
    for number in range(10_000):
        piece = fragment(bytes(3_000), 1_400, number * 10)[0]
        assert partials.add(decode_link(piece), 0.0) is None
    assert len(partials) == limits.NDN_PARTIALS_PER_FACE
    partials.add(decode_link(fragment(bytes(3_000), 1_400, 7)[0]), limits.NDN_PARTIAL_SECONDS)
    assert len(partials) == 1


def test_a_packet_in_too_many_or_too_large_fragments_is_malformed(bench: Bench) -> None:
    face = bench.face()
    many = encode(0x51, bytes(8)) + integer_element(0x53, limits.NDN_FRAGMENTS + 1) + encode(0x50, b"x")
    bench.send(face, encode(0x64, many))
    assert face.counters.malformed == 1
    pieces = fragment(bytes(9_000), 8_000, 0)
    bench.send(face, *pieces)
    assert (face.counters.malformed, len(face.partials)) == (2, 0)


def test_a_fragment_that_comes_twice_counts_once() -> None:
    partials = Reassembly()
    first, second = (decode_link(piece) for piece in fragment(b"\x06\xfd\x07\xd0" + bytes(2_000), 1_400, 0))
    assert partials.add(first, 0.0) is None
    assert partials.add(first, 0.0) is None
    whole = partials.add(second, 0.0)
    assert whole is not None
    assert len(whole.fragment) == 2_004


def test_a_slow_reader_loses_packets_and_costs_bounded_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.networks.ndn.faces.NDN_FACE_QUEUE_BYTES", 1_000)
    slow, honest, producer = bench.face(), bench.face(), bench.face()
    bench.route("/a", slow)
    bench.route("/b", producer)
    for number in range(100):
        bench.send(honest, interest(f"/a/{number}", bench.nonce()))
    assert slow.outgoing_bytes <= 1_000
    assert slow.counters.dropped == 100 - len(slow.outgoing)
    bench.send(honest, interest("/b", bench.nonce()))
    assert seen(producer.take()) == ["I /b"]


def test_faces_are_bounded() -> None:
    bench = Bench(Forwarder(limits=Limits(faces=2)))
    bench.face()
    face = bench.face()
    with pytest.raises(OverloadedError):
        bench.face()
    bench.forwarder.remove_face(face)
    bench.face()


def test_an_oversize_packet_is_malformed(bench: Bench) -> None:
    face = bench.face()
    bench.send(face, data("/a", bytes(8_800)))
    assert face.counters.malformed == 1


def test_hostile_traffic_costs_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.networks.ndn.pending.NDN_DEAD_NONCES", 1_000)
    bench = Bench(Forwarder(limits=Limits(pending=1_000, pending_per_face=1_000), content_packets=100))
    attacker, producer = bench.face(), bench.face()
    bench.route("/", producer)

    def hostile(start: int) -> None:
        for number in range(start, start + 3_000):
            bench.send(attacker, interest(f"/flood/{number}", bench.nonce(), lifetime=60_000))
            bench.send(producer, data(f"/flood/{number}", bytes(500)))
            producer.take()
            attacker.take()

    hostile(0)
    tracemalloc.start()
    hostile(3_000)
    before, _ = tracemalloc.get_traced_memory()
    hostile(6_000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 200_000
