"""From packets to publications: a fold that depends only on which packets there are, never on their order or repeats.

Live members put publications together in `session/fetching.py`, packet by packet as they come; here it is done from what was
kept, for tables.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Part(msgspec.Struct, frozen=True, gc=False):
    """One outer packet of a publication. `segment` None: the publication is this one packet."""

    segment: int | None
    final: int
    name: bytes
    content: bytes


class Rebuilt(msgspec.Struct, frozen=True):
    """A publication as far as its packets tell. `payload` is None while some are missing."""

    name: bytes
    segments: int
    held: int
    payload: bytes | None
    conflicting: bool  # its publisher signed packets that contradict each other

    @property
    def complete(self) -> bool:
        return self.payload is not None


def rebuild(parts: Iterable[Part]) -> Rebuilt:
    """The publication these packets of one sequence number make.

    Packets that differ in name, number of segments or content belong to different tellings; the one that is complete, then
    the one with most packets, then the least by its bytes counts, so every order of the same packets gives the same.
    """
    tellings: dict[tuple[bytes, int, bool], dict[int, bytes]] = {}
    conflicting = False
    for part in parts:
        telling = tellings.setdefault((part.name, part.final, part.segment is None), {})
        index = part.segment or 0
        other = telling.get(index)
        conflicting |= other is not None and other != part.content
        telling[index] = part.content if other is None else min(other, part.content)
    (name, final, _), held = min(
        tellings.items(), key=lambda item: (len(item[1]) <= item[0][1], -len(item[1]), item[0])
    )
    payload = b"".join(held[index] for index in range(final + 1)) if len(held) == final + 1 else None
    return Rebuilt(name, final + 1, len(held), payload, conflicting or len(tellings) > 1)
