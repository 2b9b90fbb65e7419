"""What every transport with history and optimistic serials promises, on each of ours: the public checks of the kit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import pytest

from syncline.protocols.sdsp.plugins import Transport
from syncline.testing.conformance import TRANSPORT_CHECKS, Check
from syncline.transports.http import open_http
from syncline.transports.memory import MemoryHub
from syncline.transports.nats import open_nats

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"], scope="module")]


@pytest.fixture(params=["memory", "nats", "sse", "websocket", "poll"])
async def transport(request: pytest.FixtureRequest) -> AsyncIterator[Transport]:
    opening: Any
    if request.param == "memory":
        opening = nullcontext(MemoryHub())
    elif request.param == "nats":
        opening = open_nats(request.getfixturevalue("nats_server").url)
    else:
        opening = open_http(request.getfixturevalue("sdsp_node").url, follow=request.param)
    async with opening as opened:
        yield opened


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=repr)
async def test_a_transport_keeps_its_promises(
    transport: Transport, check: Check[Transport], request: pytest.FixtureRequest
) -> None:
    if check.applies(transport):
        await check(transport)
    else:  # a node knows an object by its uid alone
        assert "topic" in check.name
        assert request.node.callspec.params["transport"] in ("sse", "websocket", "poll")
