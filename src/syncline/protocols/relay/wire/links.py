"""What travels on a link between two servers: messages with their topic in binary, control in JSON text.

    binary    u16 topic length | topic | network message
    text      {"type": "challenge" | "hello" | "interest" | "resync" | "ack" | "ping" | "pong", …}

Who may open a link, and what interest leads to, is decided by the session.
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncline.core.errors import DecodeError

LINK_VERSION: Final = 1
PROOF_DOMAIN: Final = b"syncline relay link/1\0"


class Challenge(msgspec.Struct, frozen=True, tag="challenge", tag_field="type"):
    """The first word of either side: who it claims to be, and a number nobody could foresee."""

    version: int
    key: str  # PeerID
    nonce: str  # 32 bytes in hex
    former: str = ""  # PeerID of a key that this one replaces


class Hello(msgspec.Struct, frozen=True, tag="hello", tag_field="type"):
    """The proof, over both numbers and both keys; with `former`, also by the key that the new one replaces."""

    server: str
    version: int
    key: str
    proof: str
    epoch: int  # grows with every start of the server
    former_proof: str = ""


class Interest(msgspec.Struct, frozen=True, tag="interest", tag_field="type"):
    """What a server wants and whom it is linked with, told by itself or by a server between.

    `base` is the number of the state these changes apply to; None replaces everything. A large change comes in parts.
    """

    server: str
    epoch: int
    seq: int
    base: int | None
    links: list[str]
    add: list[str] = []
    drop: list[str] = []
    part: int = 0
    parts: int = 1


class Resync(msgspec.Struct, frozen=True, tag="resync", tag_field="type"):
    """A change did not fit what we know of this server: tell us everything."""

    server: str


class Ack(msgspec.Struct, frozen=True, tag="ack", tag_field="type"):
    """How many more messages of this link, in the order they came, are on our disk."""

    count: int


class Ping(msgspec.Struct, frozen=True, tag="ping", tag_field="type"):
    number: int


class Pong(msgspec.Struct, frozen=True, tag="pong", tag_field="type"):
    number: int


Control = Challenge | Hello | Interest | Resync | Ack | Ping | Pong
_decoder: Final[msgspec.json.Decoder[Control]] = msgspec.json.Decoder(Control)
encode_control: Final = msgspec.json.Encoder().encode


def decode_control(text: bytes | str) -> Control:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"not link control: {error}", about="control") from None


def encode_parcel(topic: str, message: bytes) -> bytes:
    name = topic.encode()
    return len(name).to_bytes(2, "big") + name + message


def decode_parcel(data: bytes) -> tuple[str, bytes]:
    """Topic and message. The message is not looked into."""
    length = int.from_bytes(data[:2], "big")
    if len(data) < 2 + length:
        raise DecodeError("shorter than its topic", about="topic")
    try:
        return data[2 : 2 + length].decode(), data[2 + length :]
    except UnicodeDecodeError:
        raise DecodeError("the topic is not UTF-8", about="topic") from None


def proof_bytes(role: str, dialer_nonce: bytes, listener_nonce: bytes, signer: bytes, other: bytes) -> bytes:
    """What a side signs: its role and both names make a proof useless to anybody else, the numbers at any other time."""
    return PROOF_DOMAIN + role.encode() + b"\0" + dialer_nonce + listener_nonce + signer + other
