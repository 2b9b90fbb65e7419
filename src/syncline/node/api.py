"""The node's HTTP API: status, records, publish, peers and metrics, plus what protocols mount.

Routes translate between HTTP and the node; they decide nothing. Every request passes `guard.py` first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
import pyarrow as pa
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from syncline.core import errors
from syncline.core.limits import API_PAGE_RECORDS, JOURNAL_PAGE_RAW
from syncline.core.ports import RecordQuery, WebMount
from syncline.core.record import SEQ_MAX, Record
from syncline.core.verdict import Reason
from syncline.formats.records import RECORD_SCHEMA, to_arrow, to_json
from syncline.node.guard import App, BodyTooLargeError, Guard
from syncline.node.idempotency import Idempotency
from syncline.node.metrics import CONTENT_TYPE, exposition
from syncline.node.node import Node

log = structlog.get_logger()
ARROW: Final = "application/vnd.apache.arrow.stream"
NDJSON: Final = "application/x-ndjson"
WAIT_MAX: Final = 60.0
TEXT_FILTERS: Final = ("protocol", "topic", "kind", "key", "publisher", "verdict", "reason")
STATUS: Final[dict[type[errors.SynclineError], int]] = {
    errors.UsageError: 400,
    errors.DecodeError: 400,
    errors.NotFoundError: 404,
    errors.RefusedError: 403,
    errors.ConflictError: 409,
    errors.FrozenError: 409,
    errors.UnavailableError: 503,
    errors.UnreachableError: 502,
}


def build(node: Node, extra: Sequence[WebMount] = ()) -> App:
    """The ASGI application of a node; `extra` mounts come after those of its protocols."""
    mounts = [mount for service in node.services.values() if (mount := service.web()) is not None]
    mounts += extra
    routes: list[BaseRoute] = [
        Route("/api/v1/status", _Status(node).__call__),
        Route("/api/v1/records", _Records(node).__call__),
        Route("/api/v1/records/{epoch}/{lsn:int}", _OneRecord(node).__call__),
        Route("/api/v1/peers", _Peers(node).__call__),
        Route("/api/v1/publish/{protocol}", _Publish(node).__call__, methods=["POST"]),
        Route("/metrics", _Metrics(node).__call__),
        *(Mount(mount.prefix, app=mount.app) for mount in mounts if mount.prefix),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={errors.SynclineError: _problem, BodyTooLargeError: _too_large, HTTPException: _no_route},
    )
    for mount in mounts:
        if not mount.prefix:
            app.router.default = mount.app  # after all routes, so that a wrong method of one of them is told as such
    return Guard(app, node.settings.api, [mount.is_open for mount in mounts], node.settings.node.public_url)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode(value, enc_hook=str)
    return Response(body, status, headers, media_type="application/json")


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.SynclineError)
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    reason = getattr(error, "reason", None)
    if reason is Reason.RATE_LIMITED:
        status = 429
    if status == 500:
        log.error("request_failed", path=request.url.path, error=str(error))
    return json_response({"error": errors.shown(error)}, status)


async def _no_route(request: Request, error: Exception) -> Response:
    """No such path, or not by this method."""
    assert isinstance(error, HTTPException)
    body = {"type": "NotFoundError", "message": error.detail, "hint": "see docs/api.md", "retry": False}
    return json_response({"error": body}, error.status_code, dict(error.headers or {}))


async def _too_large(request: Request, error: Exception) -> Response:
    return json_response({"error": {"type": "Refused", "message": "the body is too large"}}, 413)


class _Route:
    def __init__(self, node: Node) -> None:
        self.node = node


class _Status(_Route):
    async def __call__(self, request: Request) -> Response:
        node = self.node
        return json_response(
            {
                "node": node.key.peer_id,
                "name": node.settings.node.name,
                "epoch": node.journal.epoch,
                "newest": node.journal.newest(),
                "state": node.state,
                "now": node.clock.now(),
                "started_at": node.started_at,
                "protocols": sorted(node.services),
                "addresses": list(node.networks.addresses()),
                "statistics": node.statistics(),
            }
        )


class _Peers(_Route):
    async def __call__(self, request: Request) -> Response:
        found = [{"protocol": name, **peer} for name, service in self.node.services.items() for peer in service.peers()]
        return json_response({"peers": found})


class _Metrics(_Route):
    async def __call__(self, request: Request) -> Response:
        return Response(exposition(self.node), headers={"content-type": CONTENT_TYPE})


class _Records(_Route):
    """A page of records after an lsn; with `wait`, held until there is one."""

    async def __call__(self, request: Request) -> Response:
        journal = self.node.journal
        epoch = request.query_params.get("epoch")
        if epoch is not None and epoch != journal.epoch:
            raise errors.ConflictError(f"this journal is of epoch {journal.epoch}", hint="start again with after=0")
        query = record_query(request)
        if "last" in request.query_params:
            return await self._last(query, int(_number(request, "last", 0, API_PAGE_RECORDS)))
        wait = _number(request, "wait", 0.0, WAIT_MAX)
        newest = await self._newest(query.after, wait)
        page = msgspec.structs.replace(query, before=newest + 1)
        found, following = await anyio.to_thread.run_sync(journal.page, page)
        if ARROW in request.headers.get("accept", ""):
            body = await anyio.to_thread.run_sync(_arrow_stream, found)
            return Response(body, headers=self._cursor(max(following, query.after)), media_type=ARROW)
        return self._ndjson(found, max(following, query.after))

    def _cursor(self, following: int) -> dict[str, str]:
        return {"syncline-epoch": self.node.journal.epoch, "syncline-next": str(following)}

    def _ndjson(self, found: Sequence[Record], following: int) -> Response:
        lines = b"".join(msgspec.json.encode(to_json(record)) + b"\n" for record in found)
        return Response(lines, headers=self._cursor(following), media_type=NDJSON)

    async def _last(self, query: RecordQuery, count: int) -> Response:
        """The newest `count` matching records, or as many as a page holds, oldest of them first."""
        journal = self.node.journal
        newest = journal.newest()
        step = msgspec.structs.replace(
            query, before=newest + 1, limit=max(count, 1), descending=True, raw_bytes=JOURNAL_PAGE_RAW
        )
        found = await anyio.to_thread.run_sync(journal.read, step) if count else []
        return self._ndjson(found[::-1], newest)

    async def _newest(self, after: int, wait: float) -> int:
        newest = self.node.journal.newest()
        if newest <= after and wait > 0:
            with anyio.move_on_after(wait):
                newest = await self.node.journal.wait(after)
        return newest


class _OneRecord(_Route):
    """One record with all that is known of it: bytes, decoded, and why it got its verdict."""

    async def __call__(self, request: Request) -> Response:
        journal, lsn = self.node.journal, request.path_params["lsn"]
        found = []
        if request.path_params["epoch"] == journal.epoch:
            query = RecordQuery(after=lsn - 1, before=lsn + 1, limit=1)
            found = await anyio.to_thread.run_sync(journal.read, query)
        if not found:
            raise errors.NotFoundError("the journal has no such record", hint="older ones are in the lake's tables")
        [record] = found
        why = (
            {"reason": record.reason, "about": record.reason.about, "meaning": record.reason.doc}
            if record.reason
            else {}
        )
        return json_response({"record": to_json(record), "decoded": self.node.decoded(record), "why": why})


def _arrow_stream(records: Sequence[Record]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RECORD_SCHEMA) as writer:
        writer.write_batch(to_arrow(records))
    return bytes(sink.getvalue())


class _Publish(_Route):
    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._idempotency = Idempotency(node.journal, node.clock)

    async def __call__(self, request: Request) -> Response:
        service = self.node.service(request.path_params["protocol"])
        body = await request.body()
        try:
            fields = msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise errors.UsageError(f"the body is not a JSON object: {error}") from None
        key = request.headers.get("idempotency-key")
        if key is None:
            return json_response(await service.publish(fields))
        scoped = f"{request.path_params['protocol']}\0{key}"
        return json_response(await self._idempotency.once(scoped, body, lambda state: service.publish(fields, state)))


def record_query(request: Request) -> RecordQuery:
    """The query a request's parameters ask for."""
    given = request.query_params
    unknown = set(given) - {"epoch", "after", "last", "limit", "wait", "seq", *TEXT_FILTERS}
    if unknown:
        raise errors.UsageError(f"unknown parameter {min(unknown)!r}", hint="see docs/api.md")
    filters: dict[str, Any] = {name: given[name] for name in TEXT_FILTERS if name in given}
    if "seq" in given:
        filters["seq_from"] = filters["seq_to"] = int(_number(request, "seq", 0, SEQ_MAX))
    after = int(_number(request, "after", 0, 2**63 - 1))
    return RecordQuery(after=after, limit=int(_number(request, "limit", 1_000, API_PAGE_RECORDS)) or 1, **filters)


def _number(request: Request, name: str, default: float, largest: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = int(text) if isinstance(default, int) else float(text)
    except ValueError:
        raise errors.UsageError(f"{name} must be a number, not {text!r}") from None
    if not value >= 0:
        raise errors.UsageError(f"{name} must not be negative")
    return min(value, largest)
