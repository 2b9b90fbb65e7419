"""Space data over the node's HTTP API: `POST /sds/find` looks here, or asks a peer.

Translates between HTTP and the service; decides nothing. The node's guard has checked Host, Origin and token before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from syncline.core import limits
from syncline.core.errors import UsageError
from syncline.core.ports import WebMount
from syncline.protocols.sds.service.asking import Found
from syncline.protocols.sds.wire import record_id

if TYPE_CHECKING:
    from syncline.protocols.sds.service.service import SdsService

PREFIX: Final = "/sds"


class Find(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /sds/find`. Without a peer (a PeerID or an address), this node's own records are looked through."""

    schema: str
    where: Mapping[str, Any] | None = None
    peer: str = ""
    limit: int = limits.SDS_PAGE_DEFAULT
    offset: int = 0
    order_by: str = ""
    order: str = ""
    keep: bool = False


def mount(service: SdsService) -> WebMount:
    """What the node serves below `/sds`."""

    async def find(request: Request) -> Response:
        try:
            wanted = msgspec.json.decode(await request.body(), type=Find)
        except msgspec.DecodeError as error:
            raise UsageError(str(error), hint="see docs/protocols/sds.md") from None
        found = await _found(service, wanted)
        body = msgspec.json.encode({"records": [shown(each) for each in found]})
        return Response(body, media_type="application/json")

    return WebMount(prefix=PREFIX, app=Router([Route("/find", find, methods=["POST"])]), is_open=lambda path: False)


async def _found(service: SdsService, wanted: Find) -> list[Found]:
    options: dict[str, Any] = {
        "limit": wanted.limit,
        "offset": wanted.offset,
        "order_by": wanted.order_by,
        "order": wanted.order,
    }
    if not wanted.peer:
        return await service.find(wanted.schema, wanted.where, **options)
    return await service.query(wanted.peer, wanted.schema, wanted.where, keep=wanted.keep, **options)


def shown(found: Found) -> dict[str, Any]:
    """A record as JSON shows it. Numbers that are not finite have no JSON and become null."""
    held = found.held
    return {
        "id": record_id(held.published).hex(),
        "schema": held.schema,
        "publisher": held.publisher_id,
        "message_id": held.message_id,
        "timestamp": held.timestamp,
        "ttl": held.ttl,
        "received_at": held.received_at,
        "verified": found.verified,
        "data": found.fields,
    }
