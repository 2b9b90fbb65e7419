from __future__ import annotations

import anyio
import pytest

from syncline.core.errors import UsageError
from syncline.networks.memory import MemoryNetwork, MemoryPeer, Weather


async def drain(peer: MemoryPeer, count: int) -> list[int]:
    found = []
    with anyio.fail_after(2):
        async for packet in peer.packets():
            found.append(int(packet.payload))
            if len(found) == count:
                break
    return found


async def test_in_clear_weather_everybody_else_hears_everything_in_order() -> None:
    network = MemoryNetwork()
    a, b, c = network.join("a"), network.join("b"), network.join("c")
    for number in range(50):
        await a.broadcast("t", str(number).encode())
    assert await drain(b, 50) == await drain(c, 50) == list(range(50))
    assert (network.delivered, network.dropped) == (100, 0)
    for peer in (a, b, c):
        peer.close()


async def heard(seed: int) -> list[int]:
    network = MemoryNetwork(weather=Weather(drop=0.2, duplicate=0.2, reorder=0.2), seed=seed)
    a, b = network.join("a"), network.join("b")
    for number in range(100):
        await a.broadcast("t", str(number).encode())
    found = await drain(b, network.delivered)
    a.close()
    b.close()
    return found


async def test_the_same_seed_gives_the_same_weather() -> None:
    first, again, other = await heard(1), await heard(1), await heard(2)
    assert first == again != other
    assert len(set(first)) < 100  # some were lost
    assert len(first) > len(set(first))  # some came twice
    assert first != sorted(first)  # some came late


async def test_a_partition_keeps_islands_apart_until_it_heals() -> None:
    network = MemoryNetwork()
    a, b, c = network.join("a"), network.join("b"), network.join("c")
    network.partition(["a", "b"])
    await a.broadcast("t", b"1")
    network.heal()
    await a.broadcast("t", b"2")
    assert await drain(b, 2) == [1, 2]
    assert await drain(c, 1) == [2]
    for peer in (a, b, c):
        peer.close()


async def test_a_full_mailbox_makes_the_sender_wait() -> None:
    network = MemoryNetwork()
    a, b = network.join("a"), network.join("b")
    sent = 0
    with anyio.move_on_after(0.5) as scope:
        for number in range(5_000):
            await a.broadcast("t", str(number).encode())
            sent += 1
    assert scope.cancelled_caught
    assert sent == 1_024
    assert await drain(b, 1_024) == list(range(1_024))
    a.close()
    b.close()


async def test_a_peer_that_left_is_forgotten_and_its_name_free() -> None:
    network = MemoryNetwork()
    a, b = network.join("a"), network.join("b")
    with pytest.raises(UsageError):
        network.join("b")
    b.close()
    await a.broadcast("t", b"1")
    assert network.delivered == 0
    network.join("b").close()
    a.close()
