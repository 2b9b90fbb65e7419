from __future__ import annotations

import anyio
import pytest

from syncline.core.errors import RefusedError, UsageError
from syncline.core.keys import NodeKey
from syncline.core.verdict import ACCEPT
from syncline.formats.framing import Framing
from syncline.networks.host import Stream
from syncline.networks.memory_host import MemoryFabric

KEYS = [NodeKey(bytes(31) + bytes((number,))) for number in range(3)]
FRAMES = Framing("u32le", 1_000_000)


@pytest.mark.anyio
async def test_a_line_of_three_delivers_once_at_the_far_end_after_the_middle_accepts() -> None:
    fabric = MemoryFabric()
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b, fabric.host(KEYS[2]) as c:
        await a.connect(b.addresses[0])
        await b.connect(c.addresses[0])
        async with b.gossip.subscribe("/t") as middle, c.gossip.subscribe("/t") as end:
            with anyio.fail_after(5):
                await a.gossip.wait_for_neighbours("/t")
                await b.gossip.wait_for_neighbours("/t")
            published = await a.gossip.publish("/t", b"hello")
            assert published.sent == (b.peer_id,)
            async for batch in middle:
                assert [each.message.data for each in batch] == [b"hello"]
                batch[0].decide(ACCEPT)
                break
            async for batch in end:
                assert [(each.message.author, each.forwarder) for each in batch] == [(a.peer_id, b.peer_id)]
                break
            with pytest.raises(UsageError):
                async with b.gossip.subscribe("/t"):
                    pass


@pytest.mark.anyio
async def test_frames_go_both_ways_on_a_stream_and_end() -> None:
    async def echo(stream: Stream) -> None:
        while (frame := await stream.receive()) is not None:
            await stream.send(frame[::-1])

    fabric = MemoryFabric()
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b:
        b.handle_stream("/echo/1", echo, FRAMES)
        await a.connect(b.addresses[0])
        stream = await a.open_stream(b.peer_id, "/echo/1", FRAMES)
        await stream.send(b"abc")
        assert await stream.receive() == b"cba"
        await stream.end()
        with anyio.fail_after(1):
            assert await stream.receive() is None
        await stream.close()
        with pytest.raises(RefusedError):
            await a.open_stream(b.peer_id, "/other", FRAMES)
