"""Publisher and subscriber drivers together, on the in-memory transport: what a follower hears in each situation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from syncline.core.errors import ConflictError, FrozenError, UnreachableError, UsageError
from syncline.networks.fetch import FetchPolicy
from syncline.protocols.sdsp.plugins import Start
from syncline.protocols.sdsp.publisher import Publisher, dedupe_id
from syncline.protocols.sdsp.rebuild import Cause, State, Status
from syncline.protocols.sdsp.session import (
    Error,
    Following,
    Fork,
    Frozen,
    Policy,
    Ready,
    Resynced,
    Stale,
    Update,
    UserEvent,
)
from syncline.protocols.sdsp.storage import open_obstore
from syncline.protocols.sdsp.subscriber import FollowedObject, follow
from syncline.protocols.sdsp.wire import decode
from syncline.testing.faults import FaultPlan, FaultyTransport
from syncline.transports.memory import MemoryHub

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"], scope="module")]
HASTY = Following(reorder_seconds=0.01, backoff_first=0.01)
DELTAS = Policy(delta_ratio=100.0, cumulative_ratio=1e9)  # these objects are too small for deltas to be worth it


async def heard(object: FollowedObject, number: int) -> list[UserEvent]:
    with anyio.fail_after(5):
        return [await anext(object) for _ in range(number)]


async def send(hub: MemoryHub, frame: dict[str, Any]) -> None:
    """Put a frame on the transport without asking anybody."""
    payload = json.dumps(frame).encode()
    await hub.publish("sats", payload, dedupe_id=dedupe_id(payload), expect_serial=None)


async def test_an_object_is_published_and_followed() -> None:
    hub = MemoryHub()
    async with Publisher(hub, policy=DELTAS) as publisher:
        sat = await publisher.create({"alt": 550.5}, topic="sats")
        async with follow(hub, sat.uid, topic="sats") as object:
            assert await heard(object, 1) == [Ready(0, {"alt": 550.5})]
            assert await sat.update({"alt": 549.7}) == 1
            assert await heard(object, 1) == [Update(1, {"alt": 550.5}, {"alt": 549.7})]
            assert (object.value, object.status, object.uid) == ({"alt": 549.7}, Status.SYNCED, sat.uid)


async def test_an_update_that_changes_nothing_sends_nothing() -> None:
    hub = MemoryHub()
    async with Publisher(hub) as publisher:
        sat = await publisher.create({"alt": 1})
        assert await sat.update({"alt": 1}) == 0
        assert len(await hub.replay(sat.uid, uid=sat.uid, first=0, last=99)) == 1


async def test_a_late_joiner_starts_at_the_newest_full_frame() -> None:
    hub = MemoryHub()
    async with Publisher(hub, policy=DELTAS) as publisher:
        sat = await publisher.create({"n": 0})
        await sat.update({"n": 1})
        await sat.replace({"n": 2})
        await sat.update({"n": 3})
        async with follow(hub, sat.uid) as object:
            assert await heard(object, 2) == [Ready(2, {"n": 2}), Update(3, {"n": 2}, {"n": 3})]


async def test_a_follower_that_stopped_goes_on_where_it_was() -> None:
    hub = MemoryHub()
    async with Publisher(hub, policy=DELTAS) as publisher:
        sat = await publisher.create({"n": 0})
        async with follow(hub, sat.uid) as object:
            assert await heard(object, 1) == [Ready(0, {"n": 0})]
            assert object.state is not None
            kept = object.state.to_bytes()
        for n in (1, 2, 3):
            await sat.update({"n": n})
        async with follow(hub, sat.uid, state=State.from_bytes(kept)) as object:
            assert object.value == {"n": 0}
            assert await heard(object, 3) == [Update(n, {"n": n - 1}, {"n": n}) for n in (1, 2, 3)]


async def test_a_duplicated_and_reordered_stream_is_heard_in_order_once() -> None:
    hub = MemoryHub()
    plan = FaultPlan(seed=5, repeats=0.3, disorder=0.3)
    faulty = FaultyTransport(hub, plan)
    async with Publisher(hub, policy=DELTAS) as publisher:
        sat = await publisher.create({"n": 0})
        async with follow(faulty, sat.uid, following=HASTY) as object:
            for n in range(1, 100):
                await sat.update({"n": n})
            events = await heard(object, 99)
    serials = [event.serial for event in events]
    assert serials == sorted(set(serials))
    assert faulty.fired["repeated"] > 10
    assert faulty.fired["delayed"] > 10
    assert all(isinstance(event, (Ready, Update)) for event in events)
    for event in events:
        if isinstance(event, Update):
            assert (event.old, event.new) == ({"n": event.serial - 1}, {"n": event.serial})


async def test_lost_frames_are_found_in_history() -> None:
    hub = MemoryHub()
    faulty = FaultyTransport(hub, FaultPlan(seed=11, loss=0.4))
    async with Publisher(hub, policy=DELTAS) as publisher:
        sat = await publisher.create({"n": 0})
        async with follow(faulty, sat.uid, following=HASTY) as object:
            for n in range(1, 41):
                await sat.update({"n": n})
            await sat.freeze()
            events = []
            with anyio.fail_after(10):
                while not isinstance(object.state, State) or object.state.serial < 40:
                    events.append(await anext(object))
            assert object.value == {"n": 40}
    assert faulty.fired["lost"] > 8
    assert {type(event) for event in events} <= {Ready, Update, Frozen}
    assert object.statistics()["asked"] > 0


async def test_without_history_a_follower_waits_for_the_next_full_frame() -> None:
    hub = MemoryHub()
    async with Publisher(hub, policy=DELTAS) as publisher:
        sat = await publisher.create({"n": 0})
        async with follow(hub, sat.uid, history=(), following=HASTY) as object:
            assert await heard(object, 1) == [Ready(0, {"n": 0})]
            await send_to(hub, sat.uid, {"uid": sat.uid, "serial": 2, "ver": 2, "alg": "X-mp", "delta": {"n": 2}})
            [stale] = await heard(object, 1)
            assert stale == Stale(1, Cause.HISTORY_UNAVAILABLE, f"there is no history to ask [{sat.uid}]")
            await send_to(hub, sat.uid, {"uid": sat.uid, "serial": 3, "data": {"n": 3}})
            assert await heard(object, 1) == [Resynced(3, {"n": 0}, {"n": 3})]


async def send_to(hub: MemoryHub, topic: str, frame: dict[str, Any]) -> None:
    payload = json.dumps(frame).encode()
    await hub.publish(topic, payload, dedupe_id=dedupe_id(payload), expect_serial=None)


async def test_two_publishers_on_one_uid_the_second_gets_a_conflict() -> None:
    hub = MemoryHub()
    async with Publisher(hub) as one, Publisher(hub) as two:
        sat = await one.create({"n": 0}, uid="sat-1")
        with pytest.raises(ConflictError, match="the newest frame is 0, not -1"):
            await two.create({"n": 0, "mine": True}, uid="sat-1")
        twin = await two.open("sat-1")
        assert await sat.update({"n": 1}) == 1
        with pytest.raises(ConflictError, match="the newest frame is 1, not 0"):
            await twin.update({"n": 7})
        with pytest.raises(ConflictError):
            await twin.update({"n": 8})
        assert await sat.update({"n": 2}) == 2


async def test_one_publisher_opens_an_object_once() -> None:
    async with Publisher(MemoryHub()) as publisher:
        await publisher.create({}, uid="sat-1")
        with pytest.raises(ConflictError, match="another publisher here holds this object"):
            await publisher.open("sat-1")


async def test_two_frames_with_one_serial_are_a_fork_and_the_next_full_frame_mends_it() -> None:
    hub = MemoryHub()
    async with Publisher(hub, policy=DELTAS) as publisher:
        sat = await publisher.create({"n": 0}, topic="sats", uid="sat-1")
        async with follow(hub, "sat-1", topic="sats") as object:
            await sat.update({"n": 1})
            assert await heard(object, 2) == [Ready(0, {"n": 0}), Update(1, {"n": 0}, {"n": 1})]
            other = {"uid": "sat-1", "serial": 1, "ver": 1, "alg": "X-mp", "delta": {"n": 666}}
            await send(hub, other)
            assert await heard(object, 1) == [Fork(1, decode(json.dumps(other).encode()))]
            assert (object.status, object.value) == (Status.STALE, {"n": 1})
            await send(hub, {"uid": "sat-1", "serial": 2, "data": {"n": 2}})
            assert await heard(object, 1) == [Resynced(2, {"n": 1}, {"n": 2})]


async def test_a_corrupted_delta_makes_the_object_stale_and_history_mends_it() -> None:
    """The copy on the wire is broken, the one in history is whole."""
    hub, wire = MemoryHub(), MemoryHub()

    class Split(MemoryHub):
        async def replay(self, topic: str, *, uid: str, first: int, last: int) -> Sequence[bytes]:
            return await hub.replay(topic, uid=uid, first=first, last=last)

        def subscribe(self, topic: str, start: Start) -> Any:
            return wire.subscribe(topic, start)

    async with Publisher(hub, policy=DELTAS) as publisher:
        sat = await publisher.create({"n": 0}, topic="sats", uid="sat-1")
        await sat.update({"n": 1})
        async with follow(Split(), "sat-1", topic="sats", following=HASTY) as object:
            await send(wire, {"uid": "sat-1", "serial": 0, "data": {"n": 0}})
            assert await heard(object, 1) == [Ready(0, {"n": 0})]
            broken = [{"op": "replace", "path": "/gone", "value": 1}]
            await send(wire, {"uid": "sat-1", "serial": 1, "ver": 1, "alg": "jp", "delta": broken})
            stale, resynced = await heard(object, 2)
            assert isinstance(stale, Stale)
            assert (stale.serial, stale.cause) == (1, Cause.DELTA_FAILED)
            assert resynced == Resynced(1, {"n": 0}, {"n": 1})


async def test_an_unknown_algorithm_fails_until_the_next_full_frame_and_is_not_asked_about() -> None:
    hub = MemoryHub()
    async with follow(hub, "sat-1", topic="sats") as object:
        await send(hub, {"uid": "sat-1", "serial": 0, "data": {"n": 0}})
        await send(hub, {"uid": "sat-1", "serial": 1, "ver": 1, "alg": "X-crdt", "delta": "?"})
        assert await heard(object, 2) == [
            Ready(0, {"n": 0}),
            Error(1, Cause.UNKNOWN_ALGORITHM, "no plug-in for X-crdt"),
        ]
        assert (object.status, object.statistics()["asked"]) == (Status.FAILED, 0)
        await send(hub, {"uid": "sat-1", "serial": 2, "data": {"n": 2}})
        assert await heard(object, 1) == [Resynced(2, {"n": 0}, {"n": 2})]


async def test_a_frozen_object_takes_no_update_from_its_publisher_or_from_the_wire() -> None:
    hub = MemoryHub()
    async with Publisher(hub) as publisher:
        sat = await publisher.create({"n": 0}, topic="sats", uid="sat-1")
        assert await sat.freeze() == 1
        for late in (sat.update({"n": 1}), sat.replace({"n": 1}), sat.freeze(), sat.apply_delta({}, "X-mp")):
            with pytest.raises(FrozenError):
                await late
        async with follow(hub, "sat-1", topic="sats", until_frozen=False) as object:
            assert await heard(object, 2) == [Ready(0, {"n": 0}), Frozen(1, {"n": 0})]
            await send(hub, {"uid": "sat-1", "serial": 2, "data": {"n": 2}})
            assert await heard(object, 1) == [Error(2, Cause.FROZEN, "the object is frozen")]
            assert (object.value, object.status) == ({"n": 0}, Status.FROZEN)


async def test_the_loop_ends_when_the_object_is_frozen() -> None:
    hub = MemoryHub()
    async with Publisher(hub, policy=DELTAS) as publisher:
        sat = await publisher.create({"n": 0})
        await sat.update({"n": 1})
        await sat.freeze()
        async with follow(hub, sat.uid) as object:
            with anyio.fail_after(5):
                assert [event.serial async for event in object] == [0, 1, 2]


async def test_a_takeover_by_a_huge_serial_is_refused_and_the_object_goes_on() -> None:
    hub = MemoryHub()
    async with Publisher(hub, policy=DELTAS) as publisher:
        sat = await publisher.create({"n": 0}, topic="sats", uid="sat-1")
        async with follow(hub, "sat-1", topic="sats") as object:
            assert await heard(object, 1) == [Ready(0, {"n": 0})]
            await send(hub, {"uid": "sat-1", "serial": 2**62, "data": {"evil": True}})
            assert await heard(object, 1) == [Error(2**62, Cause.SERIAL_JUMP, f"{2**62} ahead of 0")]
            assert object.value == {"n": 0}
            await send(hub, {"uid": "sat-1", "serial": 1, "ver": 1, "alg": "X-mp", "delta": {"n": 1}})
            assert await heard(object, 1) == [Update(1, {"n": 0}, {"n": 1})]
    assert sat.serial == 0


async def test_frames_of_strangers_other_objects_and_rubbish_are_counted_and_not_heard() -> None:
    from syncline.protocols.sdsp.plugins import Capabilities, Delivery
    from tests.protocols.sdsp.scripted import Scripted

    frames = [
        Delivery(b'{"uid": "sat-1", "serial": 0, "data": 0}', "alice"),
        Delivery(b"rubbish", "alice"),
        Delivery(b'{"uid": "sat-2", "serial": 0, "data": 0}', "alice"),
        Delivery(b'{"uid": "sat-1", "serial": 1, "data": 666}', "mallory"),
        Delivery(b'{"uid": "sat-1", "serial": 1, "data": 1}', "alice"),
    ]
    vouching = Capabilities(
        max_payload=1_000, ordered=True, history=False, optimistic=False, durable=False, authenticated=True
    )
    async with follow(Scripted(frames, vouching), "sat-1") as object:
        assert await heard(object, 2) == [Ready(0, 0), Update(1, 0, 1)]
        counts = object.statistics()
        assert (counts["malformed"], counts["foreign"], counts["strangers"]) == (1, 1, 1)
        assert object.publisher == "alice"
    async with follow(Scripted(frames, vouching), "sat-1", publisher="mallory") as object:
        assert await heard(object, 1) == [Ready(1, 666)]
    with pytest.raises(UsageError, match="proves no names"):
        async with follow(MemoryHub(), "sat-1", publisher="alice"):
            pass


async def test_an_object_too_large_for_the_transport_goes_through_object_storage() -> None:
    hub, storage = MemoryHub(), open_obstore("memory:")
    small = Policy(max_payload=200)
    async with Publisher(hub, policy=small, storage=storage) as publisher:
        sat = await publisher.create({"text": "x" * 500}, topic="sats")
        await sat.update({"text": "y" * 500})
        frames = [json.loads(raw) for raw in await hub.replay("sats", uid=sat.uid, first=0, last=9)]
        assert [sorted(frame) for frame in frames] == [["dataUri", "serial", "uid"]] * 2
        async with follow(hub, sat.uid, topic="sats", storage=storage) as object:
            assert await heard(object, 1) == [Ready(1, {"text": "y" * 500})]
        async with follow(hub, sat.uid, topic="sats") as object:
            [stale] = await heard(object, 1)
            assert isinstance(stale, Stale)
            assert (stale.serial, stale.cause) == (1, Cause.DATA_UNAVAILABLE)
            assert "only https and http are fetched" in stale.detail


async def test_an_address_in_a_private_network_is_not_fetched_for_a_stranger() -> None:
    hub = MemoryHub()
    async with follow(hub, "sat-1", topic="sats", following=HASTY, fetch=FetchPolicy(tries=1)) as object:
        await send(hub, {"uid": "sat-1", "serial": 0, "dataUri": "http://169.254.169.254/latest/meta-data"})
        [stale] = await heard(object, 1)
        assert isinstance(stale, Stale)
        assert stale.cause is Cause.DATA_UNAVAILABLE
        assert "which is not public" in stale.detail


async def test_an_address_that_is_none_stops_nobody() -> None:
    hub = MemoryHub()
    await send(hub, {"uid": "sat-1", "serial": 0, "dataUri": "http://xn--/"})
    async with follow(hub, "sat-1", topic="sats", history=[]) as object:
        [stale] = await heard(object, 1)
        assert isinstance(stale, Stale)
        assert (stale.serial, stale.cause) == (0, Cause.DATA_UNAVAILABLE)
        await send(hub, {"uid": "sat-1", "serial": 1, "data": 1})
        assert await heard(object, 1) == [Ready(1, 1)]


async def test_text_and_binary_objects_are_followed_too() -> None:
    hub = MemoryHub()
    async with Publisher(hub, policy=DELTAS) as publisher:
        text, binary = await publisher.create("hello"), await publisher.create(b"\0\1\2" * 50)
        async with follow(hub, text.uid) as followed:
            await text.update("hello 🛰")
            assert await heard(followed, 2) == [Ready(0, "hello"), Update(1, "hello", "hello 🛰")]
        async with follow(hub, binary.uid) as followed:
            await binary.update(b"\0\1\2" * 50 + b"\xff")
            assert (await heard(followed, 2))[1] == Update(1, b"\0\1\2" * 50, b"\0\1\2" * 50 + b"\xff")


async def test_an_error_of_the_transport_comes_out_of_the_loop_as_it_is() -> None:
    class Dead(MemoryHub):
        def subscribe(self, topic: str, start: Start) -> Any:
            raise UnreachableError("nobody there")

    async with follow(Dead(), "sat-1") as object:
        with pytest.raises(UnreachableError, match="nobody there"):
            await heard(object, 1)


async def test_an_error_of_the_users_block_is_not_wrapped() -> None:
    with pytest.raises(ZeroDivisionError):
        async with follow(MemoryHub(), "sat-1"):
            print(1 / 0)


class Flaky(MemoryHub):
    """A hub that can be out of reach."""

    up = True

    async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
        if not self.up:
            raise UnreachableError("down")
        await super().publish(topic, payload, dedupe_id=dedupe_id, expect_serial=expect_serial)


async def test_a_frame_that_could_not_be_sent_goes_out_before_the_next() -> None:
    hub = Flaky()
    async with Publisher(hub, policy=DELTAS) as publisher:
        sat = await publisher.create({"n": 0})
        hub.up = False
        with pytest.raises(UnreachableError):
            await sat.update({"n": 1})
        with pytest.raises(UnreachableError):
            await sat.update({"n": 2})
        assert sat.serial == 1
        hub.up = True
        assert await sat.update({"n": 2}) == 2
        sent = [json.loads(raw) for raw in await hub.replay(sat.uid, uid=sat.uid, first=0, last=9)]
        assert [frame["serial"] for frame in sent] == [0, 1, 2]


async def test_following_a_frozen_object_from_its_end_is_over_at_once() -> None:
    hub = MemoryHub()
    async with Publisher(hub) as publisher:
        sat = await publisher.create({"n": 0}, uid="sat-1")
        await sat.freeze()
    async with follow(hub, "sat-1") as object:
        assert [type(event) for event in [event async for event in object]] == [Ready, Frozen]
        last = object.state
    with anyio.fail_after(1):
        async with follow(hub, "sat-1", state=last) as object:
            assert [event async for event in object] == []
            assert (object.status, object.value) == (Status.FROZEN, {"n": 0})


@pytest.mark.parametrize("durable", [False, True])
async def test_an_object_whose_first_frame_could_not_be_sent_can_be_had_once_the_transport_is_back(
    tmp_path: Path, durable: bool
) -> None:
    hub = Flaky()
    hub.up = False
    async with Publisher(hub, state=tmp_path if durable else None) as publisher:
        with pytest.raises(UnreachableError):
            await publisher.create({"n": 0}, uid="sat-1")
        hub.up = True
        if durable:
            with pytest.raises(ConflictError):
                await publisher.create({"n": 0}, uid="sat-1")
            sat = await publisher.open("sat-1")
        else:
            sat = await publisher.create({"n": 0}, uid="sat-1")
        assert await sat.update({"n": 1}) == 1
        assert len(await hub.replay("sat-1", uid="sat-1", first=0, last=9)) == 2


async def test_updates_of_many_tasks_get_serials_one_after_the_other() -> None:
    hub = MemoryHub()
    async with Publisher(hub) as publisher:
        sat = await publisher.create({"n": -1})
        async with anyio.create_task_group() as tasks:
            for n in range(20):
                tasks.start_soon(sat.update, {"n": n})
        sent = [json.loads(raw) for raw in await hub.replay(sat.uid, uid=sat.uid, first=0, last=99)]
        assert [frame["serial"] for frame in sent] == list(range(21))


async def test_a_large_object_is_worked_on_beside_the_event_loop() -> None:
    hub = MemoryHub()
    big = {f"key{n}": "x" * 100 for n in range(2_000)}
    async with Publisher(hub) as publisher:
        sat = await publisher.create(big)
        async with follow(hub, sat.uid) as object:
            await sat.update({**big, "key7": "changed"})
            ready, update = await heard(object, 2)
        assert isinstance(ready, Ready)
        assert isinstance(update, Update)
        assert update.new["key7"] == "changed"
        assert decode((await hub.replay(sat.uid, uid=sat.uid, first=1, last=1))[0]).alg == "jp"
