"""Who gets in: the checks on an opening request, before anything of the session sees it.

Token, origin, project and room are looked at here; what a client may do afterwards is decided by the session.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, urlsplit

from websockets.datastructures import MultipleValuesError
from websockets.http11 import Request

from syncline.core.clock import Clock
from syncline.core.errors import RefusedError, SettingsError
from syncline.core.verdict import Reason
from syncline.protocols.relay.rules.tokens import canonical_address, check_token
from syncline.protocols.relay.settings import LINK_PATH, RelaySettings

CLIENT_PATH: Final = "/"
HEALTH_PATH: Final = "/health"
Answer = tuple[HTTPStatus, str]


def check_settings(settings: RelaySettings) -> None:
    """Refuse to listen beyond loopback in the clear, unless somebody has thought about it."""
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise SettingsError("relay.tls_certificate and relay.tls_key go together", about="relay.tls_key")
    if not is_loopback(settings.host) and not settings.tls_certificate and not settings.plain:
        raise SettingsError(
            f"relay.host {settings.host} is open to others, and there is no TLS",
            hint="set relay.tls_certificate and relay.tls_key, or relay.plain=true behind a reverse proxy that has TLS",
            about="relay.host",
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def audiences_of(settings: RelaySettings, host: str, port: int) -> frozenset[str]:
    """The addresses a token may name: the ones given, and on loopback where we listen."""
    given = [settings.url, *settings.audiences]
    scheme = "wss" if settings.tls_certificate else "ws"
    name = f"[{host}]" if ":" in host else host
    local = [f"{scheme}://{each}:{port}" for each in {name, "localhost"}] if is_loopback(host) else []
    return frozenset(canonical_address(url) for url in (*given, *local) if url)


class Visit:
    """A connection that asks to come in; `address` is set while it counts as inside."""

    def __init__(self, doors: Doors, peer: str) -> None:
        self._doors = doors
        self.peer = peer
        self.address: str | None = None

    def decide(self, request: Request) -> Answer | None:
        return self._doors.decide(request, self)


class Doors:
    """The checks of one running server, and who is inside."""

    def __init__(self, settings: RelaySettings, audiences: frozenset[str], clock: Clock) -> None:
        self._settings = settings
        self._audiences = audiences
        self._clock = clock
        self._inside: Counter[str] = Counter()
        self.is_open = True  # False while draining
        self.turned_away: Counter[str] = Counter()

    @contextmanager
    def visit(self, peer: str) -> Iterator[Visit]:
        """One connection from `peer`, from its request to its end."""
        visit = Visit(self, peer)
        try:
            yield visit
        finally:
            if visit.address is not None:
                self._inside[visit.address] -= 1
                if not self._inside[visit.address]:
                    del self._inside[visit.address]

    def decide(self, request: Request, visit: Visit) -> Answer | None:
        """A plain HTTP answer for what is not a WebSocket of ours; None to go on, and the visitor is inside."""
        path = urlsplit(request.path).path
        if path == HEALTH_PATH:
            return (HTTPStatus.OK, "ok\n") if self.is_open else (HTTPStatus.SERVICE_UNAVAILABLE, "draining\n")
        if path not in (CLIENT_PATH, LINK_PATH):
            return HTTPStatus.NOT_FOUND, "clients connect at /, servers at /link\n"
        if not self.is_open:
            return HTTPStatus.SERVICE_UNAVAILABLE, "this server is stopping\n"
        if not all(self._knows_origin(origin, request) for origin in self._headers(request, "Origin")):
            self.turned_away["origin"] += 1
            return HTTPStatus.FORBIDDEN, "this Origin may not connect; see relay.origins\n"
        if self._inside.total() >= self._settings.connections:
            self.turned_away["connections"] += 1
            return HTTPStatus.SERVICE_UNAVAILABLE, "this server has no room for more connections\n"
        address = self._address(request, visit.peer)
        if self._inside[address] >= self._settings.connections_per_address:
            self.turned_away["connections_per_address"] += 1
            return HTTPStatus.TOO_MANY_REQUESTS, "too many connections from this address\n"
        self._inside[address] += 1
        visit.address = address
        return None

    def is_link(self, request: Request) -> bool:
        return urlsplit(request.path).path == LINK_PATH

    def client(self, request: Request) -> str:
        """The did:key of the client that opens this connection; raises RefusedError."""
        given = parse_qs(urlsplit(request.path).query)
        tokens = given.get("auth", []) or [
            text.partition(" ")[2] for text in self._headers(request, "Authorization") if text.startswith("Bearer ")
        ]
        try:
            if len(tokens) != 1:
                raise RefusedError("a token is needed: ?auth=JWT", reason=Reason.UNAUTHORISED)
            claims = check_token(tokens[0].strip(), audiences=self._audiences, now=self._clock.now())
            allowed = self._settings.project_ids
            if allowed and given.get("projectId", [""])[-1] not in allowed:
                raise RefusedError("this project may not connect here", reason=Reason.UNAUTHORISED)
        except RefusedError as error:
            self.turned_away[error.reason.value] += 1
            raise
        return claims.iss

    def _address(self, request: Request, peer: str) -> str:
        """The IP address to count a connection under."""
        forwarded = self._headers(request, "X-Forwarded-For") if self._settings.forwarded else []
        return forwarded[-1].rpartition(",")[2].strip()[:64] if forwarded else peer

    def _knows_origin(self, origin: str, request: Request) -> bool:
        """Programs send no origin. A page may connect if it is listed, or is itself on this machine or at our address."""
        allowed = self._settings.origins
        if "*" in allowed or origin.rstrip("/").lower() in {each.rstrip("/").lower() for each in allowed}:
            return True
        parts = urlsplit(origin)
        host = next(iter(self._headers(request, "Host")), "")
        return parts.scheme in ("http", "https") and parts.netloc != "" and parts.netloc.lower() == host.lower()

    def _headers(self, request: Request, name: str) -> list[str]:
        try:
            return list(request.headers.get_all(name))
        except MultipleValuesError:
            return []

    def statistics(self) -> dict[str, int | float]:
        return {"turned_away": self.turned_away.total()}
