"""The door of the HTTP server: Host, Origin, bearer token, size and number of requests, checked before any route.

Host and Origin are checked on loopback too, because a web page in the user's browser can reach it (DNS rebinding,
cross-site requests, cross-site WebSockets).
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from syncline.core.errors import UsageError
from syncline.core.limits import API_BODY_BYTES, API_REQUESTS
from syncline.core.settings import ApiSettings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def check_bind(api: ApiSettings) -> None:
    """Refuse to listen beyond loopback without a token."""
    if not is_loopback(api.host) and not api.token:
        raise UsageError(
            f"api.host {api.host} is open to others, and there is no api.token",
            hint="set SYNCLINE_API_TOKEN, or listen on 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """ASGI middleware around every route. `is_open` names paths that hold a secret themselves and need no token."""

    def __init__(
        self, app: App, api: ApiSettings, is_open: Sequence[Callable[[str], bool]] = (), public_url: str = ""
    ) -> None:
        self._app = app
        self._requests = 0  # being answered
        self._hosts = {"localhost", "127.0.0.1", "::1", api.host.lower(), *(host.lower() for host in api.hosts)}
        self._hosts |= {_host_name(_netloc(public_url))} - {""}
        self._origins = {origin.rstrip("/").lower() for origin in api.origins}
        self._token = api.token.encode()
        self._is_open = tuple(is_open)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = _headers(scope["headers"])
        status, message = self._refusal(scope, headers)
        if status == 0:
            self._requests += 1
            try:
                await self._app(scope, _capped(receive), send)
            finally:
                self._requests -= 1
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": message})
        else:
            await _answer(send, status, message)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[int, str]:
        host = headers.get(b"host", b"").decode("latin-1")
        if _host_name(host) not in self._hosts:
            return 421, "this Host is not served here; add it to api.hosts"
        origin = headers.get(b"origin")
        if origin is not None and not self._knows_origin(origin.decode("latin-1"), host):
            return 403, "this Origin may not call the API; add it to api.origins"
        if self._token and not any(is_open(scope["path"]) for is_open in self._is_open):
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
                return 401, "a bearer token is needed"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 20 or int(length) > API_BODY_BYTES:
            return 413, f"a body may have {API_BODY_BYTES} bytes"
        if self._requests >= API_REQUESTS:
            return 503, "too many requests are being answered; try again"
        return 0, ""

    def _knows_origin(self, origin: str, host: str) -> bool:
        scheme, _, _ = origin.lower().partition("://")
        ours = scheme in ("http", "https") and _netloc(origin).lower() == host.lower() != ""
        return ours or origin.lower() in self._origins


class BodyTooLargeError(Exception):
    """More came than the guard lets in."""


def _capped(receive: Receive) -> Receive:
    taken = 0

    async def capped() -> MutableMapping[str, Any]:
        nonlocal taken
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > API_BODY_BYTES:  # chunked bodies declare no length
                raise BodyTooLargeError
        return message

    return capped


def _netloc(url: str) -> str:
    """Host and port of an address; nothing, if it is none."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    return {name.lower(): value for name, value in pairs}


def _host_name(host: str) -> str:
    name = host.lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


async def _answer(send: Send, status: int, message: str) -> None:
    body = msgspec.json.encode({"error": {"type": "Refused", "message": message}})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
