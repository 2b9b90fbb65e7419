"""Where verified headers begin: sources of block headers, found by the scheme of their address.

A source is a plug-in of the group `syncline.shrex.headers`: a function (address, token, folder) → HeaderSource. What it
gives is not believed, only checked (rules/headers.py). Built in: JSON lines in a file, JSON-RPC over HTTP, memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from os import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

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
RPC_SECONDS: Final = 10.0  # without a byte; how long an answer may take in all is the follower's
RPC_HINT: Final = "for example http://127.0.0.1:26658"
FILE_BLOCK: Final = 65_536  # read from a file's end at first


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
    """One header a line, oldest first; what is appended is found at the next look, a last line without its end waits.

    Nothing of the file stays in memory, so it may be of any size, be replaced or begin anew: the head is its last line, and
    a height is looked for by halving, unless it is the line after the one asked for before.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0  # where the line after the one asked for last begins

    async def head(self) -> int:
        return await anyio.to_thread.run_sync(self._head)

    async def by_height(self, height: int) -> Header | None:
        return await anyio.to_thread.run_sync(self._find, height)

    async def close(self) -> None:
        pass

    def _head(self) -> int:
        with self._opened() as file:
            size, span = file.seek(0, SEEK_END), FILE_BLOCK
            while True:
                start = max(0, size - span)
                file.seek(start)
                lines = file.read(size - start).split(b"\n")[1 if start else 0 : -1]  # the first may be half a line
                if last := next((line for line in reversed(lines) if line.strip()), None):
                    return headers.decode(last).height
                if not start:
                    return 0
                if span > SHREX_HEADER_BYTES:
                    raise _too_long(start)
                span *= 2

    def _find(self, height: int) -> Header | None:
        with self._opened() as file:
            with suppress(DecodeError):  # another file may be there by now
                header, after = _line(file, self._next)
                if header is not None and header.height == height:
                    self._next = after
                    return header
            low, high = 0, file.seek(0, SEEK_END)
            while low < high:
                middle = (low + high) // 2
                begin = _line_begin(file, middle)
                header, after = _line(file, begin) if begin < high else (None, 0)
                if header is None or header.height > height:
                    high = middle
                elif header.height < height:
                    low = after
                else:
                    self._next = after
                    return header
            return None

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with self._path.open("rb") as file:
                yield file
        except OSError as error:
            raise UnavailableError(
                f"the file of headers cannot be read: {error.strerror}", about=str(self._path)
            ) from None


def _line(file: BinaryIO, begin: int) -> tuple[Header | None, int]:
    """The first header from here on, and where the line after it begins; none if there is no whole line."""
    file.seek(begin)
    while (line := file.readline(SHREX_HEADER_BYTES + 1)).endswith(b"\n"):
        if line.strip():
            return headers.decode(line), file.tell()
    if len(line) > SHREX_HEADER_BYTES:
        raise _too_long(begin)
    return None, begin


def _line_begin(file: BinaryIO, place: int) -> int:
    """Where the first line that does not begin before this place does begin."""
    if place == 0:
        return 0
    file.seek(place - 1)
    if len(file.readline(SHREX_HEADER_BYTES + 1)) > SHREX_HEADER_BYTES:
        raise _too_long(place)
    return file.tell()


def _too_long(place: int) -> DecodeError:
    problem = f"a line of more than {SHREX_HEADER_BYTES} bytes"
    return DecodeError(problem, reason=Reason.OVERSIZE, about=f"byte {place} of the file of headers")


class RpcSource:
    """A node's JSON-RPC over HTTP, with the methods `header.LocalHead` and `header.GetByHeight`."""

    def __init__(self, url: str, token: str = "", client: httpx.AsyncClient | None = None) -> None:
        self._url, self._where = url, _place(url)
        bearer = {"authorization": f"Bearer {token}"} if token else {}
        self._client = client or httpx.AsyncClient(timeout=RPC_SECONDS, follow_redirects=False)
        # Not compressed: a small answer must not become a large one before it is measured.
        self._headers = {"content-type": "application/json", "accept-encoding": "identity", **bearer}
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
                    raise UnavailableError(f"the header source answers {response.status_code}", about=self._where)
                return msgspec.json.decode(await _limited(response))
        except httpx.HTTPError as error:
            raise UnreachableError(
                f"the header source does not answer: {type(error).__name__}", about=self._where
            ) from None
        except headers.NOT_JSON:
            raise DecodeError("the header source does not answer in JSON", about=self._where) from None


def _place(url: str) -> str:
    """Scheme, host and port of an address: what of it may be told, as the rest can hold a password."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise SettingsError(f"the address of the header source cannot be read: {error}") from None
    if not parsed.host or not 0 < (parsed.port or 1) < 65_536:
        raise SettingsError("the address of a header source needs a host, and a port below 65536", hint=RPC_HINT)
    return f"{parsed.scheme}://{parsed.host}" + (f":{parsed.port}" if parsed.port else "")


async def _limited(response: httpx.Response) -> bytes:
    """The body, as long as it is not larger than an answer can be."""
    body = bytearray()
    with anyio.CancelScope() as reading:
        async for part in response.aiter_raw():
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
