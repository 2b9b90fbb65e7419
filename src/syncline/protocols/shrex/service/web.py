"""What ShrEx serves over HTTP: the pools, behind the node's guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from syncline.core.ports import WebMount

if TYPE_CHECKING:
    from syncline.protocols.shrex.service.service import ShrexService

PREFIX: Final = "/shrex"


def mount(service: ShrexService) -> WebMount:
    async def pools(request: Request) -> Response:
        return Response(msgspec.json.encode(service.pools()), media_type="application/json")

    return WebMount(prefix=PREFIX, app=Router([Route("/pools", pools)]), is_open=lambda path: False)
