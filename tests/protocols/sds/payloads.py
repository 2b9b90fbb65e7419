"""The vectors of SDS payloads, one size-prefixed buffer each."""

from __future__ import annotations

from typing import Any

import msgspec


class Payload(msgspec.Struct, frozen=True):
    """A payload an independent implementation made, and what it means."""

    name: str
    schema: str
    data: bytes
    fields: dict[str, Any]


def payloads_of(vectors: list[dict[str, Any]]) -> list[Payload]:
    found = []
    for vector in vectors:
        left = bytes.fromhex(vector["hex"])
        for record in vector["meaning"]["records"]:
            size = 4 + record["size_prefix"]
            fields = {name: _number(value) for name, value in record["fields"].items()}
            found.append(Payload(vector["name"], record["schema"], left[:size], fields))
            left = left[size:]
        assert left == b""
    return found


def _number(value: Any) -> Any:
    """JSON has no word for what is not finite; the vectors write it as text."""
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value
