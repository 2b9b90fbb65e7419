"""Publications from kept packets: any order, any repeats, the same result; and the same as the live member's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncline.formats.ndn import names
from syncline.formats.ndn.packets import decode_data
from syncline.formats.ndn.signing import Digest
from syncline.protocols.svs import wire
from syncline.protocols.svs.rebuild import Part, rebuild

NODE, GROUP, CHAT = names.parse("/node/a"), names.parse("/group"), names.parse("/chat")


def parts_of(payload: bytes, largest: int = 8_000) -> list[Part]:
    found = []
    for packet in wire.encapsulate(NODE, GROUP, 1, CHAT, payload, inner=Digest(), outer=Digest(), largest=largest):
        data = decode_data(packet)
        named = wire.read_name(data.name, GROUP)
        assert isinstance(named, wire.OuterName)
        outer = wire.decapsulate(data, named)
        found.append(Part(outer.segment, outer.final, outer.name, outer.content))
    return found


@given(st.binary(max_size=900), st.randoms(use_true_random=False), st.integers(0, 5))
def test_any_order_and_any_repeats_give_the_payload(payload: bytes, random: object, repeats: int) -> None:
    parts = parts_of(payload, 100)
    shuffled = parts * (1 + repeats)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    found = rebuild(shuffled)
    assert (found.name, found.payload, found.complete, found.conflicting) == (CHAT, payload, True, False)
    assert (found.segments, found.held) == (len(parts), len(parts))


def test_a_missing_segment_leaves_it_incomplete() -> None:
    parts = parts_of(bytes(500), 100)
    found = rebuild(parts[:2] + parts[3:])
    assert (found.segments, found.held, found.payload, found.complete) == (5, 4, None, False)


def test_an_unsegmented_packet_is_whole() -> None:
    assert rebuild([Part(None, 0, CHAT, b"x")]).payload == b"x"


def test_contradicting_packets_are_told_and_the_choice_does_not_depend_on_order() -> None:
    one, other = Part(None, 0, CHAT, b"one"), Part(None, 0, CHAT, b"other")
    assert rebuild([one, other]) == rebuild([other, one])
    assert rebuild([one, other]).conflicting
    renamed = Part(None, 0, names.parse("/a"), b"one")
    assert rebuild([one, renamed]) == rebuild([renamed, one])
    assert rebuild([one, renamed]).conflicting


def test_a_complete_telling_counts_before_a_longer_incomplete_one() -> None:
    whole = Part(None, 0, CHAT, b"whole")
    pieces = [Part(index, 9, CHAT, b"x") for index in range(5)]
    found = rebuild([*pieces, whole])
    assert (found.payload, found.conflicting) == (b"whole", True)
