"""What SDSP transports promise (`syncline.protocols.sdsp.plugins.Transport`), as far as their capabilities say so.

The subject is an opened transport. Each check uses an object of its own, with a name that looks for trouble, so a server
may be used again and again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from secrets import token_hex
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec

from syncline.core.errors import ConflictError
from syncline.protocols.sdsp.plugins import Delivery, Start, Transport
from syncline.testing.conformance.check import Check, NotConforming, expect

TOPIC: Final = "sats/low.orbit"
QUIET_SECONDS: Final = 0.1


async def a_late_joiner_starts_at_the_newest_full_frame(transport: Transport) -> None:
    uid = await _chain(transport)
    async with transport.subscribe(TOPIC, Start(uid=uid)) as deliveries:
        expect(await _next(deliveries, 3), [3, 4, 5], "serials")
        await _put(transport, _full(uid, 6))
        expect(await _next(deliveries, 1), [6], "serials")


async def a_subscriber_goes_on_after_the_serial_it_has(transport: Transport) -> None:
    for after in (0, 3, 4, 5):
        uid = await _chain(transport)
        async with transport.subscribe(TOPIC, Start(uid=uid, after=after)) as deliveries:
            await _put(transport, _full(uid, 6))
            wanted = list(range(after + 1, 7))
            expect(await _next(deliveries, len(wanted)), wanted, f"serials after {after}")


async def a_subscriber_may_come_before_the_first_frame(transport: Transport) -> None:
    uid = _name()
    async with transport.subscribe(TOPIC, Start(uid=uid)) as deliveries:
        await _chain(transport, uid)
        expect(await _next(deliveries, 6), [0, 1, 2, 3, 4, 5], "serials")


async def history_answers_a_range_and_the_newest(transport: Transport) -> None:
    uid = _name()
    expect(await transport.newest(TOPIC, uid=uid), None, "the newest of nothing")
    expect(await _kept(transport, uid), [], "what was kept of nothing")
    await _chain(transport, uid)
    expect(await _kept(transport, uid, 1, 4), [1, 2, 3, 4], "serials from 1 to 4")
    expect(await _kept(transport, uid, 3), [3, 4, 5], "serials from 3 on")
    expect(await transport.newest(TOPIC, uid=uid), _delta(uid, 5, 2), "the newest")


async def a_repeated_publish_is_taken_once(transport: Transport) -> None:
    uid = _name()
    for _ in range(3):
        await _put(transport, _full(uid, 0), -1)
    expect(await _kept(transport, uid), [0], "what was kept of three publishes with one dedupe_id")


async def a_publish_on_a_serial_that_is_not_the_newest_is_a_conflict(transport: Transport) -> None:
    for serial in (-1, 0, 2):
        uid = _name()
        await _put(transport, _full(uid, 0), -1)
        await _put(transport, _delta(uid, 1, 1), 0)
        taken = await _taken(transport, _full(uid, serial + 1, "another"), serial, name="another")
        expect(taken, False, f"taken on serial {serial} when the newest is 1")
        expect(await _kept(transport, uid), [0, 1], "what was kept")


async def of_two_publishers_at_once_one_wins_and_the_other_hears_of_the_conflict(transport: Transport) -> None:
    uid = _name()
    await _put(transport, _full(uid, 0), -1)
    taken: list[bool] = []

    async def race(name: str) -> None:
        taken.append(await _taken(transport, _full(uid, 1, name), 0, name=name))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(race, "one")
        tasks.start_soon(race, "two")
    expect(sorted(taken), [False, True], "taken")
    expect(await _kept(transport, uid), [0, 1], "what was kept")


async def objects_are_kept_apart(transport: Transport) -> None:
    uid = _name()
    await _put(transport, _full(uid, 0), -1)
    await _put(transport, _full(f"{uid}.b", 0), -1)
    await _put(transport, _delta(f"{uid}.b", 1, 1), 0)
    expect(await _kept(transport, uid), [0], "what was kept of one object")
    expect(await _kept(transport, f"{uid}.b"), [0, 1], "what was kept of the other")


async def topics_are_kept_apart(transport: Transport) -> None:
    uid = _name()
    await _put(transport, _full(uid, 0), -1)
    await transport.publish("other", _full(uid, 7), dedupe_id=f"{uid}/7", expect_serial=-1)
    expect(await _kept(transport, uid), [0], "what was kept of the topic")


async def the_same_frame_on_another_topic_is_not_a_repeat(transport: Transport) -> None:
    uid = _name()
    await _put(transport, _full(uid, 0), -1)
    for serial, frame in enumerate((_full(uid, 0), _delta(uid, 1, 1))):
        await transport.publish("other", frame, dedupe_id=f"{uid}/{serial}/", expect_serial=serial - 1)
    kept = await transport.replay("other", uid=uid, first=0, last=99)
    expect(_serials(kept), [0, 1], "what was kept of the other topic")
    expect(await _kept(transport, uid), [0], "what was kept of the topic")


async def many_publishes_at_once_all_arrive_in_order(transport: Transport) -> None:
    names = [_name() for _ in range(20)]

    async def one(uid: str) -> None:
        for serial in range(10):
            await _put(transport, _full(uid, serial), serial - 1)

    async with anyio.create_task_group() as tasks:
        for uid in names:
            tasks.start_soon(one, uid)
    for uid in names:
        expect(await _kept(transport, uid), list(range(10)), "what was kept")
    async with transport.subscribe(TOPIC, Start(uid=names[0], after=0)) as deliveries:
        expect(await _next(deliveries, 9), list(range(1, 10)), "serials")


async def a_cancelled_publish_does_not_keep_others_waiting(transport: Transport) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(_put, transport, _full(_name(), 0))
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    uid = _name()
    await _put(transport, _full(uid, 0), -1)
    expect(await _kept(transport, uid), [0], "what was kept")


async def a_closed_subscription_leaves_nothing_behind(transport: Transport) -> None:
    uid = await _chain(transport)
    for _ in range(5):
        async with transport.subscribe(TOPIC, Start(uid=uid)) as deliveries:
            expect(await _next(deliveries, 1), [3], "serials")
    with anyio.CancelScope() as quiet:
        async with transport.subscribe(TOPIC, Start(uid=uid)) as deliveries:
            expect(await _next(deliveries, 3), [3, 4, 5], "serials")
            quiet.deadline = anyio.current_time() + QUIET_SECONDS
            raise NotConforming(f"something more came: {(await anext(deliveries)).payload!r}")


def _remembers(transport: Transport) -> bool:
    return transport.capabilities.history


def _keeps_topics_apart(transport: Transport) -> bool:
    return transport.capabilities.history and transport.capabilities.topics


def _compares(transport: Transport) -> bool:
    return transport.capabilities.history and transport.capabilities.optimistic


TRANSPORT_CHECKS: Final[tuple[Check[Transport], ...]] = (
    Check(a_late_joiner_starts_at_the_newest_full_frame, _remembers),
    Check(a_subscriber_goes_on_after_the_serial_it_has, _remembers),
    Check(a_subscriber_may_come_before_the_first_frame, _remembers),
    Check(history_answers_a_range_and_the_newest, _remembers),
    Check(a_repeated_publish_is_taken_once, _remembers),
    Check(a_publish_on_a_serial_that_is_not_the_newest_is_a_conflict, _compares),
    Check(of_two_publishers_at_once_one_wins_and_the_other_hears_of_the_conflict, _compares),
    Check(objects_are_kept_apart, _remembers),
    Check(topics_are_kept_apart, _keeps_topics_apart),
    Check(the_same_frame_on_another_topic_is_not_a_repeat, _keeps_topics_apart),
    Check(many_publishes_at_once_all_arrive_in_order, _remembers),
    Check(a_cancelled_publish_does_not_keep_others_waiting, _remembers),
    Check(a_closed_subscription_leaves_nothing_behind, _remembers),
)


# frames, of which a transport looks at no more than uid, serial and ver


def _name() -> str:
    return f"sat.{token_hex(6)} *>"


def _full(uid: str, serial: int, by: str = "") -> bytes:
    return msgspec.json.encode({"uid": uid, "serial": serial, "data": {"n": serial, "by": by}})


def _delta(uid: str, serial: int, ver: int) -> bytes:
    return msgspec.json.encode({"uid": uid, "serial": serial, "ver": ver, "alg": "X-mp", "delta": {"n": serial}})


async def _put(transport: Transport, payload: bytes, expect_serial: int | None = None, *, name: str = "") -> None:
    frame = msgspec.json.decode(payload)
    dedupe_id = f"{frame['uid']}/{frame['serial']}/{name}"
    await transport.publish(TOPIC, payload, dedupe_id=dedupe_id, expect_serial=expect_serial)


async def _taken(transport: Transport, payload: bytes, expect_serial: int, *, name: str) -> bool:
    try:
        await _put(transport, payload, expect_serial, name=name)
    except ConflictError:
        return False
    return True


async def _chain(transport: Transport, uid: str = "") -> str:
    """Serials 0 to 5 of an object; 0 and 3 are full. Returns its name."""
    uid = uid or _name()
    make: Callable[[int], bytes] = lambda n: _delta(uid, n, n % 3) if n % 3 else _full(uid, n)  # noqa: E731
    for serial in range(6):
        await _put(transport, make(serial), serial - 1)
    return uid


async def _next(deliveries: AsyncIterator[Delivery], number: int) -> list[int]:
    return _serials([(await anext(deliveries)).payload for _ in range(number)])


async def _kept(transport: Transport, uid: str, first: int = 0, last: int = 99) -> list[int]:
    return _serials(await transport.replay(TOPIC, uid=uid, first=first, last=last))


def _serials(payloads: Any) -> list[int]:
    return [msgspec.json.decode(payload)["serial"] for payload in payloads]
