"""SVS-PS as a plug-in of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from syncline.core.errors import DecodeError, UsageError
from syncline.core.ports import Ground, Judge, Service
from syncline.core.record import Record
from syncline.formats.ndn.names import parse, text
from syncline.formats.ndn.packets import decode_data
from syncline.protocols.svs.rules.judge import PROTOCOL, examine
from syncline.protocols.svs.rules.trust import UNCHECKED
from syncline.protocols.svs.service.journal import SvsJudge
from syncline.protocols.svs.settings import SvsSettings
from syncline.protocols.svs.wire.publication import Outer


class Svs:
    """Implements `core.ports.ProtocolPlugin`."""

    name = PROTOCOL
    settings: type[msgspec.Struct] = SvsSettings

    def judge(self, ground: Ground) -> Judge:
        return SvsJudge(ground.settings)

    def service(self, ground: Ground) -> Service:
        from syncline.protocols.svs.service.node import SvsService

        return SvsService(ground)

    def decoded(self, record: Record) -> Mapping[str, Any]:
        raw = record.raw or b""
        try:
            data, group = decode_data(raw), parse(record.topic)
        except (DecodeError, UsageError) as error:
            return {"problem": str(error)}
        found: dict[str, Any] = {
            "name": text(data.name),
            "content_type": data.content_type,
            "freshness_ms": data.freshness,
            "signature_type": data.signature.kind,
            "key": None if data.signature.key_name is None else text(data.signature.key_name),
        }
        judged = examine(raw, group, UNCHECKED)
        packet = judged.packet
        if packet is None:
            return {**found, "problem": judged.verdict.detail}
        if isinstance(packet, Outer):
            return {
                **found,
                "segment": packet.segment,
                "final_segment": packet.final,
                "application_name": text(packet.name),
                "content": packet.content.decode(errors="backslashreplace"),
            }
        entries = [
            {"seq": str(entry.seq), "name": text(entry.name), "published_at": entry.timestamp}
            for entry in packet.entries
        ]
        return {**found, "entries": entries}


plugin = Svs()
