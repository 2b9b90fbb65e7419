"""Joins a group's conversation to an NDN endpoint: sends its Interests, takes in sync Interests, serves our packets.

Synchronous, so that simulations run the same code as the async driver. Judging, keeping and delivering are the driver's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from syncline.core.errors import DecodeError
from syncline.core.limits import SVS_KEPT_BYTES, SVS_LOOKUPS, SVS_MAPPING_ANSWER, SVS_SEGMENT_BYTES, SVS_SEGMENTS
from syncline.formats.ndn.names import Name
from syncline.formats.ndn.packets import Data, decode_data, encode_data, encode_interest
from syncline.networks.ndn.endpoint import Endpoint, Request
from syncline.protocols.svs.rules.judge import judge_sync
from syncline.protocols.svs.rules.trust import Signers, Trust
from syncline.protocols.svs.service.stores import Prepared
from syncline.protocols.svs.session import Action, Announce, Ask, Session
from syncline.protocols.svs.wire.mapping import MappingEntry, encode_mapping
from syncline.protocols.svs.wire.naming import MappingName, OuterName, mapping_name, read_name, sync_name

SYNC_LIFETIME_MS = 1_000
MAPPING_FRESHNESS_MS = 1_000  # an answer may grow
EXCESS = 4  # packets are dropped from memory until this share of the room is free again


class Wiring:
    """One member of one group on one endpoint."""

    def __init__(
        self,
        group: Name,
        session: Session,
        endpoint: Endpoint,
        signers: Signers,
        trust: Trust,
        now: Callable[[], float],
        woken: Callable[[], None] = lambda: None,
    ) -> None:
        self.group = group
        self.session = session
        self.refused_syncs = 0
        self.lookups: list[tuple[Request, OuterName | MappingName]] = []  # for the driver: ask the store
        self._endpoint = endpoint
        self._signers = signers
        self._trust = trust
        self._now = now
        self._woken = woken
        self._sync_name = sync_name(group)
        self._shelf: dict[Name, dict[int, Prepared]] = {}
        self._shelf_bytes = 0
        endpoint.serve(self._sync_name, self._heard)

    def close(self) -> None:
        self._endpoint.unserve(self._sync_name)
        for node in self._shelf:
            self._endpoint.unserve(node + self.group)

    # sending

    def act(self, actions: Iterable[Action]) -> list[Action]:
        """Do what concerns the network; what is left concerns the driver."""
        left: list[Action] = []
        for action in actions:
            if type(action) is Ask:
                self._ask(action)
            elif type(action) is Announce:
                self._announce(action)
            else:
                left.append(action)
        return left

    def _ask(self, ask: Ask) -> None:
        def answered(data: Data | None, face: int) -> None:
            self.session.answered(ask.token, None if data is None else data.wire, face, self._now())
            self._woken()

        self._endpoint.ask(
            ask.name,
            answered,
            self._now(),
            can_be_prefix=ask.can_be_prefix,
            must_be_fresh=ask.must_be_fresh,
            lifetime=round(ask.lifetime * 1_000),
        )

    def _announce(self, announce: Announce) -> None:
        endpoint = self._endpoint
        endpoint.send(
            encode_interest(
                self._sync_name,
                nonce=endpoint.nonce(),
                can_be_prefix=True,
                must_be_fresh=True,
                lifetime=SYNC_LIFETIME_MS,
                parameters=announce.parameters,
                signer=self._signers.sync,
            )
        )

    # receiving

    def _heard(self, request: Request) -> None:
        judged = judge_sync(request.interest.wire, self.group, self._trust)
        if not judged.verdict.accepted:
            self.refused_syncs += 1
            return
        self.session.heard(judged.vector, judged.mapping, self._now())
        self._woken()

    # serving

    def serve(self, node: Name) -> None:
        """Answer for a node of ours. SVS-PS: mappings, and the packets of its publications."""
        self._shelf[node] = {}
        self._endpoint.serve(node + self.group, self._asked)

    def shelve(self, publication: Prepared) -> None:
        """Keep a publication at hand."""
        self._shelf[publication.node][publication.seq] = publication
        self._shelf_bytes += sum(map(len, publication.packets))
        if self._shelf_bytes > SVS_KEPT_BYTES:
            self._clear_shelf()

    def _clear_shelf(self) -> None:
        for shelf in self._shelf.values():
            while shelf and self._shelf_bytes > SVS_KEPT_BYTES - SVS_KEPT_BYTES // EXCESS:
                gone = shelf.pop(next(iter(shelf)))
                self._shelf_bytes -= sum(map(len, gone.packets))

    def _asked(self, request: Request) -> None:
        interest = request.interest
        try:
            named = read_name(interest.name, self.group)
        except DecodeError:
            return  # nothing of ours has such a name
        if named.node not in self._shelf:
            return
        if isinstance(named, MappingName):
            kept = [self._shelf[named.node].get(seq) for seq in self.numbers_of(named)]
            if all(each is not None for each in kept):
                self.answer_mapping(request, named, [each.entry for each in kept if each is not None])
                return
        elif not 1 <= named.seq <= self.session.last(named.node) or (named.segment or 0) >= SVS_SEGMENTS:
            return  # nobody has published that: the store need not be asked
        else:
            found = self._shelf[named.node].get(named.seq)
            if found is not None:
                packet = _packet_of(found.packets, named, interest.can_be_prefix)
                if packet is not None:
                    self._endpoint.reply(request, packet)
                return
        if len(self.lookups) < SVS_LOOKUPS:
            self.lookups.append((request, named))
            self._woken()

    def numbers_of(self, named: MappingName) -> range:
        """Which of the numbers somebody asks the names of are answered for: those there are, a few at a time."""
        first = max(named.low, 1)
        return range(first, min(named.high, first + SVS_MAPPING_ANSWER - 1, self.session.last(named.node)) + 1)

    def answer_packet(self, request: Request, packet: bytes | None) -> None:
        """Send a packet from the store, if it is what was asked for."""
        interest = request.interest
        if packet is not None and (interest.can_be_prefix or decode_data(packet).name == interest.name):
            self._endpoint.reply(request, packet)

    def answer_mapping(self, request: Request, named: MappingName, entries: list[MappingEntry]) -> None:
        """SVS-PS: answer with the subset of the range that there is."""
        self._endpoint.reply(request, self.mapping_data(named.node, named.low, named.high, entries))

    def mapping_data(self, node: Name, low: int, high: int, entries: list[MappingEntry]) -> bytes:
        """A mapping Data of as many of these entries as one packet takes."""
        content = encode_mapping(node, entries)
        while len(content) > SVS_SEGMENT_BYTES:
            entries = entries[: len(entries) // 2]
            content = encode_mapping(node, entries)
        return encode_data(
            mapping_name(node, self.group, low, high),
            content,
            self._signers.mapping,
            freshness=MAPPING_FRESHNESS_MS,
        )


def _packet_of(packets: Sequence[bytes], named: OuterName, prefix: bool) -> bytes | None:
    """The packet of a publication that has this name, or starts with it."""
    if named.segment is not None:
        return packets[named.segment] if 1 < len(packets) > named.segment else None
    return packets[0] if len(packets) == 1 or prefix else None
