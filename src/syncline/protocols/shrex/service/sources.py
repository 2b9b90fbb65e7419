"""Where verified headers begin: sources of block headers, found by the scheme of their address.

A source is a plug-in of the group `syncline.shrex.headers`: a function (address, token, folder) → HeaderSource. What it
gives is not believed, only checked (rules/headers.py). Built in: JSON lines in a file, JSON-RPC over HTTP, memory.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import anyio.to_thread
import httpx
import msgspec

from syncline.core.errors import DecodeError, SettingsError, UnavailableError, UnreachableError
from syncline.core.limits import SHREX_HEADER_BYTES, SHREX_HEADERS
from syncline.core.verdict import Reason
from syncline.protocols.shrex.wire import header as headers
from syncline.protocols.shrex.wire.header import Header

GROUP: Final = "syncline.shrex.headers"
RPC_SECONDS: Final = 10.0


class HeaderSource(Protocol):
    """Gives headers. Errors are UnreachableError or UnavailableError (try again), or DecodeError (it answers nonsense)."""

    async def head(self) -> int:
        """The newest height it has; 0 if none."""
        ...

    async def by_height(self, height: int) -> Header | None:
        """The header of a height, None if it has none."""
        ...

    async def close(self) -> None: ...


Open = Callable[[str, str, Path], HeaderSource]


def open_source(address: str, token: str, folder: Path) -> HeaderSource:
    """The source an address names."""
    scheme, colon, _ = address.partition(":")
    points = {point.name: point for point in entry_points(group=GROUP)}
    if not colon or (scheme not in points and scheme not in BUILT_IN):
        known = ", ".join(sorted({*points, *BUILT_IN}))
        raise SettingsError(f"shrex.headers cannot be {address[:80]!r}", hint=f"begin it with one of: {known}")
    opener: Open = points[scheme].load() if scheme in points else BUILT_IN[scheme]
    return opener(address, token, folder)


class MemorySource:
    """Headers given by hand, for tests, simulation and demos."""

    def __init__(self, *headers: Header) -> None:
        self.headers: dict[int, Header] = {}
        self.broken = False
        self.add(*headers)

    def add(self, *headers: Header) -> None:
        for header in headers:
            self.headers[header.height] = header
            if len(self.headers) > SHREX_HEADERS:
                del self.headers[min(self.headers)]

    async def head(self) -> int:
        await self._answer()
        return max(self.headers, default=0)

    async def by_height(self, height: int) -> Header | None:
        await self._answer()
        return self.headers.get(height)

    async def close(self) -> None:
        pass

    async def _answer(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.broken:
            raise UnavailableError("the header source fails")


class FileSource:
    """One header a line, oldest first. What is appended is found at the next look; a last line without its end waits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._headers: dict[int, Header] = {}

    async def head(self) -> int:
        await anyio.to_thread.run_sync(self._read)
        return max(self._headers, default=0)

    async def by_height(self, height: int) -> Header | None:
        await anyio.lowlevel.checkpoint()
        return self._headers.get(height)

    async def close(self) -> None:
        self._headers.clear()

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                while (line := file.readline(SHREX_HEADER_BYTES + 1)).endswith(b"\n"):
                    if line.strip():
                        self._keep(headers.decode(line))
                    self._position = file.tell()
        except OSError as error:
            raise UnavailableError(
                f"the file of headers cannot be read: {error.strerror}", about=str(self._path)
            ) from None

    def _keep(self, header: Header) -> None:
        self._headers[header.height] = header
        if len(self._headers) > SHREX_HEADERS:
            del self._headers[min(self._headers)]


class RpcSource:
    """A node's JSON-RPC over HTTP, with the methods `header.LocalHead` and `header.GetByHeight`."""

    def __init__(self, url: str, token: str = "", client: httpx.AsyncClient | None = None) -> None:
        bearer = {"authorization": f"Bearer {token}"} if token else {}
        self._client = client or httpx.AsyncClient(timeout=RPC_SECONDS, follow_redirects=False)
        self._url, self._headers = url, {"content-type": "application/json", **bearer}
        self._number = 0

    async def head(self) -> int:
        found = await self._call("header.LocalHead")
        return 0 if found is None else headers.from_document(found).height

    async def by_height(self, height: int) -> Header | None:
        found = await self._call("header.GetByHeight", height)
        if found is None:
            return None
        header = headers.from_document(found)
        if header.height != height:
            raise DecodeError(f"asked for height {height}, got {header.height}")
        return header

    async def close(self) -> None:
        await self._client.aclose()

    async def _call(self, method: str, *parameters: Any) -> Any:
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": list(parameters)}
        answer = await self._post(msgspec.json.encode(request))
        if not isinstance(answer, dict):
            raise DecodeError("not a JSON-RPC answer")
        if (error := answer.get("error")) is not None:
            raise UnavailableError(f"the header source says: {str(error)[:200]}", about=method)
        return answer.get("result")

    async def _post(self, body: bytes) -> Any:
        try:
            async with self._client.stream("POST", self._url, content=body, headers=self._headers) as response:
                if response.status_code != 200:
                    raise UnavailableError(f"the header source answers {response.status_code}", about=self._url)
                return msgspec.json.decode(await _limited(response))
        except httpx.HTTPError as error:
            raise UnreachableError(
                f"the header source does not answer: {type(error).__name__}", about=self._url
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise DecodeError("the header source does not answer in JSON", about=self._url) from None


async def _limited(response: httpx.Response) -> bytes:
    """The body, as long as it is not larger than an answer can be."""
    body = bytearray()
    with anyio.CancelScope() as reading:
        async for part in response.aiter_bytes():
            body += part
            if len(body) > SHREX_HEADER_BYTES:
                reading.cancel()  # leaving the loop instead would leave the client's generators half-run
    if len(body) > SHREX_HEADER_BYTES:
        raise DecodeError(f"an answer of more than {SHREX_HEADER_BYTES} bytes", reason=Reason.OVERSIZE)
    return bytes(body)


def open_memory(address: str, token: str, folder: Path) -> HeaderSource:
    return MemorySource()


def open_file(address: str, token: str, folder: Path) -> HeaderSource:
    return FileSource(folder / address.partition(":")[2].removeprefix("//"))


def open_rpc(address: str, token: str, folder: Path) -> HeaderSource:
    return RpcSource(address, token)


BUILT_IN: Final[dict[str, Open]] = {"memory": open_memory, "file": open_file, "http": open_rpc, "https": open_rpc}
