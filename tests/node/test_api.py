from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pyarrow as pa
import pytest

from syncline.core.errors import UsageError
from syncline.core.limits import API_BODY_BYTES
from syncline.core.ports import Ground, Service
from syncline.core.record import Incoming
from syncline.core.verdict import Reason
from syncline.formats.records import from_arrow
from syncline.networks.memory import MemoryNetwork
from syncline.node import api, serve
from syncline.node.node import Node, running
from syncline.testing.chirp import Chirp
from syncline.testing.clock import FakeClock
from tests.node.conftest import MakeSettings

ARROW = {"accept": api.ARROW}


@asynccontextmanager
async def served(settings: Any, parts: dict[str, Any]) -> AsyncIterator[tuple[Node, httpx.AsyncClient]]:
    listener = serve.bind(settings.api)
    url = serve.url_of(listener)
    async with running(settings, **parts) as node, anyio.create_task_group() as tasks:
        await tasks.start(serve.serve, api.build(node), listener)
        async with httpx.AsyncClient(base_url=url, timeout=10) as client:
            yield node, client
        tasks.cancel_scope.cancel()


async def test_status_tells_who_where_and_how_much(make_settings: MakeSettings, parts: dict[str, Any]) -> None:
    async with served(make_settings(), parts) as (node, client):
        await node.service("chirp").publish({"text": "x"})
        status = (await client.get("/api/v1/status")).json()
    assert (status["node"], status["epoch"]) == (node.key.peer_id, node.journal.epoch)
    assert (status["newest"], status["state"], status["protocols"]) == (1, "ready", ["chirp"])
    assert status["statistics"]["verdicts"] == {"chirp/accept/": 1}


async def test_records_are_paged_as_ndjson_and_as_arrow(make_settings: MakeSettings, parts: dict[str, Any]) -> None:
    async with served(make_settings(), parts) as (node, client):
        for number in range(5):
            await node.service("chirp").publish({"text": str(number)})
        page = await client.get("/api/v1/records", params={"limit": 2, "after": 1})
        arrow = await client.get("/api/v1/records", params={"after": 3, "epoch": node.journal.epoch}, headers=ARROW)
        last = await client.get("/api/v1/records", params={"last": 2})
        none = await client.get("/api/v1/records", params={"protocol": "relay"})
    assert [line for line in page.text.splitlines() if '"lsn":2' in line or '"lsn":3' in line] == page.text.splitlines()
    assert page.headers["syncline-next"] == "3"
    records = [record for batch in pa.ipc.open_stream(arrow.content) for record in from_arrow(batch)]
    assert [record.lsn for record in records] == [4, 5]
    assert arrow.headers["syncline-next"] == "5"
    assert [f'"lsn":{n}' in line for n, line in zip((4, 5), last.text.splitlines(), strict=True)] == [True, True]
    assert (none.text, none.headers["syncline-next"]) == ("", "5")


async def test_a_reader_of_another_epoch_is_told_to_start_again(
    make_settings: MakeSettings, parts: dict[str, Any]
) -> None:
    async with served(make_settings(), parts) as (_, client):
        answer = await client.get("/api/v1/records", params={"epoch": "0" * 16})
    assert answer.status_code == 409
    assert answer.json()["error"]["hint"] == "start again with after=0"


async def test_one_record_is_shown_with_its_bytes_its_meaning_and_why(
    make_settings: MakeSettings, parts: dict[str, Any]
) -> None:
    async with served(make_settings(), parts) as (node, client):
        await node.service("chirp").publish({"text": "hello"})
        message = Incoming(protocol="chirp", topic="yard", raw=b"{}", peer="p", received_at=node.clock.now())
        await node.receiver.receive([message])
        good = (await client.get(f"/api/v1/records/{node.journal.epoch}/1")).json()
        bad = (await client.get(f"/api/v1/records/{node.journal.epoch}/2")).json()
        absent = await client.get(f"/api/v1/records/{node.journal.epoch}/3")
        elsewhere = await client.get(f"/api/v1/records/{'0' * 16}/1")
    assert good["decoded"]["message"]["text"] == "hello"
    assert (good["record"]["verdict"], good["why"]) == ("accept", {})
    assert bad["why"] == {"reason": "malformed", "about": "content", "meaning": Reason.MALFORMED.doc}
    assert (absent.status_code, elsewhere.status_code) == (404, 404)


async def test_a_long_poll_answers_as_soon_as_there_is_a_record(
    make_settings: MakeSettings, parts: dict[str, Any]
) -> None:
    async with served(make_settings(), parts) as (node, client), anyio.create_task_group() as tasks:
        answers: list[httpx.Response] = []

        async def poll() -> None:
            answers.append(await client.get("/api/v1/records", params={"wait": 30}))

        tasks.start_soon(poll)
        await anyio.sleep(0.1)
        assert answers == []
        await node.service("chirp").publish({"text": "now"})
        with anyio.fail_after(5):
            while not answers:
                await anyio.sleep(0.01)
    assert answers[0].text.count("\n") == 1


async def test_publishing_twice_with_one_key_publishes_once(make_settings: MakeSettings, parts: dict[str, Any]) -> None:
    async with served(make_settings(), parts) as (node, client):
        key = {"idempotency-key": "k1"}
        first = await client.post("/api/v1/publish/chirp", json={"text": "once"}, headers=key)
        again = await client.post("/api/v1/publish/chirp", json={"text": "once"}, headers=key)
        other = await client.post("/api/v1/publish/chirp", json={"text": "other"}, headers=key)
        plain = await client.post("/api/v1/publish/chirp", json={"text": "once"})
        newest = node.journal.newest()
    assert first.json() == {"number": 0, "record": f"{node.key.peer_id}/{node.journal.epoch}/1"}
    assert again.json() == {**first.json(), "replayed": True}
    assert other.status_code == 409
    assert plain.json()["number"] == 1
    assert newest == 2


async def test_a_refused_message_is_refused_again_when_its_request_is_repeated(
    make_settings: MakeSettings, parts: dict[str, Any]
) -> None:
    """Its record and the key are on disk by then, but it was not published, and no repeat may say so."""
    async with served(make_settings(), parts) as (node, client):
        sent: dict[str, Any] = {"json": {"text": "x" * 300}, "headers": {"idempotency-key": "k"}}
        first = await client.post("/api/v1/publish/chirp", **sent)
        again = await client.post("/api/v1/publish/chirp", **sent)
        no_text = [
            await client.post("/api/v1/publish/chirp", json=body, headers={"idempotency-key": "k2"})
            for body in ({}, {"text": "said at last"})
        ]
        newest = node.journal.newest()
    assert (first.status_code, again.status_code) == (403, 403)
    assert again.json() == first.json()
    assert again.json()["error"]["reason"] == "invalid_field"
    assert [answer.status_code for answer in no_text] == [400, 200]  # what never came to a record may be mended
    assert newest == 2


async def test_two_requests_with_one_key_at_once_publish_once(
    make_settings: MakeSettings, parts: dict[str, Any]
) -> None:
    async with served(make_settings(), parts) as (node, client):
        statuses: list[int] = []

        async def post() -> None:
            answer = await client.post("/api/v1/publish/chirp", json={"text": "x"}, headers={"idempotency-key": "k"})
            statuses.append(answer.status_code)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(post)
        newest = node.journal.newest()
    assert newest == 1
    assert statuses == [200] * 5


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/api/v1/records?after=x", 400, "after must be a number"),
        ("/api/v1/records?after=-1", 400, "after must not be negative"),
        ("/api/v1/records?aftr=1", 400, "unknown parameter 'aftr'"),
    ],
)
async def test_a_bad_request_is_answered_with_what_is_wrong(
    make_settings: MakeSettings, parts: dict[str, Any], path: str, status: int, message: str
) -> None:
    async with served(make_settings(), parts) as (_, client):
        answer = await client.get(path)
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]


async def test_a_bad_publish_is_answered_with_what_is_wrong(make_settings: MakeSettings, parts: dict[str, Any]) -> None:
    async with served(make_settings(), parts) as (_, client):
        not_json = await client.post("/api/v1/publish/chirp", content=b"{")
        unknown = await client.post("/api/v1/publish/morse", json={})
        refused = await client.post("/api/v1/publish/chirp", json={"text": "x" * 300})
        no_text = await client.post("/api/v1/publish/chirp", json={})
    assert [each.status_code for each in (not_json, unknown, refused, no_text)] == [400, 400, 403, 400]
    assert refused.json()["error"]["reason"] == "invalid_field"


async def test_metrics_count_verdicts_by_reason(make_settings: MakeSettings, parts: dict[str, Any]) -> None:
    async with served(make_settings(), parts) as (node, client):
        await node.service("chirp").publish({"text": "x"})
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'syncline_messages_total{protocol="chirp",reason="",verdict="accept"} 1.0' in answer.text
    assert "syncline_ready 1.0" in answer.text
    assert "syncline_chirp_heard 0.0" in answer.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": ""}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:1"}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": "http://"}, 403),
        ({"origin": ""}, 403),
        ({"host": "[", "origin": "http://["}, 421),
        ({"host": "named.example"}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:7070"}, 200),
        ({"host": "node.example", "origin": "https://app.example"}, 200),
    ],
)
async def test_host_and_origin_are_checked(
    make_settings: MakeSettings, parts: dict[str, Any], headers: dict[str, str], status: int
) -> None:
    flags = {
        "api.hosts": ["node.example"],
        "api.origins": ["https://app.example"],
        "node.public_url": "https://named.example/below",
    }
    async with served(make_settings(**flags), parts) as (_, client):
        assert (await client.get("/api/v1/status", headers=headers)).status_code == status


async def test_our_own_page_may_call_the_api(make_settings: MakeSettings, parts: dict[str, Any]) -> None:
    async with served(make_settings(), parts) as (_, client):
        origin = str(client.base_url).rstrip("/")
        assert (await client.get("/api/v1/status", headers={"origin": origin})).status_code == 200


async def test_a_token_is_asked_for_on_every_route(make_settings: MakeSettings, parts: dict[str, Any]) -> None:
    async with served(make_settings(**{"api.token": "hush"}), parts) as (_, client):
        paths = ("/api/v1/status", "/api/v1/records", "/api/v1/peers", "/metrics", "/nowhere")
        without = [(await client.get(path)).status_code for path in paths]
        wrong = await client.get("/api/v1/status", headers={"authorization": "Bearer hus"})
        right = await client.get("/api/v1/status", headers={"authorization": "bearer hush"})
    assert without == [401] * 5
    assert wrong.status_code == 401
    assert right.status_code == 200


@pytest.mark.parametrize("length", [f"Content-Length: {API_BODY_BYTES + 1}", "Transfer-Encoding: chunked"])
async def test_a_body_over_the_limit_is_refused_declared_or_not(
    make_settings: MakeSettings, parts: dict[str, Any], length: str
) -> None:
    head = f"POST /api/v1/publish/chirp HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode()
    chunk = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
    settings = make_settings()
    async with (
        served(settings, parts) as (_, client),
        await anyio.connect_tcp("127.0.0.1", client.base_url.port or 0) as stream,
    ):
        await stream.send(head)
        if "chunked" in length:
            for _ in range(API_BODY_BYTES // 2**20 + 1):
                await stream.send(chunk)
        with anyio.fail_after(5):
            answer = await stream.receive()
    assert answer.startswith(b"HTTP/1.1 413")


async def test_more_requests_than_can_be_answered_at_once_are_told_to_come_again(
    make_settings: MakeSettings, parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.node.guard.API_REQUESTS", 2)

    async def hold(client: httpx.AsyncClient) -> None:
        while (await client.get("/api/v1/records", params={"wait": 30})).status_code == 503:
            await anyio.sleep(0.01)

    async with served(make_settings(), parts) as (node, client), anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(hold, client)
        with anyio.fail_after(5):
            while (refused := await client.get("/api/v1/status")).status_code == 200:
                await anyio.sleep(0.01)
        await node.service("chirp").publish({"text": "now both are answered"})
        with anyio.fail_after(5):
            while (answered := await client.get("/api/v1/status")).status_code == 503:
                await anyio.sleep(0.01)
    assert (refused.status_code, answered.status_code) == (503, 200)


async def test_a_page_of_large_records_ends_early_and_says_where(
    make_settings: MakeSettings, parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.core.limits.JOURNAL_PAGE_RAW", 1)
    async with served(make_settings(), parts) as (node, client):
        for number in range(3):
            await node.service("chirp").publish({"text": str(number)})
        pages = [await client.get("/api/v1/records", params={"after": after}) for after in (0, 1, 2, 3)]
    assert [page.text.count("\n") for page in pages] == [1, 1, 1, 0]
    assert [page.headers["syncline-next"] for page in pages] == ["1", "2", "3", "3"]


def test_a_node_that_cannot_be_made_lets_go_of_its_journal(make_settings: MakeSettings, clock: FakeClock) -> None:
    class Broken(Chirp):
        def service(self, ground: Ground) -> Service:
            raise UsageError("it cannot be")

    settings = make_settings()
    for _ in range(2):  # the second finds no lock
        with pytest.raises(UsageError, match="it cannot be"):
            Node(settings, clock=clock, plugins={"chirp": Broken(MemoryNetwork())})


def test_listening_beyond_loopback_needs_a_token(make_settings: MakeSettings) -> None:
    with pytest.raises(UsageError, match=r"there is no api\.token"):
        serve.bind(make_settings(**{"api.host": "0.0.0.0"}).api)
    serve.bind(make_settings(**{"api.host": "0.0.0.0", "api.token": "hush"}).api).close()


def test_a_taken_port_is_a_clear_error(make_settings: MakeSettings) -> None:
    first = serve.bind(make_settings().api)
    try:
        with pytest.raises(UsageError, match="cannot listen on") as error:
            serve.bind(make_settings(**{"api.port": first.getsockname()[1]}).api)
    finally:
        first.close()
    assert "api.port=0" in error.value.hint
