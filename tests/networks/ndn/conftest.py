"""A forwarder on a bench: faces without sockets, and time that is turned by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from syncline.formats.ndn import names
from syncline.formats.ndn import types as t
from syncline.formats.ndn.link import decode_link
from syncline.formats.ndn.packets import Data, Interest, decode_data, decode_interest, encode_data, encode_interest
from syncline.formats.ndn.signing import Digest
from syncline.formats.tlv import encode, integer_element
from syncline.networks.ndn.commands import CommandGate
from syncline.networks.ndn.control import ControlParameters, ControlResponse, decode_response, encode_parameters
from syncline.networks.ndn.faces import Face
from syncline.networks.ndn.forwarder import Forwarder
from syncline.networks.ndn.management import Management
from syncline.networks.ndn.routes import CHILD_INHERIT, Route

WALL = 1_772_323_200_000_000


class Bench:
    """A forwarder with its management, and short words for what tests do to it."""

    def __init__(self, forwarder: Forwarder | None = None, gate: CommandGate | None = None) -> None:
        self.forwarder = forwarder or Forwarder()
        self.now = 0.0
        self.wall = WALL
        self.changed: list[str] = []
        self.management = Management(
            self.forwarder,
            gate or CommandGate(),
            lambda: self.wall,
            lambda prefix: self.changed.append(names.text(prefix)),
        )
        self._nonce = 0

    def face(self, uri: str = "tcp://test", *, local: bool = True) -> Face:
        return self.forwarder.add_face(uri, local=local, notify=lambda: None, now=self.now)

    def route(self, prefix: str, face: Face, cost: int = 0, flags: int = CHILD_INHERIT) -> None:
        self.forwarder.routes.add(names.parse(prefix), Route(face.id, 0, cost, flags))

    def send(self, face: Face, *packets: bytes) -> None:
        self.forwarder.receive(face, list(packets), self.now)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.wall += round(seconds * 1_000_000)
        self.forwarder.tick(self.now)

    def nonce(self) -> bytes:
        self._nonce += 1
        return self._nonce.to_bytes(4, "big")

    def command(
        self, verb: str, parameters: ControlParameters, *, time: int | None = None, scope: str = "localhost"
    ) -> bytes:
        name = names.parse(f"/{scope}/nfd/{verb}") + names.generic(encode_parameters(parameters))
        self.wall += 1_000
        extra = encode(t.SIGNATURE_NONCE, b"12345678")
        extra += integer_element(t.SIGNATURE_TIME, self.wall // 1_000 if time is None else time)
        return encode_interest(name, nonce=self.nonce(), parameters=b"", signer=Digest(), signature_extra=extra)

    def order(self, face: Face, wire: bytes) -> ControlResponse:
        """Give a command and read the answer."""
        self.send(face, wire)
        [answer] = face.take()
        return decode_response(decode_data(answer).content)


def interest(name: str, nonce: bytes, **fields: object) -> bytes:
    return encode_interest(names.parse(name), nonce=nonce, **fields)  # type: ignore[arg-type]


def data(name: str, content: bytes = b"x", freshness: int | None = None) -> bytes:
    return encode_data(names.parse(name), content, Digest(), freshness=freshness)


def seen(packets: list[bytes]) -> list[str]:
    """Packets as short text: `I /a`, `D /a`, `N /a 150`."""
    found = []
    for packet in packets:
        nack: int | None = None
        if packet[0] == t.LP_PACKET:
            link = decode_link(packet)
            packet, nack = link.fragment, link.nack
        decoded: Interest | Data = decode_interest(packet) if packet[0] == t.INTEREST else decode_data(packet)
        kind = "D" if packet[0] == t.DATA else "I" if nack is None else "N"
        found.append(f"{kind} {names.text(decoded.name)}" + (f" {nack}" if nack is not None else ""))
    return found


MakeBench = Callable[[], Bench]


@pytest.fixture
def bench() -> Bench:
    return Bench()
