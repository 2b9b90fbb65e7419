"""The judge of ShrEx arrivals: notifications, headers and results, told apart by their topic. Implements `core.ports.Judge`.

Headers are looked up in the protocol state, where the service put them in the same transaction as their records; so a
verdict is the same whether it is made at once, after a wait, or after a restart.
"""

from __future__ import annotations

import hashlib
from typing import Final

from syncline.core.errors import DecodeError
from syncline.core.keys import peer_id
from syncline.core.ports import StateReader
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import ACCEPT, Verdict
from syncline.formats import pubsub
from syncline.protocols.shrex.rules.headers import Kept, Trusted, link
from syncline.protocols.shrex.rules.notifications import Known, judge_message, verify
from syncline.protocols.shrex.wire import header as headers
from syncline.protocols.shrex.wire import result as results
from syncline.protocols.shrex.wire.notification import Notification

PROTOCOL: Final = "shrex"
HEADERS_TOPIC: Final = "headers"  # of records that are headers from our source
RESULTS_TOPIC: Final = "results"  # of records that are results of requests
HEADERS_SPACE: Final = "shrex.headers"  # height → Kept
CHAIN_SPACE: Final = "shrex.chain"  # RANGE → first and highest height kept, ANCHOR → height and hash of the trusted one
PUBLISHED_SPACE: Final = "shrex.published"  # height → data hash
RANGE: Final = b"range"
ANCHOR: Final = b"anchor"


def height_key(height: int) -> bytes:
    return height.to_bytes(8, "big")


def range_of(state: StateReader) -> tuple[int, int]:
    """The first and the highest height whose headers are kept; zeros if there are none."""
    found = state.get_state(CHAIN_SPACE, RANGE) or bytes(16)
    return int.from_bytes(found[:8], "big"), int.from_bytes(found[8:], "big")


def kept_header(state: StateReader, height: int) -> Kept | None:
    found = state.get_state(HEADERS_SPACE, height_key(height)) if 0 <= height < 2**64 else None
    return None if found is None else Kept.from_bytes(found)


class ShrexJudge:
    """Judges by the bytes and by the headers kept."""

    def __init__(self, state: StateReader, *, trusted: Trusted | None, refused_roots: frozenset[bytes]) -> None:
        self._state, self._trusted, self._refused_roots = state, trusted, refused_roots

    def __call__(self, incoming: Incoming) -> Arrival:
        if incoming.topic == HEADERS_TOPIC:
            return self._header(incoming)
        if incoming.topic == RESULTS_TOPIC:
            return self._result(incoming)
        return self._notification(incoming)

    def _notification(self, incoming: Incoming) -> Arrival:
        signed, notification, verdict = judge_message(incoming.raw, incoming.topic)
        if verdict.accepted and notification is not None:
            verdict = self._verify(notification)
        arrival = Arrival(
            protocol=incoming.protocol,
            topic=incoming.topic,
            kind="notification",
            id=signed.id if signed is not None else hashlib.sha256(incoming.raw).digest(),
            direction=incoming.direction,
            key=notification.data_hash.hex()[:128] if notification is not None else "",
            publisher=_author(signed),
            peer=incoming.peer,
            seq=notification.height if notification is not None else None,
            received_at=incoming.received_at,
            raw=incoming.raw,
            verdict=verdict.outcome,
        )
        return arrival.judged(verdict)

    def _verify(self, notification: Notification) -> Verdict:
        kept = kept_header(self._state, notification.height)
        known = Known(None, *range_of(self._state)) if kept is None else Known(kept.data_hash, 1, notification.height)
        return verify(notification, known, self._refused_roots)

    def _header(self, incoming: Incoming) -> Arrival:
        try:
            header = headers.decode(incoming.raw)
        except DecodeError as error:
            return _unreadable(incoming, "header", error.verdict)
        _, head = range_of(self._state)
        previous = kept_header(self._state, header.height - 1)
        arrival = Arrival(
            protocol=incoming.protocol,
            topic=incoming.topic,
            kind="header",
            id=header.hash,
            direction=incoming.direction,
            key=header.chain_id,
            publisher=header.proposer_address.hex(),
            peer=incoming.peer,
            seq=header.height,
            published_at=header.microseconds,
            received_at=incoming.received_at,
            raw=incoming.raw,
            verdict=ACCEPT.outcome,
        )
        return arrival.judged(link(header, previous, self._trusted, is_first=not head))

    def _result(self, incoming: Incoming) -> Arrival:
        try:
            result = results.decode(incoming.raw)
        except DecodeError as error:
            return _unreadable(incoming, "peer_result", error.verdict)
        return Arrival(
            protocol=incoming.protocol,
            topic=incoming.topic,
            kind="peer_result",
            id=hashlib.sha256(incoming.raw + incoming.received_at.to_bytes(8, "big")).digest(),
            direction=incoming.direction,
            key=result.data_hash,
            peer=result.peer,
            seq=result.height,
            received_at=incoming.received_at,
            raw=incoming.raw,
            verdict=ACCEPT.outcome,
        )


def _author(signed: pubsub.Signed | None) -> str:
    public = pubsub.ed25519_key(signed.author) if signed is not None else None
    return peer_id(public) if public is not None else ""


def _unreadable(incoming: Incoming, kind: str, verdict: Verdict) -> Arrival:
    return Arrival(
        protocol=incoming.protocol,
        topic=incoming.topic,
        kind=kind,
        id=hashlib.sha256(incoming.raw).digest(),
        direction=incoming.direction,
        peer=incoming.peer,
        received_at=incoming.received_at,
        raw=incoming.raw,
        verdict=verdict.outcome,
    ).judged(verdict)
