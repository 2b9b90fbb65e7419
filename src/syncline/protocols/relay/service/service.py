"""The relay as a service of a node: start, publish, report, and stop without dropping what was taken in."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import structlog

from syncline.core.errors import UsageError
from syncline.core.keys import NodeKey
from syncline.core.limits import RELAY_PROMPTS, RELAY_WEBHOOKS
from syncline.core.ports import Ground, StateChange, WebMount
from syncline.protocols.relay.service import doors, server
from syncline.protocols.relay.service.dialer import keep_linked
from syncline.protocols.relay.service.driver import Driver, counter, restore
from syncline.protocols.relay.service.webhooks import Webhooks
from syncline.protocols.relay.session import durable, prompts
from syncline.protocols.relay.session.cache import Entry
from syncline.protocols.relay.session.handshake import Identity
from syncline.protocols.relay.session.hub import Hub
from syncline.protocols.relay.session.outbox import Load
from syncline.protocols.relay.settings import RelaySettings, peer_of, server_key
from syncline.protocols.relay.wire.messages import decode
from syncline.protocols.relay.wire.rpc import PublishParams

log = structlog.get_logger()
RESTARTING = 1012


class RelayService:
    """Implements `core.ports.Service`."""

    def __init__(self, ground: Ground, *, random: Random | None = None, tls: ssl.SSLContext | None = None) -> None:
        settings: RelaySettings = ground.settings
        doors.check_settings(settings)
        self._ground = ground
        self._settings = settings
        self._random = random or SystemRandom()
        self._tls = tls  # for dialing; None trusts what the system trusts
        self._peers = [peer_of(text) for text in settings.peers]
        trusted = {server_key(text, "relay.trusted") for text in settings.trusted}
        self._known = frozenset(trusted | {key for peer in self._peers for key in peer.keys})
        self._epoch = max(ground.clock.now() // 1_000, counter(ground.state, durable.EPOCH) + 1)
        self.hub = Hub(
            identity=Identity(self._link_key(), self._epoch, settings.name, self._former_key()),
            quotas=settings.quotas(),
            clock=ground.clock,
            random=self._random,
            position=counter(ground.state, durable.POSITION),
        )
        self._driver = Driver(self.hub, ground)
        self._server = server.Server(settings, self._driver, ground.clock, lambda key: key in self._known)
        self._webhooks = Webhooks(
            self._driver, self.hub.identity.key, ground.clock, tuple(settings.webhook_networks), self._random
        )
        self._doors: doors.Doors | None = None
        self.address: tuple[str, int] = ("", 0)  # where it listens, once it does

    @property
    def url(self) -> str:
        """The address of this server as programs on this machine dial it."""
        host = f"[{self.address[0]}]" if ":" in self.address[0] else self.address[0]
        return f"{'wss' if self._settings.tls_certificate else 'ws'}://{host}:{self.address[1]}"

    def _link_key(self) -> NodeKey:
        return NodeKey.load(self._file(self._settings.link_key)) if self._settings.link_key else self._ground.key

    def _former_key(self) -> NodeKey | None:
        former = self._settings.link_key_former
        return NodeKey.load(self._file(former)) if former else None

    def _file(self, name: str) -> Path:
        return self._ground.folder / name

    async def run(self, *, started: Callable[[], None]) -> None:
        """Serve until cancelled; then finish what was begun, tell everybody, and end."""
        settings = self._settings
        await self._recall()
        tls = None
        if settings.tls_certificate:
            tls = server.tls_context(self._file(settings.tls_certificate), self._file(settings.tls_key))
        self.address = await self._server.bind(tls)
        audiences = doors.audiences_of(settings, *self.address)
        self._doors = doors.Doors(settings, audiences, self._ground.clock)
        scopes: list[anyio.CancelScope] = []

        async def shielded(job: Callable[[], Awaitable[None]]) -> None:
            with anyio.CancelScope(shield=True) as scope:  # they end after the drain, not before
                scopes.append(scope)
                await job()

        async with anyio.create_task_group() as tasks:
            for job in (
                partial(self._server.serve, self._doors),
                self._driver.commit,
                self._driver.load,
                self._tick,
                self._webhooks.run,
            ):
                tasks.start_soon(shielded, job)
            for peer in self._peers:
                dial = partial(keep_linked, peer, self._server, self._driver, random=self._random, tls=self._tls)
                tasks.start_soon(shielded, dial)
            log.info("relay_listening", url=self.url, peers=len(self._peers))
            started()
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._drain()
                for scope in scopes:
                    scope.cancel()

    async def _recall(self) -> None:
        """Take in what a former run left, and note that this one has begun."""
        state = self._ground.state
        await anyio.to_thread.run_sync(restore, self.hub, state, self._settings.cached_messages)
        for _, value in state.scan_state(prompts.HOOKS, limit=RELAY_WEBHOOKS):
            self.hub.prompts.restore(msgspec.json.decode(value, type=prompts.Webhook))
        self._resume_prompts()
        await self._ground.sink.receive([], [durable.counter_change(durable.EPOCH, self._epoch)])

    def _resume_prompts(self) -> None:
        """Webhook calls that a former run still owed."""
        owed = [key for key, _ in self._ground.state.scan_state(prompts.OWED, limit=RELAY_PROMPTS)]
        cached = {entry.position: entry for entry in self.hub.cache.entries()} if owed else {}
        for key in owed:
            entry = cached.get(int.from_bytes(key[:8], "big"))
            webhook = self.hub.prompts.find(entry.topic, key[8:].hex()) if entry is not None else None
            if entry is not None and webhook is not None:
                self.hub.outbox.loads.append(Load([entry], partial(self._resume, webhook, entry)))

    def _resume(self, webhook: prompts.Webhook, entry: Entry, bodies: Sequence[bytes | None]) -> None:
        if bodies[0] is not None:
            self.hub.prompts.resume(webhook, entry, decode(bodies[0]))

    async def _tick(self) -> None:
        while True:
            await anyio.sleep(1.0)
            self.hub.tick()
            self._server.tick()
            self._driver.pump()

    async def _drain(self) -> None:
        """Let nobody in, answer what was asked, write down what was acknowledged, then say goodbye."""
        if self._doors is not None:
            self._doors.is_open = False
        self.hub.requests.is_draining = True
        with anyio.move_on_after(self._settings.drain_seconds):
            await self._driver.drain()
        self._server.close_all(RESTARTING, "this server is stopping")
        with anyio.move_on_after(2):
            await self._server.all_ended()
        log.info("relay_drained", unfinished=len(self.hub.queue), open=self._server.open)

    async def publish(self, request: Mapping[str, Any], state: Sequence[StateChange] = ()) -> Mapping[str, Any]:
        """Publish as this node: `topic`, `message`, and optionally `ttl`, `tag`, `prompt`."""
        try:
            params = msgspec.convert(dict(request), PublishParams)
        except msgspec.ValidationError as error:
            raise UsageError(f"publishing on a relay takes topic and message: {error}") from None
        answer = _Waiting()
        self.hub.publish(params, answer, state)
        self._driver.pump()
        await answer.event.wait()
        if answer.error is not None:
            raise answer.error
        return {"topic": params.topic, "published": True}

    def peers(self) -> list[Mapping[str, Any]]:
        return [
            {
                "peer": link.peer,
                "name": link.neighbour.name if link.neighbour else "",
                "kind": "server",
                "dialed": link.dialed,
                "topics": len(known.topics) if (known := self.hub.routing.server(link.peer)) else 0,
                "unconfirmed": link.unconfirmed,
            }
            for link in self.hub.links.open_links()
        ]

    def statistics(self) -> Mapping[str, int | float]:
        return {
            **self.hub.statistics(),
            **(self._doors.statistics() if self._doors is not None else {}),
            "commits": self._driver.commits,
            "failed_commits": self._driver.failed_commits,
            "faults": self._driver.faults + self._server.faults,
            "webhooks_called": self._webhooks.made,
            "webhooks_failed": self._webhooks.failed,
        }

    def web(self) -> WebMount | None:
        from syncline.protocols.relay.service.web import WebhookRoutes

        return WebhookRoutes(self.hub.prompts, self._ground.sink).mount()


class _Waiting:
    """Implements the session's Reply for a task that waits."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.error: Exception | None = None

    def ok(self, value: Any) -> None:
        self.event.set()

    def failed(self, error: Exception) -> None:
        self.error = error
        self.event.set()
