"""Serves the dashboard's files. They hold no data and no secret, so they need no token; their data does.

The content security policy lets the page load and run nothing but its own files, whatever a message contains.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from importlib.resources import files
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from syncline.core.ports import WebMount

TYPES: Final = {"html": "text/html; charset=utf-8", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class Pages:
    """ASGI application of the static files, `/` and `/static/…`, and of fixed documents by their path."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = {path: msgspec.json.encode(document) for path, document in documents.items()}
        folder = files("syncline.web").joinpath("static")
        self._files = {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.response(scope)(scope, receive, send)

    def response(self, scope: MutableMapping[str, Any]) -> Response:
        path = scope["path"]
        if path in self._documents and scope["method"] in ("GET", "HEAD"):
            return Response(self._documents[path], media_type="application/json")
        name = "index.html" if path in ("", "/") else path.removeprefix("/static/")
        content = self._files.get(name)
        if content is None and path not in self._documents:
            raise HTTPException(404, "there is nothing of that name")
        if content is None or scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, "only to be read", {"allow": "GET, HEAD"})
        return Response(content, headers={**HEADERS, "content-type": TYPES[name.rpartition(".")[2]]})


def is_page(path: str) -> bool:
    """Whether a path is one of the page's own files."""
    return path == "/" or path.startswith("/static/")


def mount(documents: Mapping[str, Any]) -> WebMount:
    return WebMount(prefix="", app=Pages(documents), is_open=is_page)
