"""The forwarder's own answers: commands (routes, strategies, cache) and status datasets, in NFD's management protocol.

Who may give commands is decided by `commands.py`. Applications find it below /localhost/nfd, or /localhop/nfd from afar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from syncline.core.errors import DecodeError, NotFoundError, OverloadedError, RefusedError
from syncline.core.verdict import Reason
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name, boundaries, number, number_of, parse
from syncline.formats.ndn.packets import Interest, encode_data
from syncline.formats.ndn.signing import Digest
from syncline.formats.tlv import encode
from syncline.networks.ndn import control
from syncline.networks.ndn.commands import Command, CommandGate, read_command
from syncline.networks.ndn.control import ControlParameters, ControlResponse, decode_parameters, encode_response, fields
from syncline.networks.ndn.faces import Face
from syncline.networks.ndn.forwarder import COMMANDS, Forwarder
from syncline.networks.ndn.routes import CHILD_INHERIT, Route, Strategy

SEGMENT_BYTES: Final = 8_000
ERASE_MOST: Final = 256
VERSION: Final = "syncline"
STRATEGY_NAMES: Final[dict[Strategy, Name]] = {
    "best-route": parse("/localhost/nfd/strategy/best-route"),
    "multicast": parse("/localhost/nfd/strategy/multicast"),
}
_SIGNER: Final = Digest()


class Management:
    """Answers the Interests that are addressed to the forwarder itself.

    `changed(prefix)` is called after a route was added or removed by a command.
    """

    def __init__(
        self,
        forwarder: Forwarder,
        gate: CommandGate,
        wall: Callable[[], int],
        changed: Callable[[Name], None] = lambda prefix: None,
    ) -> None:
        self._forwarder = forwarder
        self._gate = gate
        self._wall = wall
        self._changed = changed
        self._started = wall()
        self._datasets: dict[Name, tuple[int, list[bytes]]] = {}  # the newest version of each
        self._commands = {
            (b"rib", b"register"): self._register,
            (b"rib", b"unregister"): self._unregister,
            (b"strategy-choice", b"set"): self._choose,
            (b"strategy-choice", b"unset"): self._unchoose,
            (b"cs", b"erase"): self._erase,
        }
        self._datasets_of = {
            (b"status", b"general"): self._general,
            (b"faces", b"list"): self._faces,
            (b"rib", b"list"): self._rib,
            (b"fib", b"list"): self._fib,
            (b"strategy-choice", b"list"): self._strategies,
            (b"cs", b"info"): self._content,
        }
        forwarder.commander = self.answer

    def answer(self, face: Face, interest: Interest, now: float) -> bytes | None:
        """The Data that answers, or None for what does not exist."""
        command = read_command(interest)
        dataset = self._datasets_of.get((command.module, command.verb))
        if dataset is not None:
            return self._dataset(face, interest, dataset)
        act = self._commands.get((command.module, command.verb))
        response = ControlResponse(501, "no such command") if act is None else self._act(act, face, command, now)
        return encode_data(interest.name, encode_response(response), _SIGNER, freshness=1)

    def face_gone(self, face: Face) -> None:
        self._gate.forget(face)

    # commands

    def _act(
        self,
        act: Callable[[Face, ControlParameters, float], ControlResponse],
        face: Face,
        command: Command,
        now: float,
    ) -> ControlResponse:
        try:
            if not face.local and command.module != b"rib":
                raise RefusedError("from elsewhere only routes are taken", reason=Reason.UNAUTHORISED)
            self._gate.check(face, command, self._wall())
            parameters = decode_parameters(command.parameters or b"")
            return act(face, parameters, now)
        except RefusedError as error:
            return ControlResponse(403, f"{error.reason.value}: {error.message}")
        except OverloadedError as error:
            return ControlResponse(503, error.message)
        except NotFoundError as error:
            return ControlResponse(410, error.message)
        except DecodeError as error:
            return ControlResponse(400, str(error))

    def _register(self, face: Face, parameters: ControlParameters, now: float) -> ControlResponse:
        prefix, target = self._target(face, parameters)
        if prefix.startswith(COMMANDS):
            return ControlResponse(403, "that prefix is the forwarder's own")
        filled = ControlParameters(
            name=prefix,
            face=target,
            origin=parameters.origin or 0,
            cost=parameters.cost or 0,
            flags=CHILD_INHERIT if parameters.flags is None else parameters.flags,
            expiration=parameters.expiration,
        )
        expires = None if parameters.expiration is None else now + parameters.expiration / 1_000
        route = Route(target, filled.origin or 0, filled.cost or 0, filled.flags or 0, expires)
        self._forwarder.routes.add(prefix, route)
        self._changed(prefix)
        return ControlResponse(200, "OK", filled)

    def _unregister(self, face: Face, parameters: ControlParameters, now: float) -> ControlResponse:
        prefix, target = self._target(face, parameters)
        origin = parameters.origin or 0
        self._forwarder.routes.remove(prefix, target, origin)
        self._changed(prefix)
        return ControlResponse(200, "OK", ControlParameters(name=prefix, face=target, origin=origin))

    def _target(self, face: Face, parameters: ControlParameters) -> tuple[Name, int]:
        """The prefix and the face a route is about; only applications of this machine may speak for other faces."""
        if parameters.name is None:
            raise DecodeError("a route needs a name", about="name")
        target = parameters.face or face.id
        if target not in self._forwarder.faces or (target != face.id and not face.local):
            raise NotFoundError("there is no such face", about="face_id")
        return parameters.name, target

    def _choose(self, face: Face, parameters: ControlParameters, now: float) -> ControlResponse:
        if parameters.name is None or parameters.strategy is None:
            raise DecodeError("a choice needs a name and a strategy")
        for strategy, name in STRATEGY_NAMES.items():
            if parameters.strategy.startswith(name):  # a version may follow
                self._forwarder.strategies.choose(parameters.name, strategy)
                return ControlResponse(200, "OK", parameters)
        return ControlResponse(404, "there is no such strategy")

    def _unchoose(self, face: Face, parameters: ControlParameters, now: float) -> ControlResponse:
        if parameters.name is None:
            raise DecodeError("a choice needs a name", about="name")
        self._forwarder.strategies.unchoose(parameters.name)
        return ControlResponse(200, "OK", ControlParameters(name=parameters.name))

    def _erase(self, face: Face, parameters: ControlParameters, now: float) -> ControlResponse:
        if parameters.name is None:
            raise DecodeError("erasing needs a name", about="name")
        most = min(parameters.count or ERASE_MOST, ERASE_MOST)
        erased = self._forwarder.content.erase(parameters.name, most)
        return ControlResponse(200, "OK", ControlParameters(name=parameters.name, count=erased))

    # datasets

    def _dataset(self, face: Face, interest: Interest, make: Callable[[], bytes]) -> bytes | None:
        """One segment of a dataset: of a new version, or of the one the Interest names."""
        ends = boundaries(interest.name)
        prefix = interest.name[: ends[3]]
        if not face.local:
            return None
        if len(ends) == 4:
            content = make()
            pieces = [content[at : at + SEGMENT_BYTES] for at in range(0, len(content), SEGMENT_BYTES)] or [b""]
            self._datasets[prefix] = (self._wall(), pieces)
            return self._segment(prefix, 0)
        version = number_of(t.VERSION, interest.name, ends[3], ends[4])
        index = number_of(t.SEGMENT, interest.name, ends[4], ends[5]) if len(ends) == 6 else None
        kept = self._datasets.get(prefix)
        if kept is None or index is None or version != kept[0] or index >= len(kept[1]):
            return None
        return self._segment(prefix, index)

    def _segment(self, prefix: Name, index: int) -> bytes:
        version, pieces = self._datasets[prefix]
        name = prefix + number(t.VERSION, version) + number(t.SEGMENT, index)
        final = number(t.SEGMENT, len(pieces) - 1)
        return encode_data(name, pieces[index], _SIGNER, freshness=1_000, final_block=final)

    def _general(self) -> bytes:
        forwarder = self._forwarder
        counters = [face.counters for face in forwarder.faces.values()]
        return fields(
            (
                (0x80, VERSION.encode()),
                (0x81, self._started // 1_000),
                (0x82, self._wall() // 1_000),
                (0x83, 0),
                (0x84, len(forwarder.routes.forwarding())),
                (0x85, len(forwarder.pending)),
                (0x86, 0),
                (0x87, len(forwarder.content)),
                (0x90, sum(each.in_interests for each in counters)),
                (0x91, sum(each.in_data for each in counters)),
                (0x97, sum(each.in_nacks for each in counters)),
                (0x92, sum(each.out_interests for each in counters)),
                (0x93, sum(each.out_data for each in counters)),
                (0x98, sum(each.out_nacks for each in counters)),
                (0x99, sum(each.satisfied for each in counters)),
                (0x9A, sum(each.unsatisfied for each in counters)),
            )
        )

    def _faces(self) -> bytes:
        return b"".join(encode(0x80, _face_status(face)) for face in self._forwarder.faces.values())

    def _rib(self) -> bytes:
        return b"".join(
            encode(0x80, encode(t.NAME, prefix) + b"".join(encode(0x81, _route_status(route)) for route in routes))
            for prefix, routes in self._forwarder.routes.entries()
        )

    def _fib(self) -> bytes:
        return b"".join(
            encode(
                0x80,
                encode(t.NAME, prefix)
                + b"".join(encode(0x81, fields(((control.FACE_ID, h.face), (control.COST, h.cost)))) for h in hops),
            )
            for prefix, hops in self._forwarder.routes.forwarding()
        )

    def _strategies(self) -> bytes:
        return b"".join(
            encode(0x80, encode(t.NAME, prefix) + encode(control.STRATEGY, encode(t.NAME, STRATEGY_NAMES[strategy])))
            for prefix, strategy in self._forwarder.strategies.entries()
        )

    def _content(self) -> bytes:
        content = self._forwarder.content
        return encode(
            0x80,
            fields(
                (
                    (control.CAPACITY, content.capacity),
                    (control.FLAGS, 3),
                    (0x87, len(content)),
                    (0x81, content.hits),
                    (0x82, content.misses),
                )
            ),
        )


def _face_status(face: Face) -> bytes:
    counters = face.counters
    return fields(
        (
            (control.FACE_ID, face.id),
            (control.URI, face.uri.encode()),
            (control.LOCAL_URI, b"syncline://"),
            (0x84, int(face.local)),
            (0x85, 1),  # on demand
            (0x86, 0),  # point to point
            (0x90, counters.in_interests),
            (0x91, counters.in_data),
            (0x97, counters.in_nacks),
            (0x92, counters.out_interests),
            (0x93, counters.out_data),
            (0x98, counters.out_nacks),
            (0x94, counters.in_bytes),
            (0x95, counters.out_bytes),
            (control.FLAGS, 0),
        )
    )


def _route_status(route: Route) -> bytes:
    return fields(
        (
            (control.FACE_ID, route.face),
            (control.ORIGIN, route.origin),
            (control.COST, route.cost),
            (control.FLAGS, route.flags),
        )
    )
