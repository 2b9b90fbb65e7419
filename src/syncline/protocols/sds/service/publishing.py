"""Publishing: fields to a payload, a payload to a signed message, kept here before the network hears of it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from syncline.core.errors import RefusedError, UsageError
from syncline.core.ports import Ground, Receipt, StateChange
from syncline.core.record import Direction, Incoming
from syncline.core.verdict import Reason
from syncline.networks.host import Host
from syncline.protocols.sds import omm
from syncline.protocols.sds.catalogue import plain_name, standard
from syncline.protocols.sds.rules import PROTOCOL, signed_publish, topic_of
from syncline.protocols.sds.service.taken import News
from syncline.protocols.sds.session import Quotas
from syncline.protocols.sds.wire import encode


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /api/v1/publish/sds`: a schema with its fields, or with a payload made elsewhere (base64)."""

    schema: str
    data: Mapping[str, Any] | None = None
    payload: str | None = None
    ttl: int = 0
    message_id: str = ""

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Request:
        try:
            return msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise UsageError(str(error), hint="see docs/protocols/sds.md") from None

    def encoded(self) -> bytes:
        """The payload it asks to publish."""
        if (self.data is None) == (self.payload is None):
            raise UsageError("a publish has either data or payload", about="data")
        if self.data is not None:
            return encoded(self.schema, self.data)
        try:
            return base64.b64decode(self.payload or "", validate=True)
        except binascii.Error:
            raise UsageError("a payload is base64", about="payload") from None


def encoded(schema: str, data: Mapping[str, Any]) -> bytes:
    """A payload from the fields of a schema; of OMM also from CCSDS keywords."""
    return standard(schema).writer.encode(omm.from_keywords(data) if plain_name(schema) == "OMM" else data)


class Publisher:
    """Publishes as the node. What its own rules would refuse from others it does not send either."""

    def __init__(self, ground: Ground, news: News, quotas: Quotas, network: str) -> None:
        self._ground = ground
        self._news = news
        self._quotas = quotas
        self._network = network
        self.published = 0

    async def publish(
        self, host: Host, schema: str, payload: bytes, *, ttl: int, message_id: str, state: Sequence[StateChange] = ()
    ) -> tuple[Receipt, int]:
        """Sign, keep, then send; what was kept, and to how many neighbours it went."""
        key, now = self._ground.key, self._ground.clock.now()
        self._check(ttl)
        message = signed_publish(
            key, schema=schema, payload=payload, message_id=message_id or uuid4().hex, now=now, ttl=ttl
        )
        topic, raw = topic_of(self._network, schema), encode(message)
        composed = host.gossip.compose(topic, raw)
        own = Incoming(
            protocol=PROTOCOL, topic=topic, raw=raw, peer=key.peer_id, received_at=now, direction=Direction.OUT
        )
        [receipt] = await self._ground.sink.receive([own], state)
        if not receipt.accepted:
            reason = receipt.arrival.reason or Reason.MALFORMED
            raise RefusedError(f"our own rules refuse this message: {reason.doc}", reason=reason, about=schema)
        self._news.tell([receipt])
        sent = await host.gossip.send(composed)
        self.published += 1
        return receipt, len(sent.sent)

    def _check(self, ttl: int) -> None:
        if not 0 <= ttl < 2**32:
            raise UsageError("a ttl is 0 to 4294967295 seconds", about="ttl")
        wait = self._quotas.publish(self._ground.key.peer_id, self._ground.clock.monotonic())
        if wait:
            raise RefusedError(
                "more publishes than the network takes from one publisher",
                reason=Reason.RATE_LIMITED,
                hint=f"try again in {wait} s, or raise sds.publish_rate on every node",
            )
