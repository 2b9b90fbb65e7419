"""Random edit scripts through a publisher, a transport that loses, repeats and reorders, and a subscriber."""

from __future__ import annotations

from typing import Any

import anyio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.protocols.sdsp.publisher import Publisher
from syncline.protocols.sdsp.rebuild import Status
from syncline.protocols.sdsp.session import Following, Frozen, Policy, Ready, Resynced, Update
from syncline.protocols.sdsp.subscriber import follow
from syncline.protocols.sdsp.wire import ObjectKind
from syncline.testing.faults import FaultPlan, FaultyTransport
from syncline.transports.memory import MemoryHub

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
OBJECTS = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
SCRIPTS = st.lists(st.tuples(st.sampled_from(["update", "update", "update", "replace"]), OBJECTS), max_size=20)
PLANS = st.builds(
    FaultPlan,
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.2, 0.5]),
    repeats=st.sampled_from([0.0, 0.3]),
    disorder=st.sampled_from([0.0, 0.3]),
)


async def run(script: list[tuple[str, Any]], plan: FaultPlan, with_history: bool) -> None:
    hub = MemoryHub()
    faulty = FaultyTransport(hub, plan)
    following = Following(reorder_seconds=0.001, backoff_first=0.001, history_seconds=1)
    async with Publisher(hub, policy=Policy(delta_ratio=9, cumulative_ratio=99, checksum_every=2)) as publisher:
        published = await publisher.create([])
        values = {0: published.value}
        for action, value in script:
            step = published.update(value) if action == "update" else published.replace(value, kind=ObjectKind.JSON)
            serial = await step
            values[serial] = published.value
        values[await published.freeze()] = published.value
        history = None if with_history else ()
        async with follow(faulty, published.uid, history=history, following=following) as object:
            with anyio.move_on_after(600):  # of a clock that jumps ahead whenever everybody waits
                async for event in object:
                    if isinstance(event, (Ready, Frozen)):
                        assert event.value == values[event.serial]
                    elif isinstance(event, (Update, Resynced)):
                        assert event.new == values[event.serial]
            state = object.state
            assert state is None or state.value == values[state.serial]  # old, perhaps, but never wrong
            assert object.status is not Status.FAILED  # every algorithm here is known
            if plan.loss == 0:
                assert object.status is Status.FROZEN
            if object.status is Status.FROZEN:
                assert object.value == published.value


@settings(max_examples=150, deadline=None)
@given(SCRIPTS, PLANS, st.booleans())
def test_a_subscriber_ends_with_the_publishers_object_or_in_a_named_state_but_never_with_a_wrong_one(
    script: list[tuple[str, Any]], plan: FaultPlan, with_history: bool
) -> None:
    clock = trio.testing.MockClock(autojump_threshold=0)
    options = {"clock": clock}
    anyio.run(run, script, plan, with_history or plan.loss == 0, backend="trio", backend_options=options)
