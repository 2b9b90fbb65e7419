"""Applications on an NDN forwarder that lie and flood."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import anyio

from syncline.formats import tlv
from syncline.formats.ndn import names
from syncline.formats.ndn import types as ndn
from syncline.formats.ndn.packets import encode_interest
from syncline.formats.ndn.signing import Digest
from syncline.protocols.svs.wire.naming import sync_name
from syncline.protocols.svs.wire.vector import encode_vector
from syncline.testing.badpeers.attack import Attack, shrug


async def _ndn(attack: Attack, packets: Iterator[bytes], pause: float = 0.001) -> None:
    parts = urlsplit(attack.target.ndn)
    async with await anyio.connect_tcp(parts.hostname or "127.0.0.1", parts.port or 6363) as stream:
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                with shrug():
                    while True:
                        await stream.receive(65_536)
                attack.cut()
                tasks.cancel_scope.cancel()

            tasks.start_soon(read)
            for packet in packets:
                if not attack.going():
                    break
                await stream.send(packet)
                attack.sent += 1
                await anyio.sleep(pause)
            tasks.cancel_scope.cancel()


async def lying_vectors(attack: Attack) -> None:
    """Sync Interests that claim 2^63 publications, and thousands of nodes that do not exist."""

    def packets() -> Iterator[bytes]:
        group, number = names.parse(attack.target.group), 0
        while True:
            number += 1
            vector = {names.parse(f"/liar/{number}/{node}"): 2**63 for node in range(50)}
            yield encode_interest(
                sync_name(group), nonce=os.urandom(4), parameters=encode_vector(vector), signer=Digest(), lifetime=1_000
            )

    await _ndn(attack, packets(), 0.01)


async def interest_flood(attack: Attack) -> None:
    """Interests for names that nobody serves, to fill the pending table."""

    def packets() -> Iterator[bytes]:
        while True:
            yield b"".join(
                encode_interest(names.parse(f"/nobody/{os.urandom(6).hex()}"), nonce=os.urandom(4), lifetime=60_000)
                for _ in range(20)
            )

    await _ndn(attack, packets())


async def broken_packets(attack: Attack) -> None:
    """TLV that lies about its lengths."""

    def packets() -> Iterator[bytes]:
        while True:
            yield tlv.encode(ndn.INTEREST, os.urandom(30))
            yield tlv.encode(ndn.DATA, b"\x07\xff" + os.urandom(20))

    await _ndn(attack, packets())


async def giant_packet(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        yield bytes((ndn.DATA, 254)) + (2**31).to_bytes(4, "big")
        while True:
            yield bytes(8_000)

    await _ndn(attack, packets())
