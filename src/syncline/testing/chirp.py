"""Chirp: the smallest protocol that uses every part of the node. Signed one-line texts on an in-memory network.

It proves the path receive, judge, append, deliver in tests, and shows plug-in authors what a protocol consists of. It is
not meant for use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from syncline.core.errors import ClosedError, DecodeError, RefusedError, UsageError
from syncline.core.keys import NodeKey, public_of_peer_id, verify
from syncline.core.limits import SECOND
from syncline.core.ports import Ground, Judge, Service, StateChange, WebMount
from syncline.core.record import Arrival, Direction, Incoming, Record
from syncline.core.verdict import ACCEPT, Reason, Verdict, ignore, reject
from syncline.networks.memory import MemoryNetwork, MemoryPeer

TEXT_MAX: Final = 280
TTL: Final = 3_600 * SECOND


class ChirpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The test protocol."""

    topic: Annotated[str, msgspec.Meta(description="topic to chirp on")] = "yard"


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes over the wire, as JSON."""

    by: str
    number: int
    at: int
    text: str
    signature: str = ""


def encode(key: NodeKey, number: int, at: int, text: str) -> bytes:
    """A signed message."""
    message = Message(by=key.peer_id, number=number, at=at, text=text)
    return msgspec.json.encode(msgspec.structs.replace(message, signature=key.sign(signed_bytes(message)).hex()))


def signed_bytes(message: Message) -> bytes:
    return msgspec.json.encode([message.by, message.number, message.at, message.text])


def judge_message(raw: bytes, now: int) -> tuple[Message | None, Verdict]:
    """The pure rules: what the bytes say, and whether they are good."""
    try:
        message = msgspec.json.decode(raw, type=Message)
        public = public_of_peer_id(message.by)
        signature = bytes.fromhex(message.signature)
    except DecodeError as error:
        return None, error.verdict
    except (msgspec.DecodeError, ValueError) as error:
        return None, reject(Reason.MALFORMED, str(error))
    if not 0 <= message.number < 2**64 or len(message.text) > TEXT_MAX:
        return message, reject(Reason.INVALID_FIELD, "number or text out of range")
    if not verify(public, signature, signed_bytes(message)):
        return message, reject(Reason.INVALID_SIGNATURE)
    if message.at + TTL <= now:
        return message, ignore(Reason.EXPIRED)
    return message, ACCEPT


class ChirpJudge:
    """Implements `core.ports.Judge`."""

    def __call__(self, incoming: Incoming) -> Arrival:
        message, verdict = judge_message(incoming.raw, incoming.received_at)
        arrival = Arrival(
            protocol=incoming.protocol,
            topic=incoming.topic,
            kind="chirp",
            id=f"{message.by}/{message.number}".encode() if message else incoming.raw[:64],
            direction=incoming.direction,
            key=message.by if message else "",
            publisher=message.by if message else "",
            peer=incoming.peer,
            seq=message.number if message and 0 <= message.number < 2**64 else None,
            published_at=message.at if message and 0 <= message.at < 2**62 else None,
            expires_at=message.at + TTL if message and verdict.accepted else None,
            received_at=incoming.received_at,
            raw=incoming.raw,
            verdict=verdict.outcome,
        )
        return arrival.judged(verdict)


class ChirpService:
    """Implements `core.ports.Service` on a memory network."""

    def __init__(self, ground: Ground, network: MemoryNetwork) -> None:
        self._ground = ground
        self._network = network
        self._peer: MemoryPeer | None = None
        self._heard: dict[str, int] = {}
        self._blamed = 0

    async def run(self, *, started: Callable[[], None]) -> None:
        self._peer = self._network.join(self._ground.key.peer_id)
        started()
        try:
            await self._listen(self._peer)
        finally:
            self._peer.close()

    async def _listen(self, peer: MemoryPeer) -> None:
        async for packet in peer.packets():
            message = Incoming(
                protocol="chirp",
                topic=packet.topic,
                raw=packet.payload,
                peer=packet.sender,
                received_at=self._ground.clock.now(),
            )
            [receipt] = await self._ground.sink.receive([message])
            self._heard[packet.sender] = self._heard.get(packet.sender, 0) + 1
            self._blamed += Verdict(receipt.arrival.verdict, receipt.arrival.reason).blames_sender

    async def publish(self, request: Mapping[str, Any], state: Sequence[StateChange] = ()) -> Mapping[str, Any]:
        if self._peer is None:
            raise ClosedError("not on the network yet")
        text = request.get("text")
        if not isinstance(text, str):
            raise UsageError("publishing a chirp takes a text", about="text")
        number = int.from_bytes(self._ground.state.get_state("chirp.number", b"next") or b"\0", "big")
        advance = StateChange(
            space="chirp.number",
            key=b"next",
            value=(number + 1).to_bytes(8, "big"),
            expect=number.to_bytes(8, "big") if number else None,
        )
        now, topic = self._ground.clock.now(), self._ground.settings.topic
        raw = encode(self._ground.key, number, now, text)
        sent = Incoming(
            protocol="chirp",
            topic=topic,
            raw=raw,
            peer=self._ground.key.peer_id,
            received_at=now,
            direction=Direction.OUT,
        )
        [receipt] = await self._ground.sink.receive([sent], [advance, *state])
        if not receipt.accepted:
            assert receipt.arrival.reason is not None
            raise RefusedError("our own rules refuse this chirp", reason=receipt.arrival.reason)
        await self._peer.broadcast(topic, raw)  # only after the commit
        return {"number": number, "record": str(receipt.record.name) if receipt.record else None}

    def peers(self) -> list[Mapping[str, Any]]:
        return [{"peer": peer, "messages": count} for peer, count in sorted(self._heard.items())]

    def statistics(self) -> Mapping[str, int | float]:
        return {"heard": sum(self._heard.values()), "blamed": self._blamed}

    def web(self) -> WebMount | None:
        return None


class Chirp:
    """The plug-in: implements `core.ports.ProtocolPlugin`."""

    name = "chirp"
    settings: type[msgspec.Struct] = ChirpSettings

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network

    def judge(self, ground: Ground) -> Judge:
        return ChirpJudge()

    def service(self, ground: Ground) -> Service:
        return ChirpService(ground, self._network)

    def decoded(self, record: Record) -> Mapping[str, Any]:
        message, verdict = judge_message(record.raw or b"", record.received_at)
        return {"message": message, "verdict": verdict.outcome, "detail": verdict.detail}
