"""Groups as applications use them, on real sockets and on both event loops."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from syncline.core.clock import SystemClock
from syncline.core.errors import ClosedError, ConflictError, RefusedError, UnavailableError, UsageError
from syncline.core.limits import SVS_PUBLICATION_BYTES
from syncline.core.retry import Backoff
from syncline.core.verdict import Reason
from syncline.formats.ndn import names
from syncline.formats.ndn import types as t
from syncline.formats.ndn.signing import Hmac
from syncline.formats.tlv import encode
from syncline.networks.ndn.client import attached
from syncline.networks.ndn.doors import DoorOptions
from syncline.networks.ndn.hub import Hub, HubOptions, running
from syncline.protocols.svs.rules import Keys, Signers, Trust
from syncline.protocols.svs.service import FileStore, Group, MemoryStore, join
from syncline.protocols.svs.session import Failure, Options, Publication
from syncline.protocols.svs.wire.mapping import MappingEntry, decode_mapping

pytestmark = pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
QUICK = Options(lifetime=0.2, retries=1, refetches=0, backoff=Backoff(first=0.01, longest=0.02))
SYNC, OUTER, INNER, MAPPING = (Hmac(name.encode()) for name in ("sync", "outer", "inner", "mapping"))
SIGNERS = Signers(sync=SYNC, outer=OUTER, inner=INNER, mapping=MAPPING)
TRUST = Trust(sync=Keys([SYNC]), outer=Keys([OUTER]), inner=Keys([INNER]), mapping=Keys([MAPPING]))


@asynccontextmanager
async def room(**members: Any) -> AsyncIterator[dict[str, Group]]:
    """A hub with members; each is given by the options of its `join`."""
    async with running(HubOptions(doors=DoorOptions(tcp_port=0)), SystemClock()) as hub:
        async with _joined(hub, members, {}) as found:
            yield found


@asynccontextmanager
async def _joined(hub: Hub, members: dict[str, Any], found: dict[str, Group]) -> AsyncIterator[dict[str, Group]]:
    if not members:
        yield found
        return
    name, options = next(iter(members.items()))
    rest = {key: value for key, value in members.items() if key != name}
    options = {"node": f"/{name}", "forwarder": hub.addresses["tcp"], **options}
    async with join("/room", **options) as group, _joined(hub, rest, {**found, name: group}) as everybody:
        yield everybody


class Inbox:
    """Collects what a callback gets."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self._news = anyio.Event()

    def __call__(self, item: Any) -> None:
        self.got.append(item)
        self._news.set()

    async def until(self, count: int) -> list[Any]:
        with anyio.fail_after(10):
            while len(self.got) < count:
                self._news = anyio.Event()
                await self._news.wait()
        return self.got


def told(publications: list[Publication]) -> list[tuple[str, int, str, bytes]]:
    return sorted((each.node, each.seq, each.topic, each.payload) for each in publications)


async def test_what_one_publishes_the_other_gets() -> None:
    async with room(alice={}, bob={}) as members:
        inbox = Inbox()
        members["bob"].subscribe("/chat", inbox)
        before = SystemClock().now()
        assert await members["alice"].publish("/chat/hello", b"hello, world") == 1
        assert await members["alice"].publish("/other", b"not for bob") == 2
        assert await members["alice"].publish("/chat/big", bytes(20_000)) == 3
        got = await inbox.until(2)
        assert told(got) == [("/alice", 1, "/chat/hello", b"hello, world"), ("/alice", 3, "/chat/big", bytes(20_000))]
        assert before <= got[0].published_at <= SystemClock().now()
        assert members["bob"].state_vector == {"/alice": 3}


async def test_subscribing_returns_at_once_and_can_be_ended() -> None:
    async with room(alice={}, bob={}) as members:
        first, second = Inbox(), Inbox()
        subscription = members["bob"].subscribe("/chat", first)
        members["bob"].subscribe_to_producer("/alice", second)
        await members["alice"].publish("/chat/1", b"1")
        await first.until(1)
        subscription.cancel()
        await members["alice"].publish("/chat/2", b"2")
        assert [each.seq for each in await second.until(2)] == [1, 2]
        assert [each.seq for each in first.got] == [1]


async def test_publications_can_be_iterated() -> None:
    async with room(alice={}, bob={}) as members:
        stream = members["bob"].publications("/chat")
        for number in range(200):
            await members["alice"].publish(f"/chat/{number}", b"%d" % number)
        seen = set()
        with anyio.fail_after(10):
            async for publication in stream:
                seen.add(publication.seq)
                if len(seen) == 200:
                    break
        assert seen == set(range(1, 201))
        stream.close()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_an_iterator_nobody_holds_ends_its_subscription() -> None:
    async with room(alice={}, bob={}) as members:
        bob = members["bob"]
        producer = bob.publications(producer="/alice")
        dropped = bob.publications("/chat")
        assert bob.statistics()["subscriptions"] == 2
        del dropped
        gc.collect()
        assert bob.statistics()["subscriptions"] == 1
        await members["alice"].publish("/x", b"x")
        with anyio.fail_after(5):
            assert (await anext(producer)).topic == "/x"


async def test_reading_slowly_slows_fetching_down_but_loses_nothing() -> None:
    async with room(alice={}, bob={}) as members:
        stream = members["bob"].publications("/chat")
        for number in range(300):
            await members["alice"].publish(f"/chat/{number}", b"x")
        await anyio.sleep(0.3)
        seen: list[int] = []
        with anyio.fail_after(10):
            while len(seen) < 300:
                seen.append((await anext(stream)).seq)
        assert sorted(seen) == list(range(1, 301))


async def test_an_async_callback_is_awaited_and_one_that_fails_harms_nobody() -> None:
    async with room(alice={}, bob={}) as members:
        inbox = Inbox()

        async def slow(publication: Publication) -> None:
            await anyio.sleep(0.01)
            inbox(publication)

        def broken(publication: Publication) -> None:
            raise RuntimeError("an application's own fault")

        members["bob"].subscribe("/chat", broken)
        members["bob"].subscribe("/chat", slow)
        members["bob"].subscribe("/chat", broken, filter=lambda entry: bool(entry.missing))  # type: ignore[attr-defined]
        for number in range(5):
            await members["alice"].publish(f"/chat/{number}", b"x")
        assert len(await inbox.until(5)) == 5


async def test_four_distinct_keys_are_used_for_the_four_kinds_of_packets() -> None:
    keyed = {"signers": SIGNERS, "trust": TRUST}
    async with room(alice=keyed, bob=keyed) as members:
        inbox = Inbox()
        members["bob"].subscribe("/chat", inbox)
        await members["alice"].publish("/chat/small", b"small")
        await members["alice"].publish("/chat/large", bytes(20_000))
        assert [each.topic for each in sorted(await inbox.until(2), key=lambda each: each.seq)] == [
            "/chat/small",
            "/chat/large",
        ]
        assert members["bob"].failures == 0


@pytest.mark.parametrize(
    ("wrong", "step"),
    [
        (Signers(sync=SYNC, outer=Hmac(b"x"), inner=INNER, mapping=MAPPING), "outer"),
        (Signers(sync=SYNC, outer=OUTER, inner=Hmac(b"x"), mapping=MAPPING), "inner"),
        (Signers(sync=SYNC, outer=OUTER, inner=INNER, mapping=Hmac(b"x")), "mapping"),
    ],
)
async def test_a_wrong_key_is_refused_and_the_application_is_told(wrong: Signers, step: str) -> None:
    trusting = {"trust": TRUST, "signers": SIGNERS, "options": QUICK}
    liar = {"trust": TRUST, "signers": wrong}
    async with room(mallory=liar, bob=trusting) as members:
        inbox, failures = Inbox(), Inbox()
        members["bob"].subscribe("/chat", inbox)
        if step != "mapping":
            members["bob"].subscribe_to_producer("/mallory", inbox)
        members["bob"].on_failure(failures)
        # Mapping data that comes with a sync Interest is covered by the Interest's own signature.
        members["mallory"]._session._news.clear()
        await members["mallory"].publish("/chat/x", b"x")
        if step == "mapping":
            members["mallory"]._session._news.clear()
        [failure] = await failures.until(1)
        assert isinstance(failure, Failure)
        assert failure.verdict is not None
        assert (failure.step, failure.verdict.reason, failure.final) == (step, Reason.INVALID_SIGNATURE, True)
        assert inbox.got == []


async def test_a_member_without_the_sync_key_is_not_heard() -> None:
    outsider = {"signers": Signers(sync=Hmac(b"x"), outer=OUTER, inner=INNER, mapping=MAPPING), "trust": TRUST}
    async with room(mallory=outsider, bob={"trust": TRUST, "signers": SIGNERS}) as members:
        inbox = Inbox()
        members["bob"].subscribe("/chat", inbox)
        await members["mallory"].publish("/chat/x", b"x")
        with anyio.fail_after(5):
            while members["bob"].statistics()["refused_syncs"] < 1:
                await anyio.sleep(0.01)
        assert (inbox.got, members["bob"].state_vector) == ([], {})


async def test_a_publication_nobody_serves_is_given_up_and_told() -> None:
    async with room(alice={}, bob={"options": QUICK}) as members:
        failures = Inbox()
        members["bob"].subscribe("/chat", lambda publication: None)
        members["bob"].on_failure(failures)
        members["bob"].on_failure(lambda failure: 1 / 0)  # type: ignore[arg-type]
        alice = members["alice"]
        alice._session.published(names.parse("/alice"), MappingEntry(1, names.parse("/chat/x")), anyio.current_time())
        alice._bell.ring()
        [failure] = await failures.until(1)
        assert (failure.node, failure.low, failure.step, failure.detail) == ("/alice", 1, "outer", "nobody answered")


async def test_one_member_publishes_for_several_nodes() -> None:
    async with room(alice={"node": ["/alice/phone", "/alice/desk"]}, bob={}) as members:
        inbox = Inbox()
        members["bob"].subscribe("/", inbox)
        assert members["alice"].nodes == ["/alice/phone", "/alice/desk"]
        assert await members["alice"].publish("/a", b"1") == 1
        assert await members["alice"].publish("/b", b"2", node="/alice/desk") == 1
        assert await members["alice"].publish("/c", b"3", node="/alice/phone") == 2
        assert told(await inbox.until(3)) == [
            ("/alice/desk", 1, "/b", b"2"),
            ("/alice/phone", 1, "/a", b"1"),
            ("/alice/phone", 2, "/c", b"3"),
        ]


async def test_further_blocks_travel_with_the_mapping_and_can_be_filtered_by() -> None:
    async with room(alice={}, bob={}) as members:
        urgent = encode(0xF0, b"urgent")
        inbox = Inbox()
        members["bob"].subscribe("/chat", inbox, filter=lambda entry: (0xF0, b"urgent") in entry.blocks)
        await members["alice"].publish("/chat/1", b"1")
        await members["alice"].publish("/chat/2", b"2", extra=urgent, timestamp=False)
        [got] = await inbox.until(1)
        assert (got.seq, got.published_at) == (2, None)


async def test_a_late_joiner_gets_what_was_published_before() -> None:
    async with running(HubOptions(doors=DoorOptions(tcp_port=0)), SystemClock()) as hub:
        forwarder = hub.addresses["tcp"]
        async with join("/room", node="/alice", forwarder=forwarder) as alice:
            for number in range(30):
                await alice.publish(f"/chat/{number}", b"x")
            async with (
                join("/room", forwarder=forwarder) as late,
                join("/room", forwarder=forwarder, options=Options(from_now=True)) as fresh,
            ):
                inbox, news = Inbox(), Inbox()
                late.subscribe("/chat", inbox)
                fresh.subscribe("/chat", news)
                await inbox.until(30)
                await anyio.sleep(0.3)
                await alice.publish("/chat/new", b"new")
                assert [each.seq for each in await news.until(1)] == [31]
                assert fresh.skipped == 30


async def test_a_member_inside_the_hub_needs_no_socket() -> None:
    async with running(HubOptions(), SystemClock()) as hub:
        async with (
            join("/room", node="/alice", forwarder=hub.attach()) as alice,
            join("/room", node="/bob", forwarder=hub.attach()) as bob,
        ):
            inbox = Inbox()
            bob.subscribe("/chat", inbox)
            await alice.publish("/chat/x", b"x")
            assert told(await inbox.until(1)) == [("/alice", 1, "/chat/x", b"x")]


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
async def test_who_leaves_a_group_is_sent_nothing_more_and_may_come_back(inside: bool) -> None:
    async with (
        running(HubOptions(doors=DoorOptions(tcp_port=0)), SystemClock()) as hub,
        attached(hub.addresses["tcp"]) as client,
    ):
        attachment = hub.attach() if inside else client
        for _ in range(2):
            async with join("/room", node="/alice", forwarder=attachment) as alice:
                await alice.publish("/chat/x", b"x")
                assert len(hub.forwarder.routes) == 2
            with anyio.fail_after(5):
                while len(hub.forwarder.routes):
                    await anyio.sleep(0.01)


async def test_errors_of_the_block_and_of_joining_come_out_as_they_are() -> None:
    doors = DoorOptions(tcp_port=0)
    async with running(HubOptions(doors=doors), SystemClock()) as hub:
        with pytest.raises(ZeroDivisionError):
            async with join("/room", node="/alice", forwarder=hub.addresses["tcp"]):
                raise ZeroDivisionError
    async with running(HubOptions(doors=doors, need_key=True), SystemClock()) as hub:
        with pytest.raises(RefusedError, match="403"):
            async with join("/room", node="/alice", forwarder=hub.addresses["tcp"]):
                pass


async def test_who_has_left_cannot_publish() -> None:
    async with room(alice={}) as members:
        pass
    with pytest.raises(ClosedError, match="has left the group"):
        await members["alice"].publish("/x", b"x")


async def test_who_cannot_join_may_try_again() -> None:
    async with running(HubOptions(), SystemClock()) as hub:
        attachment = hub.attach()
        with pytest.raises(UsageError, match="a node has a name"):
            async with join("/room", node=["/alice", "/"], forwarder=attachment):
                pass
        assert len(hub.forwarder.routes) == 0
        async with join("/room", node="/alice", forwarder=attachment) as alice:
            assert await alice.publish("/chat/x", b"x") == 1


async def test_numbers_and_publications_survive_a_restart(tmp_path: Path) -> None:
    async with running(HubOptions(doors=DoorOptions(tcp_port=0)), SystemClock()) as hub:
        forwarder = hub.addresses["tcp"]
        store = FileStore(tmp_path / "alice.db")
        async with join("/room", node="/alice", forwarder=forwarder, store=store) as alice:
            for number in range(3):
                await alice.publish(f"/chat/{number}", bytes(number * 9_000))
        store.close()
        store = FileStore(tmp_path / "alice.db")
        async with (
            join("/room", node="/alice", forwarder=forwarder, store=store) as alice,
            join("/room", forwarder=forwarder) as bob,
        ):
            assert await alice.publish("/chat/again", b"again") == 4
            inbox = Inbox()
            bob.subscribe("/chat", inbox)
            got = await inbox.until(4)
            assert [(each.seq, len(each.payload)) for each in sorted(got, key=lambda each: each.seq)] == [
                (1, 0),
                (2, 9_000),
                (3, 18_000),
                (4, 5),
            ]
        store.close()


async def test_questions_for_numbers_nobody_can_have_harm_nobody(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "alice.db")
    async with running(HubOptions(doors=DoorOptions(tcp_port=0)), SystemClock()) as hub:
        async with (
            join("/room", node="/alice", forwarder=hub.addresses["tcp"], store=store) as alice,
            attached(hub.addresses["tcp"]) as stranger,
        ):
            largest = names.number(t.GENERIC, 2**64 - 1)
            prefix = names.parse("/alice/room")
            await alice.publish("/chat/1", b"one")
            for question in (
                prefix + largest,
                prefix + names.number(t.GENERIC, 0),
                prefix + names.number(t.GENERIC, 1) + names.parse("/v=0") + names.number(t.SEGMENT, 2**64 - 1),
            ):
                with pytest.raises(UnavailableError):
                    await stranger.ask(question, lifetime=100)
            for low, high in ((2**64 - 1, 2**64 - 1), (2, 2**64 - 1)):
                numbers = names.number(t.GENERIC, low) + names.number(t.GENERIC, high)
                answer = await stranger.ask(prefix + names.parse("/MAPPING") + numbers, lifetime=1_000)
                assert decode_mapping(answer.content).entries == ()
            assert await alice.publish("/chat/2", b"two") == 2
    store.close()


async def test_many_publications_at_once_get_numbers_of_their_own() -> None:
    class Slow(MemoryStore):
        rounds = 0

        async def keep(self, publications: Any) -> None:
            self.rounds += 1
            await anyio.sleep(0.01)
            await super().keep(publications)

    store = Slow()
    async with room(alice={"store": store}) as members:
        numbers: list[int] = []

        async def publish() -> None:
            numbers.append(await members["alice"].publish("/x", b"x"))

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(publish)
        assert sorted(numbers) == list(range(1, 51))
        assert store.rounds <= 3


async def test_a_number_whose_keeping_failed_is_used_by_the_next() -> None:
    class Failing(MemoryStore):
        fail = True

        async def keep(self, publications: Any) -> None:
            if self.fail:
                raise ConflictError("the disk says no")
            await super().keep(publications)

    store = Failing()
    async with room(alice={"store": store}) as members:
        with pytest.raises(ConflictError):
            await members["alice"].publish("/x", b"x")
        store.fail = False
        assert await members["alice"].publish("/x", b"x") == 1


async def test_one_bad_publication_does_not_take_those_published_with_it_along() -> None:
    class Picky(MemoryStore):
        async def keep(self, publications: Any) -> None:
            await anyio.sleep(0.01)
            if any(each.entry.name == names.parse("/bad") for each in publications):
                raise RefusedError("not this one", reason=Reason.OVERSIZE)
            await super().keep(publications)

    async with room(alice={"store": Picky()}) as members:
        numbers: list[int] = []
        refused: list[str] = []

        async def publish(name: str) -> None:
            try:
                numbers.append(await members["alice"].publish(name, b"x"))
            except RefusedError:
                refused.append(name)

        async with anyio.create_task_group() as tasks:
            for name in ("/first", "/good", "/bad", "/fine", "/bad"):
                tasks.start_soon(publish, name)
        assert (sorted(numbers), refused) == ([1, 2, 3], ["/bad", "/bad"])
        assert await members["alice"].publish("/last", b"x") == 4


async def test_a_cancelled_publisher_does_not_leave_a_number_in_doubt() -> None:
    class Slow(MemoryStore):
        async def keep(self, publications: Any) -> None:
            await anyio.sleep(0.05)
            await super().keep(publications)

    async with room(alice={"store": Slow()}) as members:
        with anyio.move_on_after(0.01):
            await members["alice"].publish("/x", b"x")
        assert await members["alice"].publish("/y", b"y") == 2


async def test_what_cannot_be_published_is_refused_and_takes_no_number() -> None:
    async with room(alice={}, listener={"node": None}) as members:
        with pytest.raises(UsageError, match="bytes"):
            await members["alice"].publish("/x", bytes(SVS_PUBLICATION_BYTES + 1))
        with pytest.raises(UsageError, match="starts with a slash"):
            await members["alice"].publish("x", b"")
        for name, extra in (("/x", b"no block"), ("/x", b"\xf0\xfd\x04\x01" + bytes(1_025)), (b"\x08\x05x", b"")):
            with pytest.raises(UsageError, match="cannot be read"):
                await members["alice"].publish(name, b"", extra=extra)
        with pytest.raises(UsageError, match="too long for a mapping"):
            await members["alice"].publish("/" + "x" * 8_000, b"")
        with pytest.raises(UsageError, match="does not publish for that node"):
            await members["alice"].publish("/x", b"", node="/bob")
        with pytest.raises(UsageError, match="publishes for no node"):
            await members["listener"].publish("/x", b"")
        with pytest.raises(UsageError, match="a node has a name"):
            await members["alice"].add_node("/")
        assert await members["alice"].publish("/x", b"x") == 1
