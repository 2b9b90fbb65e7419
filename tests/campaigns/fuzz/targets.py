"""Every decoder that reads a stranger's bytes, as a fuzz target: it may return or raise a typed error, nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
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
