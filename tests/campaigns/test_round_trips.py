"""What one side writes the other reads, and independent encoders write the same bytes: ten thousand examples a format.

The independent side: `google.protobuf` for pubsub and ShrEx, python-ndn for NDN, `struct` for the relay, `json` and
`jsonpatch` for SDSP. For SDS our writer, row reader and columns are held against each other; the runtime of `flatbuffers` is
in tests/formats/flatbuffers. Vectors made by real peers are checked in tests/protocols.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import jsonpatch
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from ndn import encoding as python_ndn

from syncline.core.keys import NodeKey
from syncline.formats import pubsub
from syncline.formats.ndn import names
from syncline.formats.ndn.packets import decode_data, decode_interest, encode_data, encode_interest
from syncline.formats.ndn.signing import Digest
from syncline.protocols.relay.wire import messages as relay
from syncline.protocols.sds import wire as sds
from syncline.protocols.sds.catalogue import standard
from syncline.protocols.sdsp import wire as sdsp
from syncline.protocols.sdsp.deltas import Budget, Deltas
from syncline.protocols.sdsp.deltas.differ import difference
from syncline.protocols.shrex.wire import notification as shrex
from syncline.protocols.svs.wire import vector as svs_vector
from syncline.testing.flatbuffers import random_value
from tests.campaigns.conftest import LONG, Figures
from tests.formats.flatbuffers.flat import check as same_as_columns

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3_600 if LONG else 300)]
EXAMPLES = 100_000 if LONG else 10_000
TEXTS = ("", "a", "é", "衛星", "🛰️", "x" * 200, "a\tb", "\u2028", '"', "\\")


def text(chance: random.Random) -> str:
    return "".join(chance.choice(TEXTS) for _ in range(chance.randrange(4)))


def value(chance: random.Random, depth: int = 3) -> Any:
    kind = chance.randrange(8 if depth else 5)
    if kind == 0:
        return chance.choice((None, True, False))
    if kind == 1:
        return chance.choice((0, -1, 2**53, -(2**62), chance.randrange(10**6)))
    if kind == 2:
        return chance.choice((0.5, -1e300, 1e-7, 3.25))
    if kind in (3, 4):
        return text(chance)
    if kind == 5:
        return [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {text(chance): value(chance, depth - 1) for _ in range(chance.randrange(4))}


def same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def relay_message(chance: random.Random) -> None:
    """Against `struct`, written and read."""
    tag = chance.choice((0, 1, 255, 256, 1_108, 2**32 - 1))
    made = relay.NetworkMessage(
        tag=tag, prompt=chance.random() < 0.5, timestamp=chance.randrange(2**63), ttl=chance.randrange(2**63),
        message=text(chance).encode(),
    )  # fmt: skip
    raw = relay.encode(made)
    layout = ">3sBB?QQQ" if tag <= 255 else ">3sBI?QQQ"
    header = struct.pack(
        layout, b"irn", 1 if tag <= 255 else 2, tag, made.prompt, made.timestamp, made.ttl, len(made.message)
    )
    assert raw == header + made.message
    assert relay.decode(raw) == made


def sdsp_frame(chance: random.Random) -> None:
    """Against Python's `json`, both ways."""
    uid, serial = text(chance).replace("\t", "") or "o", chance.randrange(1, 2**62)
    roll = chance.randrange(3)
    if roll == 0:
        frame = sdsp.full_frame(uid, serial, value(chance))
    elif roll == 1:
        frame = sdsp.delta_frame(uid, serial, 1, "jp", [value(chance)])
    else:
        frame = sdsp.freeze_frame(uid, serial, 1)
    raw = sdsp.encode(frame)
    again = json.loads(raw)
    assert (again["uid"], again["serial"]) == (uid, serial)
    assert sdsp.decode(raw) == frame
    assert sdsp.decode(json.dumps(again, indent=1).encode()) == frame


JP = Deltas.installed()["jp"]


def sdsp_delta(chance: random.Random) -> None:
    """Our patches applied by `jsonpatch`, and the other way round, end in the same object."""
    old, new = {"a": value(chance), "b": value(chance)}, {"a": value(chance), "c": value(chance)}
    ours = difference(old, new)
    assert same(jsonpatch.apply_patch(old, ours), new)
    theirs = jsonpatch.make_patch(old, new).patch
    assert same(JP.apply(old, theirs, Budget()), new)


def sds_message(chance: random.Random) -> None:
    message = sds.Publish(
        message_id=text(chance), timestamp=text(chance), ttl=chance.randrange(2**31), schema=text(chance),
        payload=chance.randbytes(chance.randrange(100)), publisher_id=text(chance), signature=chance.randbytes(64),
    )  # fmt: skip
    assert sds.decode(sds.encode(message)) == message


OMM = standard("OMM")


def sds_payload(chance: random.Random) -> None:
    made = OMM.writer.encode(random_value(chance, OMM.schema, density=0.3))
    read = OMM.reader.decode(made)
    assert OMM.writer.encode(read) == made
    assert same_as_columns(OMM.schema, [made]).faults[0] == 0  # checks every column against the reader


KEYS = [NodeKey(bytes([number]) * 32) for number in range(1, 5)]


def proto(name: str, fields: list[tuple[str, int, int]]) -> Callable[..., Any]:
    """A message class of Google's runtime."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="campaign", syntax="proto2")
    message = file.message_type.add(name=name)
    for field, number, kind in fields:
        message.field.add(name=field, number=number, type=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found: Callable[..., Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"campaign.{name}"))
    return found


BYTES, STRING, UINT64 = 12, 9, 4
NOTIFICATION = proto("Notification", [("height", 1, UINT64), ("data_hash", 2, BYTES)])
MESSAGE = proto(
    "Message",
    [("author", 1, BYTES), ("data", 2, BYTES), ("seqno", 3, BYTES), ("topic", 4, STRING), ("signature", 5, BYTES)],
)


def shrex_notification(chance: random.Random) -> None:
    made = shrex.Notification(chance.choice((1, 127, 128, 2**32, 2**64 - 1)), chance.randbytes(32))
    raw = shrex.encode(made)
    theirs = NOTIFICATION(height=made.height, data_hash=made.data_hash)
    assert raw == theirs.SerializeToString()
    assert shrex.decode(theirs.SerializeToString()) == made


def pubsub_message(chance: random.Random) -> None:
    key, topic, data = chance.choice(KEYS), text(chance) or "t", chance.randbytes(chance.randrange(200))
    raw = pubsub.compose(key, topic, data, chance.randrange(2**64))
    theirs = MESSAGE()
    theirs.ParseFromString(raw)
    assert (theirs.topic, theirs.data) == (topic, data)
    assert theirs.SerializeToString() == raw
    assert pubsub.judge(pubsub.decode_message(raw)).accepted


def ndn_packets(chance: random.Random) -> None:
    """Data and Interests, read by python-ndn."""
    name = names.parse("/" + "/".join(f"c{chance.randrange(1_000)}" for _ in range(1 + chance.randrange(5))))
    content = chance.randbytes(chance.randrange(300))
    data = encode_data(name, content, Digest(), freshness=chance.randrange(1, 10_000))
    found, _, read, _ = python_ndn.parse_data(data)
    assert python_ndn.Name.to_str(found) == names.text(name)
    assert bytes(read or b"") == content
    assert decode_data(data).content == content
    interest = encode_interest(name, nonce=chance.randbytes(4), lifetime=chance.randrange(1, 10_000))
    wanted, parameters, _, _ = python_ndn.parse_interest(interest)
    assert python_ndn.Name.to_str(wanted) == names.text(name)
    assert decode_interest(interest).lifetime == parameters.lifetime


def svs_state_vector(chance: random.Random) -> None:
    made = {
        names.parse(f"/n/{number}"): chance.choice((1, 255, 256, 2**32, 2**63 - 1))
        for number in range(chance.randrange(1, 20))
    }
    raw = svs_vector.encode_vector(made)
    read, end = svs_vector.decode_vector(raw)
    assert (read, end) == (made, len(raw))
    assert svs_vector.encode_vector(read) == raw


FORMATS: dict[str, Callable[[random.Random], None]] = {
    each.__name__: each
    for each in (
        ndn_packets, pubsub_message, relay_message, sds_message, sds_payload, sdsp_delta, sdsp_frame,
        shrex_notification, svs_state_vector,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_read_alike_by_everybody(name: str, seed: int, figures: Figures) -> None:
    count = EXAMPLES if name != "sds_payload" or LONG else EXAMPLES // 4
    chance = random.Random(seed)
    for number in range(count):
        state = chance.getstate()
        try:
            FORMATS[name](chance)
        except AssertionError as error:
            raise AssertionError(f"{name} differs at example {number} of seed {seed}: {error}") from error
        assert chance.getstate() != state, "an example must draw something"
    figures(format=name, examples=count, differences=0)
