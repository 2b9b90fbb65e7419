"""python-ndn applications attach to our forwarder as they would to NFD."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from syncline.core.clock import SystemClock
from syncline.formats.ndn import names
from syncline.formats.ndn.packets import encode_data
from syncline.formats.ndn.signing import Digest
from syncline.networks.ndn.client import attached
from syncline.networks.ndn.doors import DoorOptions
from syncline.networks.ndn.hub import HubOptions, running
from syncline.networks.ndn.transports import CLIENT_VARIABLE
from tests.interop.ndn.processes import Program, program

APPLICATION = Path(__file__).with_name("application.py")


def application(address: str, home: Path, *arguments: str) -> AbstractAsyncContextManager[Program]:
    environment = {**os.environ, CLIENT_VARIABLE: address, "HOME": str(home)}
    return program([sys.executable, "-W", "ignore", APPLICATION, *arguments], environment)


@pytest.mark.parametrize(("version", "kind"), [("v1", "unix"), ("v2", "tcp"), ("v2", "udp")])
async def test_applications_serve_and_ask_through_the_forwarder(tmp_path: Path, version: str, kind: str) -> None:
    doors = DoorOptions(tcp_port=0, udp_port=0, unix_path=str(tmp_path / "nfd.sock"))
    async with running(HubOptions(doors=doors), SystemClock()) as hub:
        address = hub.addresses[kind]
        async with application(address, tmp_path, version, "serve", "/py/app", "hello") as producer:
            assert await producer.said() == {"registered": True}
            async with application(address, tmp_path, version, "ask", "/py/app/1") as consumer:
                assert await consumer.said() == {"name": "/py/app/1", "content": "hello"}
            async with attached(hub.addresses["tcp"]) as ours:
                data = await ours.ask(names.parse("/py/app/2"))
                assert data.content == b"hello"
                assert Digest().verify(data.signed, data.signature.value)
                assert data.freshness == 10_000
                ours.endpoint.serve(
                    names.parse("/ours"),
                    lambda request: ours.endpoint.reply(
                        request, encode_data(request.interest.name, b"from syncline", Digest())
                    ),
                )
                await ours.register(names.parse("/ours"))
                async with application(address, tmp_path, version, "ask", "/ours/x") as consumer:
                    assert await consumer.said() == {"name": "/ours/x", "content": "from syncline"}
        async with application(address, tmp_path, version, "ask", "/py/app/3") as consumer:
            gone = await consumer.said()
            assert gone == ({"nack": 150} if kind != "udp" else {"timeout": True})
