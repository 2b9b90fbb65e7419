"""NDNts members and ours in one group, through our forwarder: everybody gets everything they subscribed to."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from syncline.core.clock import SystemClock
from syncline.core.verdict import Reason
from syncline.formats.ndn.signing import Hmac
from syncline.networks.ndn.doors import DoorOptions
from syncline.networks.ndn.hub import Hub, HubOptions, running
from syncline.protocols.svs.rules import Keys, Signers, Trust
from syncline.protocols.svs.service import Group, join
from syncline.protocols.svs.session import Failure, Options, Publication
from tests.interop.ndn.processes import Program, program

PEER = Path(__file__).with_name("peer.mjs")
GROUP = "/ndn/room"
SECRETS = {role: f"the {role} key of the group".encode() for role in ("sync", "outer", "inner", "mapping")}
HMACS = {role: Hmac(secret) for role, secret in SECRETS.items()}
SIGNERS = Signers(**HMACS)
TRUST = Trust(**{role: Keys([key]) for role, key in HMACS.items()})
SIZES = {"small": 5, "exact": 8_000, "large": 20_000}


def payload(size: int) -> bytes:
    return bytes(index % 251 for index in range(size))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def base64_keys(**changes: bytes) -> dict[str, str]:
    return {role: base64.b64encode(secret).decode() for role, secret in {**SECRETS, **changes}.items()}


class Peer:
    """An NDNts member, and what it has said."""

    def __init__(self, running_program: Program, node: str) -> None:
        self._program = running_program
        self.node = node
        self.updates: list[dict[str, Any]] = []
        self.errors: list[str] = []

    async def _until(self, key: str) -> Any:
        while True:
            said = await self._program.said()
            if "update" in said:
                self.updates.append(said["update"])
            elif "error" in said:
                self.errors.append(said["error"])
            if key in said:
                return said[key]

    async def ready(self) -> None:
        await self._until("ready")

    async def publish(self, name: str, **fields: Any) -> int:
        await self._program.tell(publish=name, **fields)
        return int(await self._until("published"))

    async def subscribe(self, **what: str) -> None:
        await self._program.tell(**what)
        await self._until("subscribed")

    async def got(self, count: int) -> set[tuple[str, int, str, int, str]]:
        """The first updates, once there are so many."""
        while len(self.updates) < count:
            await self._until("update")
        return {(u["by"], u["seq"], u["name"], u["size"], u["sha256"]) for u in self.updates}

    async def error(self) -> str:
        if not self.errors:
            await self._until("error")
        return self.errors.pop(0)


@asynccontextmanager
async def ndnts(hub: Hub, node: str, kind: str = "tcp", **options: Any) -> AsyncIterator[Peer]:
    document = {"address": hub.addresses[kind], "group": GROUP, "node": node, **options}
    async with program(["node", PEER, json.dumps(document)], os.environ) as running_program:
        peer = Peer(running_program, node)
        await peer.ready()
        yield peer


class Ours:
    """A member of ours, and what its callback got."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.publications: list[Publication] = []
        self.failures: list[Failure] = []
        group.on_failure(self.failures.append)

    async def got(self, count: int) -> set[tuple[str, int, str, int, str]]:
        with anyio.fail_after(30):
            while len(self.publications) < count:
                await anyio.sleep(0.01)
        return {(p.node, p.seq, p.topic, len(p.payload), sha256(p.payload)) for p in self.publications}


def told(node: str, seq: int, name: str, size: int) -> tuple[str, int, str, int, str]:
    return node, seq, name, size, sha256(payload(size))


@asynccontextmanager
async def hub_of(tmp_path: Path) -> AsyncIterator[Hub]:
    doors = DoorOptions(tcp_port=0, websocket_port=0, unix_path=str(tmp_path / "nfd.sock"))
    async with running(HubOptions(doors=doors), SystemClock()) as hub:
        yield hub


pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("npm")]


async def test_two_ndnts_members_and_ours_get_everything_in_all_directions(tmp_path: Path) -> None:
    async with hub_of(tmp_path) as hub, AsyncExitStack() as stack:
        a = await stack.enter_async_context(ndnts(hub, "/ndnts/a", "tcp", keys=base64_keys()))
        b = await stack.enter_async_context(ndnts(hub, "/ndnts/b", "unix", keys=base64_keys()))
        ours = Ours(
            await stack.enter_async_context(
                join(GROUP, node="/ours", forwarder=hub.addresses["tcp"], signers=SIGNERS, trust=TRUST)
            )
        )
        await a.subscribe(subscribe="/chat")  # by topic
        await b.subscribe(producer="/ours")  # by producer
        await b.subscribe(producer="/ndnts/a")
        ours.group.subscribe("/chat", ours.publications.append)
        for seq, (name, size) in enumerate(SIZES.items(), 1):
            assert await a.publish(f"/chat/a/{name}", size=size) == seq
            assert await b.publish(f"/chat/b/{name}", size=size) == seq
            assert await ours.group.publish(f"/chat/ours/{name}", payload(size)) == seq
        # NDNts forgets an announcement when a sync Interest comes in the same tick; it makes up for it when somebody asks.
        await anyio.sleep(0.3)
        await stack.enter_async_context(
            join(GROUP, forwarder=hub.addresses["tcp"], signers=SIGNERS, trust=TRUST, options=Options(hellos=8))
        )
        expected = {
            who: {told(node, seq, f"/chat/{who}/{name}", size) for seq, (name, size) in enumerate(SIZES.items(), 1)}
            for who, node in (("a", "/ndnts/a"), ("b", "/ndnts/b"), ("ours", "/ours"))
        }
        assert _plain(await a.got(6)) == expected["b"] | expected["ours"]
        assert _plain(await b.got(6)) == expected["a"] | expected["ours"]
        assert await ours.got(6) == expected["a"] | expected["b"]
        assert (a.errors, b.errors, ours.failures) == ([], [], [])


def _plain(updates: set[tuple[str, int, str, int, str]]) -> set[tuple[str, int, str, int, str]]:
    """NDNts writes names with the type of each component."""
    return {
        (by.replace("/8=", "/"), seq, name.replace("/8=", "/"), size, digest) for by, seq, name, size, digest in updates
    }


async def test_a_late_joiner_catches_up_on_either_side(tmp_path: Path) -> None:
    async with hub_of(tmp_path) as hub, ndnts(hub, "/ndnts/a") as a, AsyncExitStack() as stack:
        for name, size in SIZES.items():
            await a.publish(f"/chat/{name}", size=size)
        ours = Ours(await stack.enter_async_context(join(GROUP, node="/ours", forwarder=hub.addresses["tcp"])))
        ours.group.subscribe("/chat", ours.publications.append)
        expected = {told("/ndnts/a", seq, f"/chat/{name}", size) for seq, (name, size) in enumerate(SIZES.items(), 1)}
        assert await ours.got(3) == expected
        for name, size in SIZES.items():
            await ours.group.publish(f"/chat/{name}", payload(size))
        await anyio.sleep(0.3)  # past the time in which news are not repeated
        late = await stack.enter_async_context(ndnts(hub, "/ndnts/late", "ws"))
        await late.subscribe(subscribe="/chat")
        await late.publish("/hello", text="so that the others notice")
        assert _plain(await late.got(6)) == expected | {
            told("/ours", seq, f"/chat/{name}", size) for seq, (name, size) in enumerate(SIZES.items(), 1)
        }


async def test_times_in_mappings_are_understood_on_our_side(tmp_path: Path) -> None:
    async with hub_of(tmp_path) as hub, ndnts(hub, "/ndnts/a") as a:
        async with join(GROUP, forwarder=hub.addresses["tcp"], options=Options(max_age=60.0)) as group:
            ours = Ours(group)
            group.subscribe("/chat", ours.publications.append)
            before = SystemClock().now()
            await a.publish("/chat/t", text="t", timed=True)
            await ours.got(1)
            published_at = ours.publications[0].published_at
            assert published_at is not None
            assert before - 1_000_000 <= published_at <= SystemClock().now() + 1_000_000


async def test_several_nodes_of_one_member_are_distinct_to_ndnts(tmp_path: Path) -> None:
    async with hub_of(tmp_path) as hub, ndnts(hub, "/ndnts/a") as a:
        await a.subscribe(subscribe="/chat")
        async with join(GROUP, node=["/ours/1", "/ours/2"], forwarder=hub.addresses["tcp"]) as group:
            await group.publish("/chat/1", payload(5), node="/ours/1")
            await group.publish("/chat/2", payload(9_000), node="/ours/2")
            assert _plain(await a.got(2)) == {told("/ours/1", 1, "/chat/1", 5), told("/ours/2", 1, "/chat/2", 9_000)}


@pytest.mark.parametrize("role", ["outer", "inner", "mapping"])
async def test_an_ndnts_member_with_one_wrong_key_is_refused_at_that_step(tmp_path: Path, role: str) -> None:
    wrong = base64_keys(**{role: b"another key"})
    async with hub_of(tmp_path) as hub, ndnts(hub, "/ndnts/x", keys=wrong) as x:
        options = Options(refetches=0)
        async with join(GROUP, forwarder=hub.addresses["tcp"], signers=SIGNERS, trust=TRUST, options=options) as group:
            ours = Ours(group)
            group.subscribe("/chat", ours.publications.append)
            await x.publish("/chat/x", text="x")
            with anyio.fail_after(20):
                while not ours.failures:
                    await anyio.sleep(0.01)
            failure = ours.failures[0]
            assert failure.verdict is not None
            assert (failure.step, failure.verdict.reason) == (role, Reason.INVALID_SIGNATURE)
            assert ours.publications == []


async def test_an_ndnts_member_with_the_wrong_sync_key_is_not_heard_and_does_not_hear(tmp_path: Path) -> None:
    async with hub_of(tmp_path) as hub, ndnts(hub, "/ndnts/x", keys=base64_keys(sync=b"another key")) as x:
        async with join(GROUP, node="/ours", forwarder=hub.addresses["tcp"], signers=SIGNERS, trust=TRUST) as group:
            await x.publish("/chat/x", text="x")
            with anyio.fail_after(20):
                while group.statistics()["refused_syncs"] < 1:
                    await anyio.sleep(0.01)
            await group.publish("/chat/ours", b"ours")
            assert (await x.error()).startswith("sync ")
            assert group.state_vector == {"/ours": 1}
