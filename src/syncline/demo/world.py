"""What the demo's traffic shares: the nodes by name, and one seed from which everything follows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from syncline.node.node import Node

NAMES: Final = ("amber", "basalt", "chert")
GROUP: Final = "/syncline/demo"
NETWORK: Final = "demo"


class Member(msgspec.Struct, frozen=True):
    """One running node and the address of its API."""

    name: str
    node: Node
    url: str

    def service(self, protocol: str) -> Any:
        return self.node.service(protocol)

    def speaks(self, protocol: str) -> bool:
        return protocol in self.node.services


class World(msgspec.Struct, frozen=True):
    """Everything there is."""

    members: Sequence[Member]
    folder: Path
    secret: str  # the group's key, base64
    seed: int

    def chance(self, purpose: str) -> Random:
        """Randomness of its own for each purpose, so that one traffic does not change another."""
        return Random(f"{self.seed} {purpose}")

    def speakers(self, protocol: str) -> list[Member]:
        return [member for member in self.members if member.speaks(protocol)]

    def member(self, name: str) -> Member:
        return next(member for member in self.members if member.name == name)

    @property
    def headers_file(self) -> Path:
        return headers_file(self.folder)


def headers_file(folder: Path) -> Path:
    return folder / "headers.ndjson"
