"""What the relay adds to the node's HTTP API: the webhooks of prompting messages, listed, registered and removed."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from syncline.core.errors import UsageError
from syncline.core.ports import Sink, WebMount
from syncline.protocols.relay.rules.messages import is_topic
from syncline.protocols.relay.session.prompts import Prompts, webhook_of


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    url: str


class WebhookRoutes:
    """Behind the node's guard: only who may use the API may register addresses to be called."""

    def __init__(self, prompts: Prompts, sink: Sink) -> None:
        self._prompts = prompts
        self._sink = sink

    def mount(self) -> WebMount:
        routes = [
            Route("/webhooks", self.webhooks, methods=["GET", "POST"]),
            Route("/webhooks/{id}", self.remove, methods=["DELETE"]),
        ]
        return WebMount(prefix="/relay", app=Router(routes), is_open=lambda path: False)

    async def webhooks(self, request: Request) -> Response:
        """One route for both methods, so that a wrong one is told of both."""
        return await (self.register if request.method == "POST" else self.list)(request)

    async def list(self, request: Request) -> Response:
        return _json({"webhooks": [msgspec.to_builtins(each) for each in self._prompts.webhooks()]})

    async def register(self, request: Request) -> Response:
        try:
            wanted = msgspec.json.decode(await request.body(), type=Registration)
        except msgspec.DecodeError as error:
            raise UsageError(f"registering a webhook takes topic and url: {error}") from None
        if not is_topic(wanted.topic):
            raise UsageError("a topic is 64 lower-case hex digits", about="topic")
        if not wanted.url.startswith(("https://", "http://")) or len(wanted.url) > 2_000:
            raise UsageError("a webhook is an http or https URL", about="url")
        webhook = webhook_of(wanted.topic, wanted.url)
        await self._sink.receive([], [self._prompts.register(webhook)])
        return _json(msgspec.to_builtins(webhook), 201)

    async def remove(self, request: Request) -> Response:
        await self._sink.receive([], [self._prompts.remove(request.path_params["id"])])
        return Response(status_code=204)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
