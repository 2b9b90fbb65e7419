"""Where fetched packets go to be judged, and kept where there is something to keep them in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from syncline.formats.ndn.names import Name
from syncline.protocols.svs.rules.judge import Judged, examine
from syncline.protocols.svs.rules.trust import Trust


class Intake(Protocol):
    """Judges fetched packets, and keeps them where there is something to keep them in."""

    async def take(self, packets: Sequence[tuple[bytes, str]]) -> list[Judged]:
        """(packet, peer) in, verdicts out in the same order; what is accepted is kept when this returns."""
        ...


class Judging:
    """An intake that only judges."""

    def __init__(self, group: Name, trust: Trust) -> None:
        self._group = group
        self._trust = trust

    async def take(self, packets: Sequence[tuple[bytes, str]]) -> list[Judged]:
        return [examine(wire, self._group, self._trust) for wire, _ in packets]
