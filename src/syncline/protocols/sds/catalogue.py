"""The 29 Space Data Standards this package knows: their schemas, readers and writers, by name.

The schema files are in `schemas/`, made by tools/sds_schemas.py. Parsed when first asked for, once per process.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from syncline.core.errors import UsageError
from syncline.formats.flatbuffers import Reader, Schema, Writer, fbs
from syncline.formats.flatbuffers.linking import link

NAMES: Final = (
    "BOV", "CAT", "CDM", "CRM", "CSM", "CTR", "EME", "EOO", "EOP", "EPM", "HYP", "IDM", "LCC", "LDM", "MET", "MPE",
    "OEM", "OMM", "OSM", "PLD", "PNM", "PRG", "REC", "RFM", "ROC", "SCM", "SIT", "TDM", "TIM",
)  # fmt: skip
_KNOWN: Final = frozenset(NAMES)


class Standard(msgspec.Struct, frozen=True):
    """A schema with what reads and writes its payloads."""

    schema: Schema
    reader: Reader
    writer: Writer

    @property
    def capability(self) -> str:
        """What a hello says of it. The identifier `$OMM` carries no version; the field list does."""
        return f"schema:{self.schema.name}:{self.schema.fingerprint[:16]}"


def plain_name(text: str) -> str:
    """`OMM` for `OMM` and `OMM.fbs`, which peers use alike."""
    return text.removesuffix(".fbs")


def is_known(name: str) -> bool:
    return plain_name(name) in _KNOWN


def standard(name: str) -> Standard:
    """The standard of this name."""
    plain = plain_name(name)
    if plain not in _KNOWN:
        raise UsageError(f"there is no schema {name[:80]!r}", hint=f"schemas are {', '.join(NAMES)}")
    return _standard(plain)


@cache
def _standard(name: str) -> Standard:
    folder = files("syncline.protocols.sds") / "schemas"
    documents = fbs.with_includes(f"{name}.fbs", lambda file: (folder / file).read_text())
    schema = link(documents, name)
    return Standard(schema, Reader(schema), Writer(schema))
