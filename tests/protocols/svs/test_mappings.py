"""Serving: mapping queries and packets as others ask for them."""

from __future__ import annotations

from random import Random

from syncline.formats.ndn import names
from syncline.formats.ndn.packets import decode_data, decode_interest, encode_interest
from syncline.formats.ndn.signing import Digest, Hmac
from syncline.networks.ndn.endpoint import Endpoint
from syncline.protocols.svs import wire
from syncline.protocols.svs.rules import Keys, Signers, Trust, examine
from syncline.protocols.svs.service.stores import Prepared
from syncline.protocols.svs.service.wiring import Wiring
from syncline.protocols.svs.session import Options, Session
from syncline.protocols.svs.wire import MappingEntry

GROUP, ALICE, BOB = names.parse("/group"), names.parse("/alice"), names.parse("/bob")
MAPPING = Hmac(b"mapping")
TRUST = Trust(mapping=Keys([MAPPING]))


class Server:
    """Two nodes on one endpoint; /alice has 1 to 3, the second in segments, /bob has 1."""

    def __init__(self) -> None:
        self.endpoint = Endpoint(Random(1))
        session = Session(GROUP, Options(), Random(1), 0.0, 0)
        self.wiring = Wiring(GROUP, session, self.endpoint, Signers(mapping=MAPPING), TRUST, lambda: 0.0)
        for node, sizes in ((ALICE, (5, 20_000, 5)), (BOB, (7,))):
            session.join(node, 9)  # the others are no longer in memory
            self.wiring.serve(node)
            for seq, size in enumerate(sizes, 1):
                name = names.parse(f"{names.text(node)}/{seq}")
                packets = wire.encapsulate(node, GROUP, seq, name, bytes(size), inner=Digest(), outer=Digest())
                self.wiring.shelve(Prepared(node, seq, packets, MappingEntry(seq, name)))

    def ask(self, name: str, **fields: bool) -> list[bytes]:
        wire_ = encode_interest(names.parse(name), nonce=b"0001", **fields)  # type: ignore[arg-type]
        self.endpoint.receive([wire_], 0.0)
        return self.endpoint.take()

    def mapping(self, name: str) -> list[tuple[int, str]]:
        [answer] = self.ask(name)
        judged = examine(answer, GROUP, TRUST)
        assert judged.verdict.accepted, judged.verdict
        assert isinstance(judged.packet, wire.MappingData)
        return [(entry.seq, names.text(entry.name)) for entry in judged.packet.entries]


def test_each_node_has_a_table_of_its_own() -> None:
    server = Server()
    assert server.mapping("/alice/group/MAPPING/%01/%03") == [(1, "/alice/1"), (2, "/alice/2"), (3, "/alice/3")]
    assert server.mapping("/bob/group/MAPPING/%01/%01") == [(1, "/bob/1")]


def test_a_query_is_answered_with_what_there_is() -> None:
    server = Server()
    assert server.mapping("/alice/group/MAPPING/%02/%02") == [(2, "/alice/2")]
    assert server.ask("/alice/group/MAPPING/%02/%09") == []  # some are not in memory: the store is asked
    [(request, named)] = server.wiring.lookups
    assert isinstance(named, wire.MappingName)
    server.wiring.answer_mapping(request, named, [MappingEntry(3, names.parse("/alice/3"))])
    [answer] = server.endpoint.take()
    judged = examine(answer, GROUP, TRUST)
    assert judged.verdict.accepted
    assert judged.packet == wire.MappingData(ALICE, (MappingEntry(3, names.parse("/alice/3")),))
    server.wiring.answer_mapping(request, named, [])
    assert len(server.endpoint.take()) == 1


def test_an_answer_fits_a_packet() -> None:
    server = Server()
    entries = [MappingEntry(seq, names.generic(bytes(500))) for seq in range(1, 65)]
    packet = server.wiring.mapping_data(ALICE, 1, 64, entries)
    assert len(packet) < 8_800
    judged = examine(packet, GROUP, TRUST)
    assert isinstance(judged.packet, wire.MappingData)
    assert [entry.seq for entry in judged.packet.entries] == list(range(1, len(judged.packet.entries) + 1))


def test_packets_are_served_by_their_names_and_the_first_by_its_prefix() -> None:
    server = Server()

    def named(name: str, **fields: bool) -> list[str]:
        return [names.text(decode_data(packet).name) for packet in server.ask(name, **fields)]

    assert named("/alice/group/%01") == ["/alice/group/%01"]
    assert named("/alice/group/%02", can_be_prefix=True) == ["/alice/group/%02/v=0/seg=0"]
    assert named("/alice/group/%02") == []  # nothing has exactly this name
    assert named("/alice/group/%02/v=0/seg=2") == ["/alice/group/%02/v=0/seg=2"]
    assert named("/alice/group/%02/v=0/seg=3") == []
    assert named("/alice/group/%01/v=0/seg=0") == []  # it is not segmented
    assert named("/alice/group/strange") == []
    assert server.wiring.lookups == []
    assert named("/alice/group/%09") == []
    assert len(server.wiring.lookups) == 1


def test_a_packet_from_the_store_is_sent_only_if_it_has_the_name() -> None:
    server = Server()
    [whole] = server.ask("/alice/group/%01")
    server.ask("/alice/group/%09")
    [(request, _)] = server.wiring.lookups
    server.wiring.answer_packet(request, whole)
    server.wiring.answer_packet(request, None)
    assert server.endpoint.take() == []
    assert decode_interest(request.interest.wire).name == names.parse("/alice/group/%09")


def test_the_store_is_not_asked_for_what_was_never_published() -> None:
    server = Server()
    assert server.mapping("/alice/group/MAPPING/%0A/%FF") == []
    for name in ("/alice/group/%0A", "/alice/group/%00", "/alice/group/%09/v=0/seg=8192"):
        assert server.ask(name, can_be_prefix=True) == []
    assert server.wiring.lookups == []


def test_requests_for_the_store_and_packets_in_memory_are_bounded() -> None:
    server = Server()
    for number in range(1_000):
        server.ask(f"/alice/group/MAPPING/%0{number % 5 + 5}/%0{number % 5 + 5}")
    assert len(server.wiring.lookups) == 256
