"""libp2p pubsub on the wire: RPCs, signed messages and control messages, from and to bytes.

Pure: keys and numbers are arguments. A message keeps the exact bytes it came in, because signatures are checked over the
bytes as received (js-libp2p writes sequence numbers of any length) and forwarding must not change them. Routing, and
what a refused message costs its sender, are not decided here.
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.keys import PEER_ID_PREFIX, NodeKey, verify
from syncline.core.verdict import ACCEPT, Reason, Verdict, ignore, reject
from syncline.formats.framing import decode_varint, encode_varint
from syncline.formats.protobuf import bytes_field, expect_bytes, expect_int, expect_text, fields, varint_field

SIGNING_PREFIX: Final = b"libp2p-pubsub:"
SEQNO_MAX: Final = 8  # bytes
_FROM, _DATA, _SEQNO, _TOPIC, _SIGNATURE, _KEY = 0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x32  # tags of Message
_NAMES: Final = {_FROM: "from", _DATA: "data", _SEQNO: "seqno", _TOPIC: "topic", _SIGNATURE: "signature", _KEY: "key"}


class Signed(msgspec.Struct, frozen=True):
    """A pubsub `Message`: its fields, and its bytes as they came."""

    author: bytes  # binary PeerID
    data: bytes
    seqno: bytes
    topic: str
    signature: bytes
    key: bytes
    signed: bytes  # what the signature covers, without the prefix
    raw: bytes

    @property
    def id(self) -> bytes:
        """The default identity of a message: who wrote it, and its number there."""
        return self.author + self.seqno


class Subscribe(msgspec.Struct, frozen=True):
    """A peer joins or leaves a topic."""

    topic: str
    joins: bool


class Have(msgspec.Struct, frozen=True):
    """IHAVE: messages of a topic that can be asked for."""

    topic: str
    ids: tuple[bytes, ...]


class Prune(msgspec.Struct, frozen=True):
    """PRUNE: leave our mesh and do not come back for `backoff` seconds."""

    topic: str
    backoff: int = 0


class Control(msgspec.Struct, frozen=True):
    """GossipSub's control messages; IWANT and IDONTWANT as one list of ids each."""

    have: tuple[Have, ...] = ()
    want: tuple[bytes, ...] = ()
    graft: tuple[str, ...] = ()
    prune: tuple[Prune, ...] = ()
    unwanted: tuple[bytes, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.have or self.want or self.graft or self.prune or self.unwanted)


class Rpc(msgspec.Struct, frozen=True):
    """What one frame of a pubsub stream carries; messages are raw until somebody needs them."""

    subscriptions: tuple[Subscribe, ...] = ()
    messages: tuple[bytes, ...] = ()
    control: Control | None = None


def decode_rpc(data: bytes) -> Rpc:
    """Read an RPC. Unknown fields are skipped, as protobuf asks."""
    subscriptions: list[Subscribe] = []
    messages: list[bytes] = []
    control: Control | None = None
    for number, wire, value in fields(data):
        if number == 2:
            messages.append(expect_bytes(value, wire, "publish"))
        elif number == 1:
            subscriptions.append(_subscribe(expect_bytes(value, wire, "subscriptions")))
        elif number == 3:
            control = _control(expect_bytes(value, wire, "control"), control or Control())
    return Rpc(tuple(subscriptions), tuple(messages), control)


def encode_rpc(rpc: Rpc) -> bytes:
    """Write an RPC, fields in ascending order."""
    parts = [
        bytes_field(1, varint_field(1, int(each.joins)) + bytes_field(2, each.topic.encode()))
        for each in rpc.subscriptions
    ]
    parts += [message_field(raw) for raw in rpc.messages]
    if rpc.control is not None:
        parts.append(bytes_field(3, _encode_control(rpc.control)))
    return b"".join(parts)


def message_field(raw: bytes) -> bytes:
    """One message as it stands inside an RPC."""
    return b"\x12" + encode_varint(len(raw)) + raw


def decode_message(raw: bytes) -> Signed:
    """Read a message. One topic, each field at most once: repeats could hide something from the signature."""
    found: dict[int, bytes] = {}
    signed_end = position = 0
    covered: list[bytes] = []
    size = len(raw)
    try:
        while position < size:
            start = position
            tag = raw[position]
            if tag not in _NAMES:
                position = _skip(raw, position)
                continue
            length = raw[position + 1]
            position += 2
            if length >= 0x80:
                length, position = _length(raw, position - 1)
            value = raw[position : position + length]
            position += length
            if position > size:
                raise DecodeError("a field is cut short", about=_NAMES[tag])
            if tag in found:
                raise DecodeError("given twice", reason=Reason.INVALID_FIELD, about=_NAMES[tag])
            found[tag] = value
            if tag >= _SIGNATURE:  # the signature covers everything but itself and the key
                covered.append(raw[signed_end:start])
                signed_end = position
    except IndexError:
        raise DecodeError("the message is cut short") from None
    covered.append(raw[signed_end:])
    try:
        topic = found.get(_TOPIC, b"").decode()
    except UnicodeDecodeError:
        raise DecodeError("not UTF-8", about="topic") from None
    get = found.get
    return Signed(
        get(_FROM, b""),
        get(_DATA, b""),
        get(_SEQNO, b""),
        topic,
        get(_SIGNATURE, b""),
        get(_KEY, b""),
        b"".join(covered),
        raw,
    )


def compose(key: NodeKey, topic: str, data: bytes, seqno: int) -> bytes:
    """A signed message, in the field order every implementation writes. The key is inside the PeerID, so not repeated."""
    body = b"".join(
        (
            b"\x0a\x26",
            PEER_ID_PREFIX,
            key.public,
            bytes_field(2, data),
            b"\x1a\x08",
            seqno.to_bytes(8, "big"),
            bytes_field(4, topic.encode()),
        )
    )
    return body + b"\x2a\x40" + key.sign(SIGNING_PREFIX + body)


def judge(message: Signed) -> Verdict:
    """Whether the message is by its author, as StrictSign asks. Authors whose key is not inside their PeerID cannot be
    checked offline: ignored, since the neighbour that forwards them does nothing wrong."""
    if not 0 < len(message.seqno) <= SEQNO_MAX:
        return reject(Reason.INVALID_FIELD, "seqno must have one to eight bytes")
    if not message.topic:
        return reject(Reason.INVALID_TOPIC, "no topic")
    public = ed25519_key(message.author)
    if public is None:
        if is_peer_id(message.author):
            return ignore(Reason.INVALID_PUBLISHER, "only Ed25519 authors can be checked")
        return reject(Reason.INVALID_PUBLISHER, "from is not a PeerID")
    if message.key and message.key != message.author[2:]:
        return reject(Reason.INVALID_SIGNATURE, "the key is not the author's")
    if not verify(public, message.signature, SIGNING_PREFIX + message.signed):
        return reject(Reason.INVALID_SIGNATURE)
    return ACCEPT


def ed25519_key(author: bytes) -> bytes | None:
    """The key inside a binary PeerID, if it is an Ed25519 one."""
    if len(author) == 38 and author.startswith(PEER_ID_PREFIX):
        return author[6:]
    return None


def is_peer_id(author: bytes) -> bool:
    """Whether the bytes are a multihash of the two kinds PeerIDs have: the key itself, or its SHA-256."""
    if len(author) < 3:
        return False
    return (author[0] == 0x00 and author[1] == len(author) - 2) or (author[:2] == b"\x12\x20" and len(author) == 34)


def _skip(raw: bytes, position: int) -> int:
    """Where the unknown field at `position` ends."""
    found = decode_varint(raw, position)
    if found is None:
        raise DecodeError("a field is cut short")
    tag, position = found
    if tag >> 3 in range(1, 7):
        raise DecodeError(f"wire type {tag & 7} where bytes belong", about=f"field {tag >> 3}")
    match tag & 7:
        case 0:
            number = decode_varint(raw, position)
            if number is None:
                raise DecodeError("a field is cut short")
            return number[1]
        case 1:
            position += 8
        case 5:
            position += 4
        case 2:
            length, position = _length(raw, position)
            position += length
        case wire:
            raise DecodeError(f"wire type {wire} is not one of ours")
    if position > len(raw):
        raise DecodeError("a field is cut short")
    return position


def _length(raw: bytes, position: int) -> tuple[int, int]:
    found = decode_varint(raw, position)
    if found is None:
        raise DecodeError("a length is cut short")
    return found


def _subscribe(data: bytes) -> Subscribe:
    topic, joins = "", False
    for number, wire, value in fields(data):
        if number == 1:
            joins = expect_int(value, wire, "subscriptions.subscribe") != 0
        elif number == 2:
            topic = expect_text(value, wire, "subscriptions.topic")
    return Subscribe(topic, joins)


def _control(data: bytes, before: Control) -> Control:
    """The control message; a second one in an RPC adds to the first, as protobuf merges."""
    have, want, graft, prune, unwanted = (
        list(before.have),
        list(before.want),
        list(before.graft),
        list(before.prune),
        list(before.unwanted),
    )
    for number, wire, value in fields(data):
        if number == 1:
            have.append(_have(expect_bytes(value, wire, "control.ihave")))
        elif number == 2:
            want += _ids(expect_bytes(value, wire, "control.iwant"))
        elif number == 3:
            graft.append(_topic(expect_bytes(value, wire, "control.graft")))
        elif number == 4:
            prune.append(_prune(expect_bytes(value, wire, "control.prune")))
        elif number == 5:
            unwanted += _ids(expect_bytes(value, wire, "control.idontwant"))
    return Control(tuple(have), tuple(want), tuple(graft), tuple(prune), tuple(unwanted))


def _have(data: bytes) -> Have:
    topic, ids = "", []
    for number, wire, value in fields(data):
        if number == 1:
            topic = expect_text(value, wire, "control.ihave.topic")
        elif number == 2:
            ids.append(expect_bytes(value, wire, "control.ihave.ids"))
    return Have(topic, tuple(ids))


def _ids(data: bytes) -> list[bytes]:
    return [expect_bytes(value, wire, "control.ids") for number, wire, value in fields(data) if number == 1]


def _topic(data: bytes) -> str:
    topic = ""
    for number, wire, value in fields(data):
        if number == 1:
            topic = expect_text(value, wire, "control.topic")
    return topic


def _prune(data: bytes) -> Prune:
    topic, backoff = "", 0
    for number, wire, value in fields(data):
        if number == 1:
            topic = expect_text(value, wire, "control.prune.topic")
        elif number == 3:
            backoff = expect_int(value, wire, "control.prune.backoff")
    return Prune(topic, backoff)


def _encode_control(control: Control) -> bytes:
    parts = [
        bytes_field(1, bytes_field(1, have.topic.encode()) + b"".join(bytes_field(2, each) for each in have.ids))
        for have in control.have
    ]
    if control.want:
        parts.append(bytes_field(2, b"".join(bytes_field(1, each) for each in control.want)))
    parts += [bytes_field(3, bytes_field(1, topic.encode())) for topic in control.graft]
    for prune in control.prune:
        backoff = varint_field(3, prune.backoff) if prune.backoff else b""
        parts.append(bytes_field(4, bytes_field(1, prune.topic.encode()) + backoff))
    if control.unwanted:
        parts.append(bytes_field(5, b"".join(bytes_field(1, each) for each in control.unwanted)))
    return b"".join(parts)
