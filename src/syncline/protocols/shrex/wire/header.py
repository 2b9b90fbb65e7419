"""Block headers of CometBFT, as JSON, and their hash: the Merkle root of the fourteen fields.

A source's document may be a header or what a Celestia node answers (`header.GetByHeight`), which holds one beside the
commit; only the header is kept. Whether a header belongs to our chain is not decided here.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.limits import SHREX_HEADER_BYTES
from syncline.core.verdict import Reason
from syncline.formats.protobuf import bytes_field, varint_field

HEIGHT_MAX: Final = 2**63 - 1
NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_TIME: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,20}", re.ASCII)
HASHES: Final = (
    "last_commit_hash",
    "data_hash",
    "validators_hash",
    "next_validators_hash",
    "consensus_hash",
    "app_hash",
    "last_results_hash",
    "evidence_hash",
    "proposer_address",
)


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """A block header, field by field as it is hashed."""

    block_version: int
    app_version: int
    chain_id: str
    height: int
    time: str  # RFC 3339 in UTC, with up to nine digits of a second, never a zero at their end
    last_block_hash: bytes  # the hash of the header before this one; empty in the first block
    last_parts_total: int
    last_parts_hash: bytes
    last_commit_hash: bytes
    data_hash: bytes
    validators_hash: bytes
    next_validators_hash: bytes
    consensus_hash: bytes
    app_hash: bytes
    last_results_hash: bytes
    evidence_hash: bytes
    proposer_address: bytes

    @property
    def hash(self) -> bytes:
        """The block hash, recomputed."""
        seconds, nanoseconds = _moment(self.time)
        time = _number(1, seconds) + _number(2, nanoseconds)
        parts = _number(1, self.last_parts_total) + _bytes(2, self.last_parts_hash)
        last_block = _bytes(1, self.last_block_hash) + bytes_field(2, parts)
        return merkle_root(
            [
                _number(1, self.block_version) + _number(2, self.app_version),
                _bytes(1, self.chain_id.encode()),
                _number(1, self.height),
                time,
                last_block,
                *(_bytes(1, getattr(self, name)) for name in HASHES),
            ]
        )

    @property
    def microseconds(self) -> int:
        """Its time, as records have it."""
        seconds, nanoseconds = _moment(self.time)
        return seconds * 1_000_000 + nanoseconds // 1_000


def decode(data: bytes) -> Header:
    """Read a document that is or holds a header."""
    if len(data) > SHREX_HEADER_BYTES:
        raise DecodeError(f"a header of {len(data)} bytes", reason=Reason.OVERSIZE)
    try:
        document = msgspec.json.decode(data)
    except NOT_JSON as error:
        raise DecodeError(f"not JSON: {error}") from None
    return from_document(document)


def from_document(document: Any) -> Header:
    """The header in a decoded JSON document. A commit beside it must be for this header."""
    if not isinstance(document, dict):
        raise DecodeError("a header is a JSON object")
    if not isinstance(inner := document.get("header"), dict):
        return _header(document)
    header = _header(inner)
    claimed = _claimed_hash(document.get("commit"))
    if claimed is not None and claimed != header.hash:
        raise DecodeError("the commit is for another header", reason=Reason.WRONG_HASH, about="commit.block_id.hash")
    return header


def _claimed_hash(commit: Any) -> bytes | None:
    block = commit.get("block_id") if isinstance(commit, dict) else None
    return _hex(block, "hash", "commit.block_id.") if isinstance(block, dict) else None


def encode(header: Header) -> bytes:
    """The header as JSON, always alike for the same header."""
    document = {
        "version": {"block": str(header.block_version), "app": str(header.app_version)},
        "chain_id": header.chain_id,
        "height": str(header.height),
        "time": header.time,
        "last_block_id": {
            "hash": header.last_block_hash.hex().upper(),
            "parts": {"total": header.last_parts_total, "hash": header.last_parts_hash.hex().upper()},
        },
        **{name: getattr(header, name).hex().upper() for name in HASHES},
    }
    return msgspec.json.encode(document)


def merkle_root(leaves: list[bytes]) -> bytes:
    """The root of a Merkle tree as RFC 6962 builds it, with SHA-256."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + merkle_root(leaves[:split]) + merkle_root(leaves[split:])).digest()


def _header(document: dict[str, Any]) -> Header:
    version = _object(document, "version")
    last = _object_or_none(document, "last_block_id")  # the first block has none
    parts = _object_or_none(last, "part_set_header" if "part_set_header" in last else "parts", "last_block_id.")
    header = Header(
        block_version=_integer(version, "block", 2**64 - 1, "version."),
        app_version=_integer(version, "app", 2**64 - 1, "version.") if version.get("app") not in (None, "") else 0,
        chain_id=_text(document, "chain_id"),
        height=_integer(document, "height", HEIGHT_MAX),
        time=_canonical(_text(document, "time")),
        last_block_hash=_hex(last, "hash", "last_block_id."),
        last_parts_total=_integer(parts, "total", 2**32 - 1, "last_block_id.parts."),
        last_parts_hash=_hex(parts, "hash", "last_block_id.parts."),
        **{name: _hex(document, name) for name in HASHES},
    )
    if header.height < 1 or len(header.data_hash) != 32 or not header.validators_hash:
        raise DecodeError("a header needs a height, a data hash and a validators' hash", reason=Reason.INVALID_FIELD)
    return header


def _object(document: dict[str, Any], name: str, within: str = "") -> dict[str, Any]:
    value = document.get(name)
    if not isinstance(value, dict):
        raise DecodeError("an object belongs here", about=within + name)
    return value


def _object_or_none(document: dict[str, Any], name: str, within: str = "") -> dict[str, Any]:
    """An object whose absence means that every field of it is zero."""
    return {} if document.get(name) is None else _object(document, name, within)


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or len(value) > 256:
        raise DecodeError("a short text belongs here", about=name)
    return value


def _integer(document: dict[str, Any], name: str, most: int, within: str = "") -> int:
    """A number, which Go writes as text when it has 64 bits."""
    value = document.get(name, 0)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise DecodeError("a number belongs here", about=within + name)
    return value


def _hex(document: dict[str, Any], name: str, within: str = "") -> bytes:
    value = document.get(name) or ""
    if not isinstance(value, str) or len(value) > 128 or not re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", value):
        raise DecodeError("hex belongs here", about=within + name)
    return bytes.fromhex(value)


def _moment(text: str) -> tuple[int, int]:
    """Seconds since 1970 and nanoseconds."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise DecodeError("a UTC time belongs here", about="time")
    try:
        moment = datetime(*map(int, match.groups()[:6]), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError:
        raise DecodeError("there is no such time", about="time") from None
    if moment.year < 1970:
        raise DecodeError("before 1970", about="time")  # no chain is older, and records count from there
    return int(moment.timestamp()), int((match[7] or "").ljust(9, "0"))


def _canonical(text: str) -> str:
    """The one spelling of a time that Go writes, so that a header is the same bytes whoever gives it."""
    _moment(text)
    return text.rstrip("Z0").rstrip(".") + "Z" if "." in text else text


def _number(number: int, value: int) -> bytes:
    return varint_field(number, value) if value else b""


def _bytes(number: int, content: bytes) -> bytes:
    return bytes_field(number, content) if content else b""
