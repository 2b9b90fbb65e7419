"""Where history is found: at an address, in the transport, in the journal; one after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from syncline.core.clock import SystemClock
from syncline.core.errors import DecodeError, NotFoundError, RefusedError, UnreachableError
from syncline.core.record import Arrival
from syncline.core.verdict import Outcome, Reason
from syncline.journal import Journal
from syncline.networks.fetch import Fetcher, FetchPolicy
from syncline.protocols.sdsp.history import Histories, JournalHistory, TransportHistory, UriHistory
from syncline.protocols.sdsp.plugins import Capabilities, Delivery
from syncline.protocols.sdsp.rebuild import Status
from syncline.protocols.sdsp.rules import frame_id
from syncline.protocols.sdsp.session import Ready, Update
from syncline.protocols.sdsp.subscriber import follow
from syncline.protocols.sdsp.wire import Frame, decode
from syncline.transports.memory import MemoryHub
from tests.protocols.sdsp.scripted import Scripted

pytestmark = pytest.mark.anyio
LOCAL = FetchPolicy(allowed=("127.0.0.1",), tries=1)
FULL = b'{"uid":"a","serial":4,"data":{"n":4}}'
FIVE = b'{"uid":"a","serial":5,"ver":1,"alg":"X-mp","delta":{"n":5}}'
SIX = b'{"uid":"a","serial":6,"ver":2,"alg":"X-mp","delta":{"n":6}}'


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/history"
    server.shutdown()
    server.server_close()
    thread.join()


def pointing(payload: bytes, uri: str) -> Frame:
    return msgspec.structs.replace(decode(payload), history_uri=uri)


async def test_a_history_uri_answers_with_an_array_of_frames() -> None:
    with answering(b"[" + b", ".join([SIX, FULL, FIVE, FULL]) + b"]") as uri:
        found = await UriHistory(Fetcher(LOCAL)).history(pointing(SIX, uri))
    assert found == [SIX, FULL, FIVE, FULL]
    assert await UriHistory(Fetcher(LOCAL)).history(decode(SIX)) == []


@pytest.mark.parametrize("body", [b"{}", b"nothing", b'"[]"', b"\xff"])
async def test_an_answer_that_is_no_array_is_refused(body: bytes) -> None:
    with answering(body) as uri:
        with pytest.raises(DecodeError, match="history is not an array of frames"):
            await UriHistory(Fetcher(LOCAL)).history(pointing(SIX, uri))


async def test_a_history_uri_in_a_private_network_is_not_asked() -> None:
    with answering(b"[]") as uri:
        with pytest.raises(RefusedError, match="which is not public"):
            await UriHistory(Fetcher()).history(pointing(SIX, uri))


async def test_a_late_joiner_that_hears_only_a_delta_builds_the_object_from_its_history_uri() -> None:
    hub = MemoryHub()
    with answering(b"[" + b",".join([FIVE, FULL]) + b"]") as uri:
        newest = SIX[:-1] + f',"historyUri":"{uri}"}}'.encode()
        await hub.publish("a", newest, dedupe_id="6", expect_serial=None)
        async with follow(hub, "a", fetch=LOCAL) as object:
            assert await anext(object) == Ready(6, {"n": 6})


async def test_a_transport_answers_for_itself() -> None:
    hub = MemoryHub()
    for n, payload in enumerate((FULL, FIVE, SIX)):
        await hub.publish("a", payload, dedupe_id=str(n), expect_serial=None)
    history = TransportHistory(hub, "a")
    assert list(await history.history(decode(SIX))) == [FULL, FIVE, SIX]
    assert await history.last("a") == SIX
    assert await history.last("b") is None


def arrival(payload: bytes, verdict: Outcome = Outcome.ACCEPT) -> Arrival:
    frame = decode(payload)
    name = frame_id(frame.uid, frame.serial)
    return Arrival(
        protocol="sdsp", topic="a", kind="frame", id=name, key="a", seq=frame.serial, raw=payload,
        received_at=1, verdict=verdict, reason=None if verdict is Outcome.ACCEPT else Reason.FORK,
    )  # fmt: skip


async def test_the_journal_answers_with_accepted_frames_by_serial(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db", node="n", clock=SystemClock())
    try:
        forged = FIVE.replace(b'"n":5', b'"n":0')
        await journal.append([arrival(SIX), arrival(forged, Outcome.REJECT), arrival(FIVE), arrival(FULL)])
        history = JournalHistory(journal)
        assert await history.history(decode(SIX)) == [FULL, FIVE, SIX]
        assert await history.frames("a", 5) == [FIVE, SIX]
        assert await history.last("a") == SIX  # though another came last
        assert await history.last("b") is None
    finally:
        journal.close()


async def test_a_late_joiner_of_a_transport_that_keeps_nothing_begins_with_what_its_history_knows(
    tmp_path: Path,
) -> None:
    forgetful = Capabilities(
        max_payload=1_000, ordered=True, history=False, optimistic=False, durable=False, authenticated=True
    )
    seven = SIX.replace(b'"serial":6,"ver":2', b'"serial":7,"ver":3').replace(b'"n":6', b'"n":7')
    silent, telling = Scripted([], forgetful), Scripted([Delivery(seven, "alice")], forgetful)
    with closing(Journal.open(tmp_path / "journal.db", node="n", clock=SystemClock())) as journal:
        await journal.append([arrival(FULL), arrival(FIVE), arrival(SIX)])
        async with follow(silent, "a", history=["journal"], records=journal) as object:
            with anyio.fail_after(5):
                assert await anext(object) == Ready(6, {"n": 6})
        async with follow(telling, "a", history=["journal"], records=journal) as object:
            with anyio.fail_after(5):
                while (await anext(object)).serial < 7:  # which may be the first to be told of
                    pass
            assert object.value == {"n": 7}
    async with follow(silent, "a", history=[Fixed(UnreachableError("down"))]) as object:
        with anyio.move_on_after(0.05):
            await anext(object)
        assert object.status is Status.WAITING


class Fixed:
    """A history that has one answer, or one excuse."""

    def __init__(self, answer: Sequence[bytes] | Exception, last: bytes | None = None) -> None:
        self._answer = answer
        self._last = last
        self.asked = 0

    async def history(self, frame: Frame) -> Sequence[bytes]:
        self.asked += 1
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    async def last(self, uid: str) -> bytes | None:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._last


async def test_histories_are_asked_in_order_until_nothing_is_missing() -> None:
    down, partial, rest, spare = Fixed(UnreachableError("down")), Fixed([FULL, b"?"]), Fixed([FIVE, SIX]), Fixed([])
    together = Histories([down, partial, rest, spare])
    assert await together.history(decode(SIX)) == [FULL, b"?", FIVE, SIX]
    assert [each.asked for each in (down, partial, rest, spare)] == [1, 1, 1, 0]


async def test_when_no_history_answers_the_last_excuse_is_given() -> None:
    with pytest.raises(UnreachableError, match="down"):
        await Histories([Fixed([]), Fixed(UnreachableError("down"))]).history(decode(SIX))
    with pytest.raises(NotFoundError, match="there is no history to ask"):
        await Histories([]).history(decode(SIX))
    assert await Histories([Fixed([]), Fixed([], FIVE)]).last("a") == FIVE


async def test_updates_follow_a_rebuilt_object() -> None:
    hub = MemoryHub()
    await hub.publish("a", FIVE, dedupe_id="5", expect_serial=None)
    async with follow(hub, "a", history=[Fixed([FULL])]) as object:
        assert await anext(object) == Ready(5, {"n": 5})
        await hub.publish("a", SIX, dedupe_id="6", expect_serial=None)
        assert await anext(object) == Update(6, {"n": 5}, {"n": 6})
