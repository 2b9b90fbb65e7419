"""SDS exchange as a plug-in of a node. Light to import: commands that only list plug-ins do not load the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from syncline.core.errors import DecodeError, UsageError
from syncline.core.ports import Ground, Judge, Service
from syncline.core.record import Arrival, Incoming, Record
from syncline.protocols.sds.settings import SdsSettings


class SdsPlugin:
    """Implements `core.ports.ProtocolPlugin`."""

    name = "sds"
    settings: type[msgspec.Struct] = SdsSettings

    def judge(self, ground: Ground) -> Judge:
        from syncline.protocols.sds.rules import judge

        context = ground.settings.context()

        def judged(incoming: Incoming) -> Arrival:
            return judge(incoming, context)

        return judged

    def service(self, ground: Ground) -> Service:
        from syncline.protocols.sds.service import SdsService

        return SdsService(ground)

    def decoded(self, record: Record) -> Mapping[str, Any]:
        from syncline.protocols.sds.catalogue import standard
        from syncline.protocols.sds.wire import Held, Publish, decode

        try:
            message = decode(record.raw or b"")
            if not isinstance(message, Publish | Held):
                return {"problem": "not a record"}
            published = message if isinstance(message, Publish) else message.published
            fields = standard(published.schema).reader.decode(published.payload)
        except (DecodeError, UsageError) as error:
            return {"problem": str(error)}
        return {
            "message_id": published.message_id,
            "timestamp": published.timestamp,
            "ttl": published.ttl,
            "schema": published.schema,
            "publisher_id": published.publisher_id,
            "signature": published.signature.hex(),
            "data": fields,
        }


PLUGIN: Final = SdsPlugin()
