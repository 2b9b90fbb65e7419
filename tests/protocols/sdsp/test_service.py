"""SDSP inside a node: publish requests, what the journal keeps of them, and the routes below /sdsp."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import apsw
import httpx
import pytest

from syncline.core import limits
from syncline.core.errors import ConflictError, RefusedError, UnavailableError
from syncline.core.keys import NodeKey
from syncline.core.limits import HOUR
from syncline.core.ports import Ground, RecordQuery
from syncline.journal import Journal
from syncline.networks import websocket
from syncline.node.judge import Judges
from syncline.node.receive import Receiver
from syncline.protocols.sdsp import shelf, tips
from syncline.protocols.sdsp.deltas import Deltas
from syncline.protocols.sdsp.deltas.base import Budget
from syncline.protocols.sdsp.plugins import Location
from syncline.protocols.sdsp.publisher import Publisher
from syncline.protocols.sdsp.rules import frame_id
from syncline.protocols.sdsp.service import PLUGIN, SdspService, SdspSettings
from syncline.protocols.sdsp.session import Policy, Ready, Update
from syncline.protocols.sdsp.subscriber import follow
from syncline.protocols.sdsp.tips import KEPT
from syncline.protocols.sdsp.wire import ObjectKind
from syncline.testing.clock import FakeClock
from syncline.transports.http import open_http
from tests.nodes import NodeThread

PUBLISH = "/api/v1/publish/sdsp"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[NodeThread]:
    node = NodeThread(tmp_path, {"sdsp": PLUGIN}).start()
    yield node
    node.stop()


@pytest.fixture
def client(served: NodeThread) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=10) as client:
        yield client


def publish(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post(PUBLISH, json=fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refused(client: httpx.Client, **fields: Any) -> tuple[int, str, str]:
    answer = client.post(PUBLISH, json=fields)
    error = answer.json()["error"]
    return answer.status_code, error["type"], error.get("reason", "")


def frames(client: httpx.Client, uid: str, **parameters: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/sdsp/{uid}/frames", params=parameters).json()
    return found


def rows(served: NodeThread) -> list[tuple[str, str, str | None, int | None]]:
    found = served.node.journal.read(RecordQuery(protocol="sdsp"))
    return [(record.verdict.value, record.key, record.reason, record.seq) for record in found]


def test_put_creates_an_object_and_then_updates_it(client: httpx.Client, served: NodeThread) -> None:
    first = publish(client, data={"alt": 550.5, "pad": "x" * 100}, topic="sats")
    uid = first["uid"]
    assert (first["serial"], first["ver"], first["kind"], first["published"]) == (0, 0, "full", True)
    again = publish(client, uid=uid, data={"alt": 549.7, "pad": "x" * 100})
    assert (again["serial"], again["ver"], again["kind"], again["topic"]) == (1, 1, "delta", "sats")
    same = publish(client, uid=uid, data={"alt": 549.7, "pad": "x" * 100})
    assert same == {"uid": uid, "serial": 1, "topic": "sats", "published": False}
    state = client.get(f"/sdsp/{uid}")
    assert state.json() == {
        "uid": uid,
        "serial": 1,
        "ver": 1,
        "topic": "sats",
        "kind": "json",
        "status": "synced",
        "oldest": 0,
        "value": {"alt": 549.7, "pad": "x" * 100},
    }
    assert state.headers["etag"] == '"1"'
    assert rows(served) == [("accept", uid, None, 0), ("accept", uid, None, 1)]


def test_every_way_to_publish(client: httpx.Client) -> None:
    publish(client, do="create", uid="a", data={"n": 0, "pad": "x" * 100})
    publish(client, do="update", uid="a", data={"n": 1, "pad": "x" * 100})
    publish(client, do="delta", uid="a", delta=[{"op": "replace", "path": "/n", "value": 2}], alg="jp")
    publish(client, do="replace", uid="a", data={"n": 3}, meta={"why": "test"})
    publish(client, do="freeze", uid="a")
    kept = frames(client, "a", first=0)
    assert [(frame["serial"], frame.get("ver", 0)) for frame in kept] == [(0, 0), (1, 1), (2, 2), (3, 0), (4, 1)]
    assert (kept[3]["meta"], kept[4]["frozen"]) == ({"why": "test"}, True)
    assert [client.get("/sdsp/a", params={"at": n}).json()["value"]["n"] for n in range(5)] == [0, 1, 2, 3, 3]
    assert client.get("/sdsp/a").json()["status"] == "frozen"


def test_text_and_binary_objects(client: httpx.Client) -> None:
    publish(client, uid="t", data="hello")
    publish(client, uid="b", data=base64.b64encode(b"\0\xff" * 100).decode(), kind="binary")
    publish(client, uid="b", data=base64.b64encode(b"\0\xff" * 100 + b"!").decode(), kind="binary")
    assert client.get("/sdsp/t").json()["kind"] == "text"
    binary = client.get("/sdsp/b").json()
    assert (binary["kind"], binary["encoding"], binary["serial"]) == ("binary", "base64", 1)
    assert base64.b64decode(binary["value"]) == b"\0\xff" * 100 + b"!"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"do": "update", "uid": "nobody", "data": 1}, (404, "NotFoundError", "")),
        ({"do": "create", "uid": "a", "data": 1}, (409, "ConflictError", "")),
        ({"do": "create", "uid": "new"}, (400, "UsageError", "")),
        ({"do": "delta", "uid": "a", "delta": [{"op": "remove", "path": "/no"}], "alg": "jp"}, (400, "UsageError", "")),
        ({"do": "delta", "uid": "a", "delta": 1}, (400, "UsageError", "")),
        ({"do": "explode", "uid": "a"}, (400, "UsageError", "")),
        ({"uid": "a", "data": 1, "colour": "red"}, (400, "UsageError", "")),
        ({"uid": "a", "data": {"n": 2}, "expect_serial": 7}, (409, "ConflictError", "")),
        ({"uid": "a", "data": "%%%", "kind": "binary"}, (400, "UsageError", "")),
        ({"uid": "big", "data": "x" * 1_100_000}, (400, "UsageError", "")),
    ],
)
def test_what_cannot_be_published_is_said(
    client: httpx.Client, fields: dict[str, Any], expected: tuple[int, str, str]
) -> None:
    publish(client, uid="a", data={"n": 1})
    assert refused(client, **fields) == expected
    assert len(frames(client, "a", first=0)) == 1


def test_a_frozen_object_takes_no_more_from_anybody(client: httpx.Client, served: NodeThread) -> None:
    publish(client, uid="a", data=1)
    publish(client, uid="a", do="freeze")
    assert refused(client, uid="a", data=2) == (409, "FrozenError", "")
    publish(client, frame={"uid": "b", "serial": 0, "data": 1})
    publish(client, frame={"uid": "b", "serial": 1, "ver": 1, "frozen": True})
    assert refused(client, frame={"uid": "b", "serial": 2, "data": 2}) == (409, "FrozenError", "")
    assert rows(served)[-1] == ("reject", "b", "frozen", 2)


def test_ready_frames_are_kept_to_the_byte(client: httpx.Client, served: NodeThread) -> None:
    text = '{"uid":"r", "serial":0,\t"data":{"n":1.50e1},"X-more":[1,2]}'
    assert publish(client, frame=text, topic="t")["serial"] == 0
    [record] = served.node.journal.read(RecordQuery(protocol="sdsp"))
    assert record.raw == text.encode()
    assert client.get("/sdsp/r").json()["value"] == {"n": 15.0}
    decoded = client.get(f"/api/v1/records/{record.epoch}/{record.lsn}").json()
    assert decoded["decoded"]["X-more"] == [1, 2]


def test_a_repeated_frame_is_kept_once_and_another_with_its_serial_is_a_conflict(
    client: httpx.Client, served: NodeThread
) -> None:
    frame = {"uid": "r", "serial": 0, "data": {"n": 1}}
    assert publish(client, frame=frame, expect_serial=-1)["published"] is True
    assert publish(client, frame=frame, expect_serial=-1)["published"] is False
    assert publish(client, frame={**frame, "meta": "other"})["published"] is False
    assert refused(client, frame={**frame, "data": 2}, expect_serial=-1) == (409, "ConflictError", "")
    assert rows(served) == [("accept", "r", None, 0), ("reject", "r", "fork", 0)]


def test_a_takeover_by_a_huge_serial_is_refused(client: httpx.Client, served: NodeThread) -> None:
    publish(client, frame={"uid": "r", "serial": 0, "data": 1})
    assert refused(client, frame={"uid": "r", "serial": 2**62, "data": 2}) == (403, "RefusedError", "serial_jump")
    assert publish(client, frame={"uid": "r", "serial": 1, "data": 2})["serial"] == 1
    assert rows(served)[1] == ("reject", "r", "serial_jump", 2**62)


def test_an_object_of_the_node_itself_cannot_be_taken_over_by_ready_frames(
    client: httpx.Client, served: NodeThread
) -> None:
    publish(client, uid="mine", data=1)
    assert refused(client, frame={"uid": "mine", "serial": 1, "data": 2}) == (409, "ConflictError", "")
    assert rows(served)[-1] == ("reject", "mine", "publisher_mismatch", 1)
    assert publish(client, uid="mine", data=2)["serial"] == 1


@pytest.mark.parametrize(
    "frame",
    ['{"uid":"x"}', "not json", '{"uid":"x","serial":0,"data":1,"delta":[]}', '{"uid":"x","serial":-1,"data":1}'],
)
def test_a_frame_that_is_none_is_kept_as_rejected(client: httpx.Client, served: NodeThread, frame: str) -> None:
    status, kind, reason = refused(client, frame=frame)
    assert (status, kind) == (403, "RefusedError")
    [record] = served.node.journal.read(RecordQuery(protocol="sdsp"))
    assert (record.verdict.value, record.reason, record.raw) == ("reject", reason, frame.encode())


def test_an_older_frame_that_comes_late_does_not_bring_the_old_object_back(client: httpx.Client) -> None:
    publish(client, frame={"uid": "r", "serial": 0, "data": {"n": 0}})
    publish(client, frame={"uid": "r", "serial": 7, "data": {"n": 7}})
    assert client.get("/sdsp/r").json()["value"] == {"n": 7}
    publish(client, frame={"uid": "r", "serial": 3, "data": {"n": 3}})
    newest = client.get("/sdsp/r").json()
    assert (newest["serial"], newest["value"]) == (7, {"n": 7})
    assert client.get("/sdsp/r?at=3").json()["value"] == {"n": 3}


def test_a_freeze_below_what_is_there_already_is_refused(client: httpx.Client, served: NodeThread) -> None:
    for n in (0, 1, 3):
        publish(client, frame={"uid": "r", "serial": n, "data": n})
    freeze = {"uid": "r", "serial": 2, "ver": 1, "frozen": True}
    assert refused(client, frame=freeze) == (403, "RefusedError", "out_of_window")
    assert rows(served)[-1] == ("reject", "r", "out_of_window", 2)
    assert client.get("/sdsp/r").json()["status"] == "synced"
    assert publish(client, frame={"uid": "r", "serial": 4, "data": 4})["published"]


def test_a_key_publishes_once(client: httpx.Client, served: NodeThread) -> None:
    for _ in range(3):
        answer = client.post(PUBLISH, json={"uid": "once", "data": 1}, headers={"Idempotency-Key": "k"})
        assert answer.json()["serial"] == 0
    assert len(rows(served)) == 1


def test_an_unknown_object_is_not_found(client: httpx.Client) -> None:
    for path in ("/sdsp/nobody", "/sdsp/nobody?at=3"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NotFoundError")
    assert frames(client, "nobody") == []
    publish(client, uid="a", data=1)
    assert client.get("/sdsp/a?at=1").status_code == 404


def test_a_uid_may_hold_slashes_and_spaces(client: httpx.Client) -> None:
    publish(client, uid="sats/low orbit/1", data=1)
    assert client.get("/sdsp/sats%2Flow%20orbit%2F1").json()["value"] == 1
    assert client.get("/sdsp/sats/low%20orbit/1/frames").json()[0]["serial"] == 0


def test_the_objects_of_a_node_are_listed(client: httpx.Client) -> None:
    publish(client, uid="b", data="text", topic="words")
    publish(client, uid="a", data={"n": 0})
    publish(client, uid="a", do="freeze")
    publish(client, frame={"uid": "c", "serial": 0, "data": [1]})
    assert client.get("/sdsp/").json()["objects"] == [
        {"uid": "a", "topic": "a", "serial": 1, "kind": "json", "status": "frozen"},
        {"uid": "b", "topic": "words", "serial": 0, "kind": "text", "status": "synced"},
        {"uid": "c", "topic": "c", "serial": 0, "kind": "json", "status": "synced"},
    ]


def test_a_long_poll_answers_when_there_is_news(client: httpx.Client, served: NodeThread) -> None:
    publish(client, uid="a", data={"n": 0})
    assert client.get("/sdsp/a", params={"after": -1}).json()["serial"] == 0
    assert client.get("/sdsp/a", params={"after": 0, "wait": "0.05"}).json()["serial"] == 0

    async def both() -> tuple[int, int]:
        async with httpx.AsyncClient(base_url=served.url) as other, anyio.create_task_group() as tasks:

            async def later() -> None:
                await anyio.sleep(0.1)
                await other.post(PUBLISH, json={"uid": "a", "data": {"n": 1}})

            tasks.start_soon(later)
            answer = await other.get("/sdsp/a", params={"after": 0, "wait": 5})
        return answer.status_code, answer.json()["serial"]

    assert anyio.run(both) == (200, 1)


@pytest.mark.parametrize(
    "query",
    ["after=x", "at=-1", "at=99999999999999999999", f"at={'9' * 5_000}", "after=0&wait=-1", "wait=nan&after=0"],
)
def test_parameters_that_make_no_sense_are_refused(client: httpx.Client, query: str) -> None:
    publish(client, uid="a", data=1)
    assert client.get(f"/sdsp/a?{query}").status_code == 400


def test_events_go_on_after_the_last_one_seen(client: httpx.Client) -> None:
    for n in range(5):
        publish(client, uid="a", data={"n": n}, do="put" if n else "create")
    with client.stream("GET", "/sdsp/a/events", headers={"Last-Event-ID": "2"}) as response:
        lines = response.iter_lines()
        seen = [next(lines) for _ in range(10)]
    assert response.headers["content-type"].startswith("text/event-stream")
    assert seen[0] == ": keep-alive"
    assert [line for line in seen if line.startswith(("event", "id"))] == [
        "event: frame",
        "id: 3",
        "event: frame",
        "id: 4",
    ]
    assert json.loads(seen[4].removeprefix("data: "))["serial"] == 3


@pytest.mark.parametrize("path", ["", "/frames"])
def test_nothing_comes_after_the_last_serial_there_can_be(client: httpx.Client, path: str) -> None:
    publish(client, uid="a", data=1)
    assert client.get(f"/sdsp/a{path}?after={2**63 - 1}").status_code == 200


@pytest.mark.parametrize("last", ["9" * 5_000, str(2**63 - 1), str(2**70), "x"])
def test_an_event_id_that_no_frame_had_is_no_accident(client: httpx.Client, last: str) -> None:
    publish(client, uid="a", data=1)
    with client.stream("GET", "/sdsp/a/events", headers={"Last-Event-ID": last}) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        assert next(lines) == ": keep-alive"
        if last != str(2**63 - 1):  # not a serial: as if it had not been said
            assert [next(lines) for _ in range(3)][-1] == "id: 0"


def test_an_object_survives_a_restart_of_its_node(served: NodeThread) -> None:
    with httpx.Client(base_url=served.url, timeout=10) as client:
        publish(client, uid="a", data={"n": 0, "pad": "x" * 100})
        publish(client, uid="a", data={"n": 1, "pad": "x" * 100})
    served.stop()
    served.start()
    with httpx.Client(base_url=served.url, timeout=10) as client:
        assert client.get("/sdsp/a").json()["value"]["n"] == 1
        third = publish(client, uid="a", data={"n": 2, "pad": "x" * 100})
        assert (third["serial"], third["ver"]) == (2, 2)


def test_memory_holds_a_bounded_number_of_objects(tmp_path: Path) -> None:
    node = NodeThread(tmp_path, {"sdsp": PLUGIN}, **{"sdsp.objects": 3}).start()
    try:
        with httpx.Client(base_url=node.url, timeout=10) as client:
            for n in range(10):
                publish(client, uid=f"o{n}", data={"n": n})
            assert node.node.service("sdsp").statistics()["objects_live"] == 3
            assert [client.get(f"/sdsp/o{n}").json()["value"]["n"] for n in range(10)] == list(range(10))
            assert [publish(client, uid=f"o{n}", data={"n": -n - 1})["serial"] for n in range(10)] == [1] * 10
            assert node.node.service("sdsp").statistics()["objects_live"] == 3
    finally:
        node.stop()


def test_memory_holds_a_bounded_number_of_bytes(
    served: NodeThread, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (shelf, limits):
        monkeypatch.setattr(module, "SDSP_LIVE_BYTES", 100_000)
    for n in range(10):
        publish(client, uid=f"o{n}", data=f"{n}" * 30_000)
    service = served.node.service("sdsp")
    assert isinstance(service, SdspService)
    publish(client, uid="small", data="s")
    assert list(service._sessions) == ["o7", "o8", "o9", "small"]
    assert sum(live.weight for live in service.shelf._live.values()) <= 100_000
    assert [publish(client, uid=f"o{n}", data=f"{n}" * 30_000 + "!")["ver"] for n in range(10)] == [1] * 10


def test_a_chain_of_deltas_without_end_is_not_rebuilt(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(client, frame={"uid": "r", "serial": 0, "data": {}})
    for n in range(1, 5):
        publish(client, frame={"uid": "r", "serial": n, "ver": n, "alg": "X-mp", "delta": {"n": n}})
    assert client.get("/sdsp/r").json()["value"] == {"n": 4}
    monkeypatch.setattr(shelf, "SDSP_HISTORY_FRAMES", 3)
    answer = client.get("/sdsp/r?at=4")
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "UnavailableError")


def test_followers_are_bounded(served: NodeThread, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "SDSP_FOLLOWERS", 1)
    with client.stream("GET", "/sdsp/a/events") as response:
        lines = response.iter_lines()
        assert next(lines) == ": keep-alive"
        with httpx.Client(base_url=served.url) as other:
            answer = other.get("/sdsp/a/events")
            assert (answer.status_code, answer.json()["error"]["type"]) == (503, "OverloadedError")


class TestHistory:
    """The address of an object's history, added to every frame when others can reach the node."""

    @pytest.fixture
    def public(self, tmp_path: Path) -> Iterator[NodeThread]:
        flags = {
            "node.public_url": "https://node.example/base/",
            "api.token": "hunter2",
            "sdsp.storage": (tmp_path / "objects").as_uri(),
        }
        node = NodeThread(tmp_path, {"sdsp": PLUGIN}, **flags).start()
        yield node
        node.stop()

    @pytest.fixture
    def trusted(self, public: NodeThread) -> Iterator[httpx.Client]:
        headers = {"Authorization": "Bearer hunter2"}
        with httpx.Client(base_url=public.url, headers=headers, timeout=10) as client:
            yield client

    def path(self, frame: dict[str, Any]) -> str:
        uri: str = frame["historyUri"]
        assert uri.startswith("https://node.example/base/sdsp/")
        return uri.removeprefix("https://node.example/base")

    def test_it_holds_every_frame_back_to_the_full_one_and_the_newest_already(
        self, public: NodeThread, trusted: httpx.Client
    ) -> None:
        publish(trusted, uid="a b", data={"n": -1})
        publish(trusted, uid="a b", do="replace", data={"n": 0, "pad": "x" * 200})
        for n in (1, 2):
            publish(trusted, uid="a b", data={"n": n, "pad": "x" * 200})
        [newest] = frames(trusted, "a%20b", newest=1)
        found = httpx.get(public.url + self.path(newest))  # without a token
        assert found.status_code == 200
        assert [(frame["serial"], frame.get("ver", 0)) for frame in found.json()] == [(1, 0), (2, 1), (3, 2)]

    def test_its_token_opens_nothing_else(self, public: NodeThread, trusted: httpx.Client) -> None:
        publish(trusted, uid="a", data=1)
        publish(trusted, uid="b", data=2)
        path = self.path(frames(trusted, "a", newest=1)[0])
        token = path.rsplit("/", 1)[1]
        assert len(token) == 22
        assert httpx.get(public.url + path).status_code == 200
        other = ("A" if token[0] != "A" else "B") + token[1:]
        wrong = {
            f"/sdsp/b/history/{token}": 404,
            f"/sdsp/a/history/{other}": 404,
            "/sdsp/a/history/x": 404,
            "/sdsp/a": 401,
            "/sdsp/a/frames": 401,
            "/sdsp/a/events": 401,
            f"/sdsp/a/history/{token}/frames": 401,
            f"/sdsp/a%2Fhistory%2F{other}": 404,
        }
        assert {path: httpx.get(public.url + path).status_code for path in wrong} == wrong

    def test_an_object_that_is_called_history_is_not_open_by_its_name(
        self, public: NodeThread, trusted: httpx.Client
    ) -> None:
        publish(trusted, uid="a/history", data="secret")

        async def listen() -> None:
            async with websocket.connect(f"ws{public.url.removeprefix('http')}/sdsp/a/history/ws") as socket:
                pytest.fail(str(await socket.receive()))

        with pytest.raises((RefusedError, UnavailableError)):
            anyio.run(listen)
        for tail in ("frames", "events", "history"):
            assert httpx.get(f"{public.url}/sdsp/a/history/{tail}").status_code == 404

    def test_the_token_outlives_a_restart(self, public: NodeThread, trusted: httpx.Client) -> None:
        publish(trusted, uid="a", data=1)
        path = self.path(frames(trusted, "a", newest=1)[0])
        public.stop()
        public.start()
        assert httpx.get(public.url + path).json()[0]["data"] == 1

    def test_a_large_object_is_stored_elsewhere_and_a_smaller_one_comes_with_its_history(
        self, public: NodeThread, trusted: httpx.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(trusted, uid="big", data="x" * 1_100_000)
        [frame] = frames(trusted, "big", newest=1)
        assert "data" not in frame
        assert frame["dataUri"].startswith("file:///")
        [found] = httpx.get(public.url + self.path(frame)).json()
        assert "data" not in found  # larger than 1 MiB
        monkeypatch.setattr("syncline.protocols.sdsp.web.SDSP_INLINE_BYTES", 2_000_000)
        [found] = httpx.get(public.url + self.path(frame)).json()
        assert found["data"] == "x" * 1_100_000
        assert trusted.get("/sdsp/big").json()["value"] == "x" * 1_100_000
        assert publish(trusted, uid="big", data="x" * 1_100_000 + "y")["kind"] == "delta"


class SlowStorage:
    """A storage plug-in whose `load` takes until it is told to go on."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.loading, self.go_on = anyio.Event(), anyio.Event()

    def owns(self, uri: str) -> bool:
        return uri.startswith("slow:")

    async def store(self, content: bytes, *, media_type: str = "application/json") -> Location:
        raise NotImplementedError

    async def delete(self, uri: str) -> None:
        raise NotImplementedError

    async def load(self, uri: str) -> bytes:
        self.loading.set()
        await self.go_on.wait()
        return self._content


@pytest.mark.anyio
async def test_an_object_that_changes_while_it_is_rebuilt_is_not_kept_as_it_was(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db", node="n", clock=FakeClock())
    service = service_on(journal, FakeClock())
    service.shelf.storage = storage = SlowStorage(b"0")
    await service.publish({"frame": {"uid": "a", "serial": 0, "dataUri": "slow:0"}})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.shelf.state, "a")
        await storage.loading.wait()
        await service.publish({"frame": {"uid": "a", "serial": 1, "data": 1}})
        storage.go_on.set()
    found = await service.shelf.state("a")
    assert (found.serial, found.value) == (1, 1)
    journal.close()


class SlowDelta:
    """A delta plug-in that works until it is told to finish."""

    code = "X-slow"
    kinds = frozenset({ObjectKind.TEXT})

    def __init__(self) -> None:
        self.working, self.finish = threading.Event(), threading.Event()

    def make(self, old: Any, new: Any) -> Any | None:
        return None

    def apply(self, old: Any, delta: Any, budget: Budget, *, in_place: bool = False) -> Any:
        self.working.set()
        assert self.finish.wait(10)
        return delta


@pytest.mark.anyio
async def test_an_object_that_makes_room_for_others_while_it_changes_is_there_afterwards(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db", node="n", clock=FakeClock())
    service, slow = service_on(journal, FakeClock(), objects=1), SlowDelta()
    service.shelf._deltas = Deltas([slow])
    await service.publish({"frame": {"uid": "a", "serial": 0, "X-kind": "text", "data": "x" * 100_000}})
    await service.shelf.state("a")  # is in memory, and heavy
    async with anyio.create_task_group() as tasks:
        delta = {"uid": "a", "serial": 1, "ver": 1, "alg": "X-slow", "delta": "new"}
        tasks.start_soon(service.publish, {"frame": delta})
        await anyio.to_thread.run_sync(slow.working.wait)
        await service.publish({"uid": "b", "data": 1})
        slow.finish.set()
    assert (await service.shelf.state("a")).value == "new"
    assert (await service.shelf.state("b")).value == 1
    assert service.shelf._weight == sum(live.weight for live in service.shelf._live.values())
    journal.close()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
@pytest.mark.parametrize("way", ["sse", "websocket", "poll"])
async def test_an_object_is_published_and_followed_through_a_node(served: NodeThread, way: Any) -> None:
    async with open_http(served.url, follow=way) as transport:
        async with Publisher(transport, policy=Policy(delta_ratio=100, cumulative_ratio=1e9)) as publisher:
            sat = await publisher.create({"alt": 550.5}, topic="sats")
            async with follow(transport, sat.uid) as object:
                assert await anext(object) == Ready(0, {"alt": 550.5})
                await sat.update({"alt": 549.7})
                assert await anext(object) == Update(1, {"alt": 550.5}, {"alt": 549.7})


class TestRetention:
    """An object that nobody changes outlives the records it came in."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def journal(self, tmp_path: Path, clock: FakeClock) -> Iterator[Journal]:
        opened = Journal.open(tmp_path / "journal.db", node="n", clock=clock)
        yield opened
        opened.close()

    @pytest.fixture
    def service(self, journal: Journal, clock: FakeClock) -> SdspService:
        return service_on(journal, clock)

    @staticmethod
    async def forget(journal: Journal, upto: int = 2**62) -> None:
        """What retention does to old, sealed records."""
        connection = apsw.Connection(str(journal.path))
        connection.set_busy_timeout(10_000)  # the journal may be trimming its log
        connection.execute("DELETE FROM records WHERE lsn <= ?", (upto,))
        connection.close()

    @pytest.mark.anyio
    async def test_its_newest_full_frame_and_the_deltas_after_it_are_copied_in_time(
        self, journal: Journal, clock: FakeClock, service: SdspService
    ) -> None:
        pad = "x" * 200
        for n in range(3):
            await service.publish({"uid": "quiet", "data": {"n": n, "pad": pad}})
        await service.publish({"uid": "quiet", "do": "replace", "data": {"n": 3, "pad": pad}})
        await service.publish({"uid": "quiet", "data": {"n": 4, "pad": pad}})
        await service.keeper.sweep()
        assert service.keeper.copied == 0  # they are young
        clock.advance(13 * 3_600)
        await service.publish({"uid": "busy", "data": 1})
        await service.keeper.sweep()
        await service.keeper.sweep()
        assert service.keeper.copied == 2
        await self.forget(journal)
        restarted = service_on(journal, clock)
        state = await restarted.shelf.state("quiet")
        assert (state.serial, state.value["n"]) == (4, 4)
        answer = await restarted.publish({"uid": "quiet", "data": {"n": 5, "pad": pad}})
        assert (answer["serial"], answer["ver"]) == (5, 2)
        with pytest.raises(ConflictError):
            await restarted.publish({"frame": {"uid": "quiet", "serial": 4, "data": "forged"}})
        assert journal.get_state(KEPT, frame_id("quiet", 3)) is not None
        await restarted.publish({"uid": "quiet", "do": "replace", "data": {"n": 6}})
        assert [journal.get_state(KEPT, frame_id("quiet", serial)) for serial in range(7)] == [None] * 7

    @pytest.mark.anyio
    async def test_a_chain_longer_than_a_page_is_read_whole_where_copies_and_records_meet(
        self, journal: Journal, clock: FakeClock, service: SdspService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (shelf, tips):
            monkeypatch.setattr(module, "SDSP_PAGE_FRAMES", 4)
        await service.publish({"frame": {"uid": "long", "serial": 0, "data": {}}})
        for n in range(1, 15):
            await service.publish({"frame": patch("long", n)})
        clock.advance(13 * 3_600)
        await service.keeper.sweep()
        assert service.keeper.copied == 15
        await self.forget(journal, upto=11)
        for n in range(15, 22):
            await service.publish({"frame": patch("long", n)})
        state = await service_on(journal, clock).shelf.state("long")
        assert (state.serial, state.value) == (21, {"n": 21})
        found = [serial for serial, _ in await service.shelf.page("long", 0)]
        assert found == [0, 1, 2, 3]

    @pytest.mark.anyio
    async def test_a_frame_out_of_order_is_found_on_its_page(
        self, service: SdspService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shelf, "SDSP_PAGE_FRAMES", 4)
        await service.publish({"frame": {"uid": "o", "serial": 0, "data": {}}})
        for n in (1, 3, 4, 5, 6, 7, 8, 2):
            await service.publish({"frame": patch("o", n)})
        state = await service.shelf.state("o")
        assert (state.serial, state.value) == (8, {"n": 8})
        await service.publish({"frame": {"uid": "o", "serial": 100_000, "data": "far"}})
        assert [serial for serial, _ in await service.shelf.page("o", 9)] == [100_000]

    @pytest.mark.anyio
    async def test_a_copied_frame_cannot_be_published_again_with_other_content(
        self, journal: Journal, clock: FakeClock, service: SdspService
    ) -> None:
        await service.publish({"frame": {"uid": "q", "serial": 0, "data": "true"}})
        clock.advance(13 * 3_600)
        await service.keeper.sweep()
        await self.forget(journal)
        assert not (await service.publish({"frame": {"uid": "q", "serial": 0, "data": "true"}}))["published"]
        with pytest.raises(ConflictError):
            await service.publish({"frame": {"uid": "q", "serial": 0, "data": "forged"}})
        restarted = service_on(journal, clock)
        assert (await restarted.shelf.state("q")).value == "true"
        assert await restarted.shelf.oldest("q") == 0

    @pytest.mark.anyio
    async def test_however_many_objects_there_are_none_is_overlooked(
        self, clock: FakeClock, service: SdspService
    ) -> None:
        names = [f"{letter}{n}" for letter in ("a", "ab", "b", "é") for n in range(7)] + ["a", "ab"]
        for name in names:
            await service.publish({"uid": name, "data": 1})
        assert sorted(uid for uid, _ in service.shelf.tips.every(limit=3)) == sorted(names)


def patch(uid: str, n: int) -> dict[str, Any]:
    return {"uid": uid, "serial": n, "ver": n, "alg": "X-mp", "delta": {"n": n}}


def service_on(journal: Journal, clock: FakeClock, **settings: Any) -> SdspService:
    key = NodeKey(bytes(32))
    judges = Judges({})
    ground = Ground(
        key=key,
        clock=clock,
        sink=Receiver(judges, journal),
        records=journal,
        state=journal,
        settings=SdspSettings(**settings),
        retention=24 * HOUR,
    )
    judges.add("sdsp", PLUGIN.judge(ground))
    service = PLUGIN.service(ground)
    assert isinstance(service, SdspService)
    return service
