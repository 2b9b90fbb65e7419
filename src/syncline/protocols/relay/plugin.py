"""The relay as a plug-in of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.ports import Ground, Judge, Service
from syncline.core.record import Record
from syncline.protocols.relay.rules.messages import PROTOCOL, RelayJudge
from syncline.protocols.relay.settings import RelaySettings
from syncline.protocols.relay.wire.messages import decode


class Relay:
    """Implements `core.ports.ProtocolPlugin`."""

    name = PROTOCOL
    settings: type[msgspec.Struct] = RelaySettings

    def judge(self, ground: Ground) -> Judge:
        return RelayJudge()

    def service(self, ground: Ground) -> Service:
        from syncline.protocols.relay.service import RelayService

        return RelayService(ground)

    def decoded(self, record: Record) -> Mapping[str, Any]:
        try:
            message = decode(record.raw or b"")
        except DecodeError as error:
            return {"problem": str(error)}
        return {
            "version": message.version,
            "tag": message.tag,
            "prompt": message.prompt,
            "timestamp": message.timestamp,
            "ttl": message.ttl,
            "hash": message.hash.hex(),
            "message": message.message.decode(),
        }


plugin = Relay()
