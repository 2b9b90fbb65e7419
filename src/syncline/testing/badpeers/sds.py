"""Strangers on SDS streams: more questions than anybody needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import anyio

from syncline.core.keys import NodeKey
from syncline.core.limits import MIB
from syncline.formats.framing import Framing
from syncline.networks.libp2p.host import running_host
from syncline.protocols.sds.session.greeting import greeting
from syncline.protocols.sds.wire import PROTOCOL_ID as SDS_STREAM
from syncline.protocols.sds.wire import Query, Sync
from syncline.protocols.sds.wire import encode as encode_sds
from syncline.testing.badpeers.attack import GONE, Attack, shrug

SDS_FRAMING: Final = Framing("u32le", 4 * MIB)


async def _sds(attack: Attack, frames: Iterator[bytes]) -> None:
    async with running_host(NodeKey.generate()) as host:
        peer = await host.connect(attack.target.libp2p)
        stream = await host.open_stream(peer, SDS_STREAM, SDS_FRAMING)
        await stream.send(_bare(encode_sds(greeting(["OMM"]))))

        async def read() -> None:
            with shrug():
                while await stream.receive() is not None:
                    attack.refused += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for frame in frames:
                if not attack.going():
                    break
                try:
                    await stream.send(_bare(frame))
                except GONE:
                    attack.cut()
                    break
                attack.sent += 1
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()


def _bare(frame: bytes) -> bytes:
    """The content of a size-prefixed buffer: the stream's framing writes the length."""
    return frame[4:]


async def query_bomb(attack: Attack) -> None:
    def frames() -> Iterator[bytes]:
        number = 0
        while True:
            number += 1
            yield encode_sds(Query(query_id=f"q{number}", schema="OMM", limit=10_000))

    await _sds(attack, frames())


async def all_ones_bloom(attack: Attack) -> None:
    def frames() -> Iterator[bytes]:
        number = 0
        while True:
            number += 1
            yield encode_sds(
                Sync(sync_id=f"s{number}", schemas=("OMM",), bloom_filter=b"\xff" * 100_000, bloom_hash_count=200)
            )

    await _sds(attack, frames())
