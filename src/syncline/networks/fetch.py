"""Fetches over HTTP(S) what a message from a stranger points to, without becoming the stranger's tool.

A name is looked up once per connection and only the vetted addresses are connected to (the name still goes into Host
and SNI); every redirect is vetted again; size is counted after decompression. What the bytes mean is up to the caller.
"""

from __future__ import annotations

import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import anyio
import httpcore
import httpx
import msgspec

from syncline.core import limits
from syncline.core.errors import NotFoundError, RefusedError, SynclineError, UnavailableError, UnreachableError
from syncline.core.retry import Backoff
from syncline.core.verdict import Reason
from syncline.networks.addresses import may_connect, networks

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]  # host, port → numeric addresses

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_HEADERS: Final = [(b"Accept-Encoding", b"gzip"), (b"User-Agent", b"syncline"), (b"Accept", b"*/*")]


class FetchPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What may be fetched, and how much patience and room it gets."""

    schemes: tuple[str, ...] = ("https", "http")
    allowed: tuple[str, ...] = ()  # networks that are reachable although not public
    max_bytes: int = limits.FETCH_BYTES
    seconds: float = float(limits.FETCH_SECONDS)
    tries: int = limits.FETCH_TRIES
    redirects: int = limits.FETCH_REDIRECTS
    backoff: Backoff = Backoff()


class Fetched(msgspec.Struct, frozen=True):
    """A body, and where in the end it came from."""

    url: str
    content: bytes
    content_type: str


async def addresses_of(host: str, port: int) -> list[str]:
    """The machine's own name look-up."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Fetcher:
    """Fetches under one policy. Connections are not kept: a name is vetted each time it is used.

    Raises RefusedError for what the policy or the server forbids, NotFoundError when it is not there (neither is tried
    again); UnreachableError when nobody answers in time and UnavailableError when the server is in trouble.
    """

    def __init__(
        self,
        policy: FetchPolicy | None = None,
        *,
        resolve: Resolver = addresses_of,
        tls: ssl.SSLContext | None = None,
        random: Random | None = None,
    ) -> None:
        self.policy = policy or FetchPolicy()
        networks(self.policy.allowed)  # what is no network is said now, not at the first fetch
        self._resolve = resolve
        self._tls = tls
        self._random = random

    async def fetch(self, url: str) -> Fetched:
        """The body at `url`, decompressed."""
        spans = self.policy.backoff.spans(self._random)
        for left in reversed(range(self.policy.tries)):
            try:
                with anyio.fail_after(self.policy.seconds):
                    return await self._follow(url)
            except TimeoutError:
                problem: SynclineError = UnreachableError(f"no answer in {self.policy.seconds:g} s", about=url)
            except SynclineError as error:
                if not error.retry:
                    raise
                problem = error
            if left:
                await anyio.sleep(next(spans))
        raise problem

    async def _follow(self, url: str) -> Fetched:
        """One try: `url` and what it redirects to."""
        here = self._vetted(url, before=None)
        for _ in range(self.policy.redirects + 1):
            target = await self._get(here)
            if isinstance(target, Fetched):
                return target
            here = self._vetted(target, before=here)
        raise RefusedError(f"more than {self.policy.redirects} redirects", reason=Reason.FORBIDDEN_ADDRESS, about=url)

    def _vetted(self, url: str, *, before: httpx.URL | None) -> httpx.URL:
        try:
            parsed = httpx.URL(url) if before is None else before.join(url)
            host = parsed.host  # raises for a broken international name
        except (httpx.InvalidURL, ValueError) as error:
            raise _forbidden(f"not a URL: {error}", url) from None
        if parsed.scheme not in self.policy.schemes or not host:
            raise _forbidden(f"only {' and '.join(self.policy.schemes)} are fetched", url)
        if parsed.userinfo:
            raise _forbidden("credentials in a URL are not sent", parsed.copy_with(userinfo=b"").raw_path.decode())
        if before is not None and before.scheme == "https" and parsed.scheme != "https":
            raise _forbidden("a redirect from https to http", url)
        return parsed

    async def post(self, url: str, content: bytes, headers: Mapping[str, str]) -> int:
        """Hand `content` over in one try and return the status; the answer's body is not read, redirects not followed.

        Raises RefusedError for what the policy forbids, UnreachableError when nobody answers in time.
        """
        here = self._vetted(url, before=None)
        extra = [(name.encode(), value.encode()) for name, value in headers.items()]
        fields = [*extra, (b"Content-Length", str(len(content)).encode())]
        try:
            with anyio.fail_after(self.policy.seconds):
                async with self._exchange("POST", here, fields, content) as response:
                    return int(response.status)
        except TimeoutError:
            raise UnreachableError(f"no answer in {self.policy.seconds:g} s", about=url) from None

    async def _get(self, url: httpx.URL) -> Fetched | str:
        """The body at `url`, or where it redirects to."""
        async with self._exchange("GET", url, _HEADERS, None) as response:
            return await self._answer(url, response)

    @asynccontextmanager
    async def _exchange(
        self, method: str, url: httpx.URL, fields: Sequence[tuple[bytes, bytes]], content: bytes | None
    ) -> AsyncIterator[httpcore.Response]:
        """One request on a connection of its own, to a vetted address."""
        headers = [(b"Host", url.netloc), *fields]
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        backend = _VettingBackend(self._resolve, self.policy.allowed)
        try:
            async with (
                httpcore.AsyncConnectionPool(ssl_context=self._tls, network_backend=backend, max_connections=1) as pool,
                pool.stream(method, target, headers=headers, content=content) as response,
            ):
                yield response
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
            raise UnreachableError(f"{type(error).__name__}: {error}", about=str(url)) from None

    async def _answer(self, url: httpx.URL, response: httpcore.Response) -> Fetched | str:
        fields = {name.lower(): value.decode("latin-1") for name, value in response.headers}
        if response.status in _REDIRECTS and b"location" in fields:
            return fields[b"location"]
        if response.status in _TRANSIENT:
            raise UnavailableError(f"answered {response.status}", about=str(url))
        if response.status in (401, 403):
            raise RefusedError(f"answered {response.status}", reason=Reason.UNAUTHORISED, about=str(url))
        if response.status != 200:
            raise NotFoundError(f"answered {response.status}", about=str(url))
        length = fields.get(b"content-length", "")
        if length.isdecimal() and int(length) > self.policy.max_bytes:
            raise _oversize(self.policy.max_bytes, str(url))
        collected = _Body(fields.get(b"content-encoding", ""), self.policy.max_bytes, url)
        with anyio.CancelScope() as reading:
            async for chunk in response.aiter_stream():
                if not collected.feed(chunk):
                    reading.cancel()  # leaving the loop instead would leave httpcore's generators half-run
        return Fetched(str(url), collected.finish(), fields.get(b"content-type", ""))


class _Body:
    """Collects a body up to a cap, unpacking as it goes: at most one byte past the cap is ever made."""

    def __init__(self, coding: str, max_bytes: int, url: httpx.URL) -> None:
        if coding.strip().lower() not in ("", "identity", "gzip", "x-gzip"):
            raise RefusedError(f"content coding {coding!r} was not asked for", reason=Reason.MALFORMED, about=str(url))
        self._packed = coding.strip().lower() in ("gzip", "x-gzip")
        self._inflate = zlib.decompressobj(wbits=31)
        self._content = bytearray()
        self._max_bytes = max_bytes
        self._url = str(url)
        self._problem: SynclineError | None = None

    def feed(self, chunk: bytes) -> bool:
        """Whether more is wanted."""
        if self._problem is None:
            try:
                self._content += self._unpacked(chunk) if self._packed else chunk
            except zlib.error as error:
                self._problem = RefusedError(f"not gzip: {error}", reason=Reason.MALFORMED, about=self._url)
            if len(self._content) > self._max_bytes:
                self._problem = _oversize(self._max_bytes, self._url)
        return self._problem is None

    def finish(self) -> bytes:
        if self._problem is not None:
            raise self._problem
        if self._packed and not self._inflate.eof:
            raise UnreachableError("the body ends early", about=self._url)
        return bytes(self._content)

    def _unpacked(self, chunk: bytes) -> bytes:
        room = self._max_bytes + 1 - len(self._content)
        pieces = []
        while chunk and room > 0:
            if self._inflate.eof:  # gzip allows several members one after the other
                self._inflate = zlib.decompressobj(wbits=31)
            pieces.append(self._inflate.decompress(chunk, room))
            room -= len(pieces[-1])
            chunk = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return b"".join(pieces)


class _VettingBackend(httpcore.AsyncNetworkBackend):
    """Looks a name up once, refuses it if any of its addresses is forbidden, and connects to those very addresses."""

    def __init__(self, resolve: Resolver, allowed: tuple[str, ...]) -> None:
        self._resolve = resolve
        self._allowed = allowed
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._resolve(host, port)
        for address in addresses:
            if not may_connect(address, self._allowed):
                raise _forbidden(f"{host} leads to {address}, which is not public", host)
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(self, path: str, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        raise _forbidden("a local socket", path)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


def _forbidden(message: str, about: str) -> RefusedError:
    return RefusedError(
        message,
        reason=Reason.FORBIDDEN_ADDRESS,
        hint="an operator can allow networks with the setting sdsp.fetch_networks",
        about=about,
    )


def _oversize(max_bytes: int, url: str) -> RefusedError:
    return RefusedError(f"larger than {max_bytes} bytes", reason=Reason.OVERSIZE, about=url)
