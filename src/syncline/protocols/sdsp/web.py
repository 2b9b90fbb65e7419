"""The node's objects over HTTP: state, long poll, frames, server-sent events, WebSocket, history.

Routes translate between HTTP and the shelf; they decide nothing. The node's guard has checked Host, Origin and token
before; only the history of an object is open to whoever holds its address.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from syncline.core.errors import NotFoundError, SynclineError, UsageError
from syncline.core.limits import SDSP_INLINE_BYTES, SDSP_KEEP_ALIVE_SECONDS, SDSP_PAGE_FRAMES, SDSP_SERIAL_MAX
from syncline.core.ports import WebMount
from syncline.formats import sse
from syncline.networks.background import background
from syncline.protocols.sdsp.rebuild import State, Status
from syncline.protocols.sdsp.service import SdspService
from syncline.protocols.sdsp.shelf import Shelf
from syncline.protocols.sdsp.wire import ObjectKind, decode, encode, object_to_bytes

Emit = Callable[[bytes], Awaitable[None]]
PREFIX: Final = "/sdsp"
WAIT_MAX: Final = 60.0
_SERIAL_DIGITS: Final = len(str(SDSP_SERIAL_MAX))
_HISTORY: Final = re.compile(rf"{PREFIX}/.+/history/[^/]+", re.DOTALL)


def mount(service: SdspService) -> WebMount:
    """What the node serves below `/sdsp`. A uid's own slashes are part of the path."""
    routes = _Routes(service)
    router = Router(
        [
            Route("/", routes.objects),
            Route("/{uid:path}/history/{token}", routes.history),
            Route("/{uid:path}/frames", routes.frames),
            Route("/{uid:path}/events", routes.events),
            WebSocketRoute("/{uid:path}/ws", routes.websocket),
            Route("/{uid:path}", routes.state),
        ]
    )
    return WebMount(prefix=PREFIX, app=router, is_open=_is_history)


def _is_history(path: str) -> bool:
    """Whether a path is the history of an object, which holds its own secret."""
    return _HISTORY.fullmatch(path) is not None


class _Routes:
    def __init__(self, service: SdspService) -> None:
        self._service = service
        self._shelf: Shelf = service.shelf

    async def objects(self, request: Request) -> Response:
        """The objects of this node."""
        found = [
            {
                "uid": uid,
                "topic": tip.topic,
                "serial": tip.serial,
                "kind": tip.kind,
                "status": Status.SYNCED if tip.frozen_at is None else Status.FROZEN,
            }
            for uid, tip in await self._shelf.listed(SDSP_PAGE_FRAMES)
        ]
        return _json({"objects": found})

    async def state(self, request: Request) -> Response:
        """The newest object; `at`: as it was after a serial; `after` and `wait`: as soon as there is a newer one."""
        uid = request.path_params["uid"]
        if (at := _whole(request, "at")) is not None:
            return await self._object(await self._shelf.state_at(uid, at))
        if (after := _whole(request, "after")) is not None:
            await self._newer(uid, after, _seconds(request))
        return await self._object(await self._shelf.state(uid))

    async def _object(self, state: State) -> Response:
        body = {
            "uid": state.uid,
            "serial": state.serial,
            "ver": state.ver,
            "topic": self._shelf.tip(state.uid).topic,
            "kind": state.kind,
            "status": state.status,
            "oldest": await self._shelf.oldest(state.uid),
            "value": state.value,
            **({"encoding": "base64"} if state.kind is ObjectKind.BINARY else {}),
        }
        return _json(body, {"etag": f'"{state.serial}"', "cache-control": "no-store"})

    async def _newer(self, uid: str, after: int, wait: float) -> None:
        """Wait for a serial above `after`, but not for ever."""
        with self._shelf.watching(uid) as watch, anyio.move_on_after(wait):
            while True:
                news = watch.look()
                tip, _ = self._shelf.tips.get(uid)
                if tip is not None and tip.serial > after:
                    return
                await news.wait()

    async def frames(self, request: Request) -> Response:
        """Frames as an array: a range (`first`, `last`), the newest one (`newest=1`), or what follows `after`."""
        uid = request.path_params["uid"]
        first, last, after = _whole(request, "first"), _whole(request, "last"), _whole(request, "after")
        if "newest" in request.query_params:
            tip, _ = self._shelf.tips.get(uid)
            found = [] if tip is None else await self._shelf.page(uid, tip.serial, tip.serial)
        elif first is not None or last is not None:
            found = await self._shelf.page(uid, first or 0, last)
        else:
            found = await self._following(uid, self._beginning(uid, after), _seconds(request))
        return _json_array([self._service.outgoing(uid, payload) for _, payload in found])

    async def _following(self, uid: str, after: int, wait: float) -> list[tuple[int, bytes]]:
        with self._shelf.watching(uid) as watch, anyio.move_on_after(wait):
            while True:
                news = watch.look()
                if found := await self._shelf.after(uid, after):
                    return found
                await news.wait()
        return []

    def _beginning(self, uid: str, after: int | None) -> int:
        """The serial that a follower is taken to have: the one it says, else the one before the newest full frame."""
        if after is not None:
            return after
        tip, _ = self._shelf.tips.get(uid)
        return -1 if tip is None else tip.base - 1

    async def events(self, request: Request) -> Response:
        """Frames as server-sent events, each with its serial as id."""
        last = _serial(request.headers.get("last-event-id", ""))
        after = _whole(request, "after") if last is None else last
        uid = request.path_params["uid"]
        self._shelf.check_room()

        async def run(send: Emit) -> None:
            async def deliver(serial: int, payload: bytes | None) -> None:
                await send(sse.KEEP_ALIVE if payload is None else sse.encode(payload, name="frame", id=str(serial)))

            await self._pump(uid, self._beginning(uid, after), deliver)

        return _Streamed(run, sse.MEDIA_TYPE)

    async def websocket(self, socket: WebSocket) -> None:
        """Frames as text messages."""
        uid = socket.path_params["uid"]
        try:
            # the guard lets paths of histories pass without a token: not so an object that is called …/history
            if _is_history(f"{PREFIX}/{uid}/ws"):
                raise NotFoundError("there is no such history")
            after = self._beginning(uid, _whole(socket, "after"))
            self._shelf.check_room()
        except SynclineError as error:
            await socket.close(1013 if error.retry else 1008, str(error))
            return

        async def deliver(serial: int, payload: bytes | None) -> None:
            if payload is not None:
                await socket.send_text(payload.decode())

        await socket.accept()
        async with background() as tasks:
            tasks.start_soon(_until_closed, socket, tasks.cancel_scope)
            await self._pump(uid, after, deliver)

    async def _pump(self, uid: str, after: int, deliver: Callable[[int, bytes | None], Awaitable[None]]) -> None:
        """Deliver every frame after a serial, for ever; None now and then, so that a silent connection is a broken one."""
        with self._shelf.watching(uid) as watch:
            await deliver(after, None)  # tells the client that it is connected
            while True:
                news = watch.look()
                found = await self._shelf.after(uid, after)
                for serial, payload in found:
                    await deliver(serial, self._service.outgoing(uid, payload))
                    after = serial
                if found:
                    continue
                with anyio.move_on_after(SDSP_KEEP_ALIVE_SECONDS) as waited:
                    await news.wait()
                if waited.cancelled_caught:
                    await deliver(after, None)

    async def history(self, request: Request) -> Response:
        """All frames back to the newest full one, in one answer. SDSP: without authentication, as the URL is secure."""
        uid, token = request.path_params["uid"], request.path_params["token"]
        if not hmac.compare_digest(token.encode(), self._service.token(uid).encode()):
            raise NotFoundError("there is no such history")
        tip = self._shelf.tip(uid)

        async def run(send: Emit) -> None:
            first, opening = tip.base, b"["
            while first <= tip.serial and (page := await self._shelf.page(uid, first, tip.serial)):
                frames = [await self._inlined(payload) for _, payload in page]
                await send(opening + b",".join(frames))
                first, opening = page[-1][0] + 1, b","
            await send(b"[]" if opening == b"[" else b"]")

        return _Streamed(run, "application/json")

    async def _inlined(self, payload: bytes) -> bytes:
        """A frame with its object in it. SDSP: when possible, instead of a dataUri, to minimise the number of requests."""
        frame = decode(payload)
        if not frame.unresolved:
            return payload
        try:
            loaded = await self._shelf.resolved(frame)
        except SynclineError:
            return payload
        small = len(object_to_bytes(loaded.data, loaded.holds)) <= SDSP_INLINE_BYTES
        return encode(loaded) if small else payload


class _Streamed(Response):
    """A body that is sent piece by piece until it ends or the client leaves."""

    def __init__(self, run: Callable[[Emit], Awaitable[None]], media_type: str) -> None:
        super().__init__(media_type=media_type, headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def emit(piece: bytes) -> None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with background() as tasks:
            tasks.start_soon(_until_disconnected, receive, tasks.cancel_scope)
            await self._run(emit)
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_disconnected(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _until_closed(socket: WebSocket, scope: anyio.CancelScope) -> None:
    try:
        while True:
            await socket.receive_bytes()
    except (WebSocketDisconnect, RuntimeError, KeyError):
        scope.cancel()


def _json(value: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), headers=headers, media_type="application/json")


def _json_array(payloads: list[bytes]) -> Response:
    return Response(b"[" + b",".join(payloads) + b"]", media_type="application/json")


def _whole(request: HTTPConnection, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if text == "-1" and name == "after":
        return -1
    serial = _serial(text)
    if serial is None:
        raise UsageError(f"{name} is a serial, not {text[:80]!r}")
    return serial


def _serial(text: str) -> int | None:
    """The serial a client writes, if it is one; more digits than any has are not even read."""
    if not text.isdecimal() or len(text) > _SERIAL_DIGITS or int(text) > SDSP_SERIAL_MAX:
        return None
    return int(text)


def _seconds(request: Request) -> float:
    text = request.query_params.get("wait", "0")
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text):
        raise UsageError(f"wait is a number of seconds, not {text[:80]!r}")
    return min(float(text), WAIT_MAX)
