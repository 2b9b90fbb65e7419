"""Every decoder that reads a stranger's bytes, as a fuzz target: it may return or raise a typed error, nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from syncline.core.errors import SynclineError

Target = Callable[[bytes], object]
VECTORS = Path(__file__).resolve().parents[2] / "vectors"


def sdsp_frame() -> Target:
    from syncline.protocols.sdsp.wire import decode, encode

    def target(data: bytes) -> object:
        frame = decode(data)
        assert decode(encode(frame)) == frame
        return frame

    return target


def _delta(code: str, old: Any) -> Target:
    from syncline.protocols.sdsp.deltas import Deltas
    from syncline.protocols.sdsp.deltas.base import Budget

    delta = Deltas.installed()[code]

    def target(data: bytes) -> object:
        value: Any = data
        if code == "md":
            value = data.decode("utf-8", "replace")
        elif code != "X-vcdiff":
            try:
                value = json.loads(data)
            except (ValueError, RecursionError):
                return None
        return delta.apply(old, value, Budget())

    return target


def sdsp_jp() -> Target:
    return _delta("jp", {"a": [1, 2, {"b": None}], "c": "text", "d": {"e": 1.5}})


def sdsp_md() -> Target:
    return _delta("md", "The quick brown fox \U0001f98a jumps over the lazy dog.\n" * 4)


def sdsp_mp() -> Target:
    return _delta("X-mp", {"a": [1, 2, {"b": None}], "c": "text", "d": {"e": 1.5}})


def sdsp_vcdiff() -> Target:
    return _delta("X-vcdiff", bytes(range(256)) * 4)


def sds_payload() -> Target:
    from syncline.protocols.sds.catalogue import NAMES, standard

    known = {standard(name).schema.identifier: standard(name) for name in NAMES}

    def target(data: bytes) -> object:
        found = known.get(data[8:12], known[b"$OMM"])
        value = found.reader.decode(data)
        again = found.writer.encode(value)
        assert found.writer.encode(found.reader.decode(again)) == again
        return value

    return target


def sds_message() -> Target:
    from syncline.protocols.sds.wire import decode, encode

    def target(data: bytes) -> object:
        message = decode(data)
        assert decode(encode(message)) == message
        return message

    return target


def pubsub_rpc() -> Target:
    from syncline.formats.pubsub import decode_rpc

    return decode_rpc


def pubsub_message() -> Target:
    """A signed message, read and judged, and read from a batch alike."""
    from syncline.formats.pubsub import decode_message, judge

    def target(data: bytes) -> object:
        return judge(decode_message(data))

    return target


def libp2p_yamux() -> Target:
    """Bytes of a peer inside the secure channel: whatever they open, memory stays within the windows."""
    from syncline.core.limits import STREAM_WINDOW, STREAMS_PER_CONNECTION
    from syncline.networks.libp2p.yamux import Session

    def target(data: bytes) -> object:
        session = Session(initiator=False)
        events = session.receive(data)
        held = sum(len(stream.inbox) for stream in session.streams.values())
        assert held <= len(data)
        assert session.inbound <= STREAMS_PER_CONNECTION
        assert all(len(stream.inbox) <= STREAM_WINDOW for stream in session.streams.values())
        return events

    return target


def libp2p_handshake() -> Target:
    """A stranger's first words: the bytes of both handshake messages, cut by the first byte."""
    from syncline.core.keys import NodeKey
    from syncline.networks.libp2p.noise import Handshake

    key = NodeKey(bytes(32))

    def target(data: bytes) -> object:
        shake = Handshake(key, initiator=False, static=b"s" * 32, ephemeral=b"e" * 32)
        cut = 1 + (data[0] if data else 0)
        shake.receive(data[1:cut])
        return shake.receive(data[cut:])

    return target


def libp2p_identify() -> Target:
    from syncline.networks.libp2p.identify import decode
    from syncline.networks.libp2p.multiaddr import from_bytes

    def target(data: bytes) -> object:
        return [from_bytes(address) for address in decode(data).addresses]

    return target


def shrex_message() -> Target:
    """A notification alone and in a batch: the same answer."""
    import pyarrow as pa

    from syncline.protocols.shrex.columns import decode_messages
    from syncline.protocols.shrex.rules.notifications import judge_message, judge_payload
    from syncline.protocols.shrex.wire.notification import TOPIC

    def target(data: bytes) -> object:
        judge_payload(data)
        _, _, verdict = judge_message(data, TOPIC)
        found = decode_messages(pa.array([data], pa.binary()), pa.array([TOPIC]))
        assert found["outcome"][0].as_py() == verdict.outcome.value
        assert found["reason"][0].as_py() == (verdict.reason.value if verdict.reason else None)
        return verdict

    return target


def shrex_header() -> Target:
    from syncline.protocols.shrex.wire.header import decode, encode

    def target(data: bytes) -> object:
        header = decode(data)
        assert decode(encode(header)).hash == header.hash
        return header

    return target


def relay_message() -> Target:
    from syncline.protocols.relay.wire.messages import decode, encode

    def target(data: bytes) -> object:
        message = decode(data)
        assert decode(encode(message)) == message
        return message

    return target


def relay_token() -> Target:
    from syncline.protocols.relay.rules.tokens import check_token

    def target(data: bytes) -> object:
        return check_token(
            data.decode("utf-8", "replace"), audiences={"ws://127.0.0.1:5000"}, now=1_794_700_000_000_000
        )

    return target


def relay_request() -> Target:
    """What a client sends, into a whole relay; it must answer, or take it for an acknowledgement."""
    from tests.protocols.relay.desk import Desk

    def target(data: bytes) -> object:
        desk = Desk()
        connection = desk.client()
        desk.tell(connection, data)
        answers = desk.heard(connection)
        assert len(answers) <= 1
        return answers

    return target


def relay_link() -> Target:
    """What a neighbour sends, text or binary by its first bit, into a whole relay."""
    from tests.protocols.relay.desk import Desk
    from tests.protocols.relay.test_links import FarEnd

    desks = [Desk()]

    def target(data: bytes) -> object:
        if len(desks[0].disk.arrivals) + len(desks[0].hub.outbox.ready) > 200:
            desks[0] = Desk()  # the simulated disk keeps everything, and nobody empties the outbox
        desk = desks[0]
        far = FarEnd(desk)
        desk.hub.links.receive(far.link, data[1:], is_text=bool(data[:1] and data[0] & 1))
        desk.run()
        desk.hub.links.end(far.link)
        return far.link.end

    return target


def svs_packet() -> Target:
    """Interests, Data and link packets, and what a group makes of them."""
    from syncline.formats.ndn.link import decode_link
    from syncline.formats.ndn.names import parse, text
    from syncline.formats.ndn.packets import decode_data, decode_interest
    from syncline.protocols.svs.rules import Trust, examine, judge_sync

    group, trust = parse("/ndn/svs"), Trust()

    def target(data: bytes) -> object:
        for decode in (decode_interest, decode_data, decode_link):
            try:
                packet = decode(data)
            except SynclineError:
                continue
            if not isinstance(packet, bytes) and hasattr(packet, "name"):
                assert parse(text(packet.name)) == packet.name
        examine(data, group, trust)
        judge_sync(data, group, trust)
        return None

    return target


def svs_columns() -> Target:
    """Outer packets in batches: each row as it would be read alone, whatever its neighbours are."""
    import pyarrow as pa

    from syncline.protocols.svs.columns import OUTER_SCHEMA, decode_outer, row_of

    def target(data: bytes) -> object:
        rows = [data, None, data[: len(data) // 2], data]
        found = decode_outer(pa.array(rows, pa.binary())).to_pylist()
        assert found == [{**dict.fromkeys(OUTER_SCHEMA.names), **row_of(row)} for row in rows]
        return None

    return target


def svs_stream() -> Target:
    """A byte stream, split and handed to a forwarder."""
    from syncline.formats.tlv import split
    from syncline.networks.ndn.commands import CommandGate
    from syncline.networks.ndn.forwarder import Forwarder
    from syncline.networks.ndn.management import Management

    def target(data: bytes) -> object:
        packets, _ = split(data, 8_800)
        forwarder = Forwarder(random=Random(0))
        Management(forwarder, CommandGate(), lambda: 0)
        face = forwarder.add_face("fuzz://", local=True, notify=lambda: None, now=0.0)
        forwarder.receive(face, packets, 0.0)
        return face.take()

    return target


def names_with_keys() -> Target:
    from syncline.core.keys import public_of_did_key, public_of_peer_id

    def target(data: bytes) -> object:
        text = data.decode("utf-8", "replace")
        for read in (public_of_peer_id, public_of_did_key):
            try:
                read(text)
            except SynclineError:
                continue
        return None

    return target


TARGETS: dict[str, Callable[[], Target]] = {
    each.__name__: each
    for each in (
        sdsp_frame,
        sdsp_jp,
        sdsp_md,
        sdsp_mp,
        sdsp_vcdiff,
        sds_payload,
        sds_message,
        pubsub_rpc,
        pubsub_message,
        libp2p_yamux,
        libp2p_handshake,
        libp2p_identify,
        shrex_message,
        shrex_header,
        relay_message,
        relay_token,
        relay_request,
        relay_link,
        svs_packet,
        svs_columns,
        svs_stream,
        names_with_keys,
    )
}


def sds_frames() -> list[bytes]:
    """A full frame of every kind of message."""
    from random import Random

    from syncline.protocols.sds.wire import KINDS, codec
    from syncline.testing.flatbuffers import random_value

    pairs = [codec(identifier) for identifier in KINDS]
    return [writer.encode(random_value(Random(1), reader.schema, density=1.0)) for reader, writer in pairs]


def seeds(name: str) -> list[bytes]:
    """Inputs to start from: the vectors of the target's protocol."""
    if name == "sds_message":
        return sds_frames()
    protocol = {"pubsub": "libp2p", "names": "libp2p"}.get(name.partition("_")[0], name.partition("_")[0])
    file = VECTORS / f"{protocol}.json"
    if not file.exists():
        return []
    found = []
    for vector in json.loads(file.read_text())["vectors"]:
        if "hex" in vector:
            found.append(bytes.fromhex(vector["hex"]))
        if "text" in vector:
            found.append(vector["text"].encode())
    return found
