"""Keeps links to the configured servers: dials, and dials again with growing pauses whenever a link has ended."""

from __future__ import annotations

import ssl
from random import Random
from typing import Final

import anyio
import structlog

from syncline.core.errors import SynclineError
from syncline.core.limits import RELAY_REQUEST_BYTES
from syncline.core.retry import Backoff
from syncline.networks.websocket import connect
from syncline.protocols.relay.service.driver import Driver
from syncline.protocols.relay.service.server import Server
from syncline.protocols.relay.settings import Peer

log = structlog.get_logger()
BACKOFF: Final = Backoff(first=0.25, longest=30.0)
STEADY_SECONDS: Final = 10.0  # a link that lasted this long starts the pauses anew
LOOK_SECONDS: Final = 1.0


async def keep_linked(
    peer: Peer, server: Server, driver: Driver, *, random: Random, tls: ssl.SSLContext | None = None
) -> None:
    """Stay linked with one server, for ever."""
    spans = BACKOFF.spans(random)
    while True:
        if driver.hub.links.is_open(peer.keys):  # it has dialed us
            await anyio.sleep(LOOK_SECONDS)
            continue
        began = anyio.current_time()
        try:
            async with connect(peer.url, max_message=RELAY_REQUEST_BYTES, tls=tls) as socket:
                await server.link(socket, lambda key: key in peer.keys, dialed=True)
        except SynclineError as error:
            log.info("relay_link_failed", peer=peer.keys[0], url=peer.url, error=str(error))
        if anyio.current_time() - began > STEADY_SECONDS:
            spans = BACKOFF.spans(random)
        await anyio.sleep(next(spans))
