"""What only NATS does: reconnecting, server-side conflicts, addresses."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from syncline.core.errors import ConflictError, UnreachableError, UsageError
from syncline.protocols.sdsp.plugins import Start
from syncline.transports.nats import open_nats
from tests.transports.conftest import NatsServer
from tests.transports.frames import delta, full, serials

pytestmark = pytest.mark.anyio


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path)
    server.start()
    yield server
    server.stop()


async def test_a_subscription_survives_a_restart_of_the_server_without_loss_or_repeats(own_server: NatsServer) -> None:
    async with open_nats(own_server.url, timeout=0.5) as transport:
        async with transport.subscribe("t", Start(uid="a")) as deliveries:
            await transport.publish("t", full("a", 0), dedupe_id="a/0", expect_serial=-1)
            got = [(await anext(deliveries)).payload]
            own_server.stop()
            with pytest.raises(UnreachableError):
                await transport.publish("t", delta("a", 1, 1), dedupe_id="a/1", expect_serial=0)
            own_server.start()
            with anyio.fail_after(20):
                while True:
                    try:
                        await transport.publish("t", delta("a", 1, 1), dedupe_id="a/1", expect_serial=0)
                        break
                    except UnreachableError:
                        await anyio.sleep(0.05)
                await transport.publish("t", delta("a", 2, 2), dedupe_id="a/2", expect_serial=1)
                got += [(await anext(deliveries)).payload for _ in range(2)]
    assert serials(got) == [0, 1, 2]


async def test_the_payload_limit_is_the_servers(nats_server: NatsServer) -> None:
    async with open_nats(nats_server.url) as transport:
        most = transport.capabilities.max_payload
        assert most == 1_048_576 - 1_024
        text = full("big", 0, "x" * (most - len(full("big", 0, ""))))
        assert len(text) == most
        await transport.publish("t", text, dedupe_id="big/0", expect_serial=-1)
        assert await transport.newest("t", uid="big") == text


async def test_an_own_stream_keeps_its_own_objects(nats_server: NatsServer) -> None:
    async with open_nats(f"{nats_server.url}/OTHER") as other, open_nats(nats_server.url) as usual:
        await other.publish("t", full("apart", 0), dedupe_id="apart/0", expect_serial=-1)
        assert await usual.newest("t", uid="apart") is None
        assert await other.newest("t", uid="apart") == full("apart", 0)


async def test_the_server_itself_refuses_a_publisher_that_has_not_heard_of_another(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_nats(nats_server.url) as one, open_nats(nats_server.url) as two:
        await one.publish("t", full("raced", 0), dedupe_id="raced/0", expect_serial=-1)
        seen = await one._portal.call(one._remote._tip, one._remote.subject("t", "raced"))
        await two.publish("t", delta("raced", 1, 1), dedupe_id="raced/1/two", expect_serial=0)

        async def before(subject: str) -> object:
            return seen

        monkeypatch.setattr(one._remote, "_tip", before)  # the other one was quicker than our next step
        with pytest.raises(ConflictError, match="somebody else published first"):
            await one.publish("t", full("raced", 1), dedupe_id="raced/1/one", expect_serial=0)
        assert await two.replay("t", uid="raced", first=0, last=9) == [full("raced", 0), delta("raced", 1, 1)]


async def test_what_others_publish_that_is_no_frame_hides_no_frame(nats_server: NatsServer) -> None:
    async with open_nats(nats_server.url) as transport:
        await transport.publish("t", full("dirty", 0), dedupe_id="dirty/0", expect_serial=-1)
        await transport.publish("t", delta("dirty", 1, 1), dedupe_id="dirty/1", expect_serial=0)
        remote = transport._remote
        await transport._portal.call(remote._jetstream.publish, remote.subject("t", "dirty"), b"rubbish")
        assert serials(await transport.replay("t", uid="dirty", first=0, last=9)) == [0, 1]
        async with transport.subscribe("t", Start(uid="dirty")) as deliveries:
            assert [(await anext(deliveries)).payload for _ in range(3)] == [
                full("dirty", 0),
                delta("dirty", 1, 1),
                b"rubbish",
            ]
        with pytest.raises(ConflictError, match="no frame"):
            await transport.publish("t", delta("dirty", 2, 2), dedupe_id="dirty/2", expect_serial=1)


async def test_nobody_there_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(UnreachableError, match="NATS does not answer"):
            async with open_nats(f"nats://127.0.0.1:{taken.getsockname()[1]}"):
                pass


async def test_parameters_in_the_address_are_refused(nats_server: NatsServer) -> None:
    with pytest.raises(UsageError, match="takes no parameters"):
        async with open_nats(f"{nats_server.url}?x=1"):
            pass
