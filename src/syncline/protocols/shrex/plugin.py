"""ShrEx/Sub as a plug-in of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.ports import Ground, Judge, Service
from syncline.core.record import Record
from syncline.formats import pubsub
from syncline.protocols.shrex.rules.judge import PROTOCOL, ShrexJudge
from syncline.protocols.shrex.settings import ShrexSettings
from syncline.protocols.shrex.wire import header as headers
from syncline.protocols.shrex.wire import notification as notifications
from syncline.protocols.shrex.wire import result as results

if TYPE_CHECKING:
    from syncline.protocols.shrex.service.sources import HeaderSource


class Shrex:
    """Implements `core.ports.ProtocolPlugin`. A header source given here is used instead of the one of the settings."""

    name = PROTOCOL
    settings: type[msgspec.Struct] = ShrexSettings

    def __init__(self, source: HeaderSource | None = None) -> None:
        self._source = source

    def judge(self, ground: Ground) -> Judge:
        settings = ground.settings
        assert isinstance(settings, ShrexSettings)
        return ShrexJudge(ground.state, trusted=settings.trusted, refused_roots=settings.roots)

    def service(self, ground: Ground) -> Service:
        from syncline.protocols.shrex.service import ShrexService

        return ShrexService(ground, self._source)

    def decoded(self, record: Record) -> Mapping[str, Any]:
        raw = record.raw or b""
        try:
            if record.kind == "header":
                header = headers.decode(raw)
                fields = msgspec.json.decode(headers.encode(header))
                return {"hash": header.hash.hex(), **fields}
            if record.kind == "peer_result":
                found: Mapping[str, Any] = msgspec.to_builtins(results.decode(raw))
                return found
            return _notification(raw)
        except DecodeError as error:
            return {"problem": str(error)}


def _notification(raw: bytes) -> Mapping[str, Any]:
    signed = pubsub.decode_message(raw)
    notification = notifications.decode(signed.data)
    return {
        "topic": signed.topic,
        "author": signed.author.hex(),
        "seqno": int.from_bytes(signed.seqno, "big"),
        "height": str(notification.height),
        "data_hash": notification.data_hash.hex(),
    }


plugin = Shrex()
