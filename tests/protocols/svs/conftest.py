"""A session on a bench: actions are read, answers are made by hand."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from syncline.core.retry import Backoff
from syncline.formats.ndn import names
from syncline.formats.ndn.packets import encode_data
from syncline.formats.ndn.signing import Digest, Signer
from syncline.protocols.svs import wire
from syncline.protocols.svs.rules import Trust, examine
from syncline.protocols.svs.session import Action, Announce, Ask, Deliver, Failure, Judge, Options, Session, Skipped
from syncline.protocols.svs.wire import MappingEntry

GROUP, ALICE, BOB = names.parse("/group"), names.parse("/alice"), names.parse("/bob")
WALL = 1_772_323_200_000_000
A = TypeVar("A")


class Desk:
    """A session, and its actions since they were last looked at."""

    def __init__(self, *, trust: Trust | None = None, own: str | None = "/me", last: int = 0, **options: Any) -> None:
        options.setdefault("hellos", 1)
        options.setdefault("backoff", Backoff(first=1.0, factor=2.0, longest=8.0, jitter=0.0))
        self.now = 100.0
        self.trust = trust or Trust()
        self.session = Session(GROUP, Options(**options), Random(1), self.now, WALL)
        if own is not None:
            self.session.join(names.parse(own), last)
        self.actions: list[Action] = []
        self.tick()
        self.actions.clear()  # the hello

    def tick(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.session.tick(self.now)
        self.actions += self.session.take()

    def hear(self, mapping: wire.MappingData | None = None, **vector: int) -> None:
        self.hear_all({f"/{node}": seq for node, seq in vector.items()}, mapping)

    def hear_all(self, vector: dict[str, int], mapping: wire.MappingData | None = None) -> None:
        """A sync Interest with this vector."""
        self.session.heard({names.parse(node): seq for node, seq in vector.items()}, mapping, self.now)
        self.actions += self.session.take()

    def take(self, kind: type[A]) -> list[A]:
        """The actions of one kind, which are then done with."""
        found: list[A] = [action for action in self.actions if isinstance(action, kind)]
        self.actions = [action for action in self.actions if not isinstance(action, kind)]
        return found

    def asks(self) -> list[Ask]:
        return self.take(Ask)

    def names(self) -> list[str]:
        """What is asked for now."""
        return [names.text(ask.name) + ("*" if ask.can_be_prefix else "") for ask in self.asks()]

    def answer(self, ask: Ask, packet: bytes | None) -> None:
        """Answer an Interest, and judge the packet by the group's trust."""
        self.session.answered(ask.token, packet, 0, self.now)
        self.actions += self.session.take()
        for judge in self.take(Judge):
            self.session.judged(judge.token, examine(judge.wire, GROUP, self.trust), self.now)
            self.actions += self.session.take()

    def deliveries(self) -> list[tuple[str, int, str, bytes, tuple[int, ...]]]:
        return [
            (d.publication.node, d.publication.seq, d.publication.topic, d.publication.payload, d.subscriptions)
            for d in self.take(Deliver)
        ]

    def failures(self) -> list[tuple[str, int, int, str, str, bool]]:
        return [
            (f.node, f.low, f.high, f.step, f.verdict.reason or "" if f.verdict else "", f.final)
            for f in self.take(Failure)
        ]

    def skipped(self) -> list[tuple[int, int, str]]:
        return [(each.low, each.high, each.reason) for each in self.take(Skipped)]

    def announced(self) -> list[tuple[dict[str, int], wire.MappingData | None]]:
        found = []
        for announce in self.take(Announce):
            vector, end = wire.decode_vector(announce.parameters)
            mapping = wire.decode_mapping(announce.parameters, end) if end < len(announce.parameters) else None
            found.append(({names.text(node): seq for node, seq in vector.items()}, mapping))
        return found


def outers(seq: int, name: str, payload: bytes = b"hi", node: bytes = ALICE, **options: Any) -> list[bytes]:
    signers: dict[str, Any] = {"inner": Digest(), "outer": Digest(), **options}
    return wire.encapsulate(node, GROUP, seq, names.parse(name), payload, **signers)


def mapping(low: int, high: int, *entries: MappingEntry, node: bytes = ALICE, signer: Signer | None = None) -> bytes:
    name = wire.mapping_name(node, GROUP, low, high)
    return encode_data(name, wire.encode_mapping(node, entries), signer or Digest(), freshness=1_000)


def entry(seq: int, name: str, extra: bytes = b"") -> MappingEntry:
    return MappingEntry(seq, names.parse(name), extra)
