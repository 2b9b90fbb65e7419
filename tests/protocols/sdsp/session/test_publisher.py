"""The publisher's half: serials, versions, full or delta, what is written and when, and going on after a restart."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec import UNSET

from syncline.core import limits
from syncline.core.errors import ConflictError, CorruptionError, DecodeError, FrozenError, UnavailableError, UsageError
from syncline.protocols.sdsp.checksums import checksum_of
from syncline.protocols.sdsp.deltas import Budget, Deltas
from syncline.protocols.sdsp.rebuild import State, fold
from syncline.protocols.sdsp.session import Draft, Policy, PublisherSession, new_uid
from syncline.protocols.sdsp.session.publisher import checksum_interval
from syncline.protocols.sdsp.wire import Kind, ObjectKind, decode
from tests.protocols.sdsp.kit import ALWAYS_DELTA, DELTAS, UID, Published


def created(value: Any, policy: Policy | None = None, kind: ObjectKind | None = None) -> PublisherSession:
    session = PublisherSession(UID, DELTAS, policy)
    session.commit(session.create(value, kind))
    return session


def done(session: PublisherSession, draft: Draft | None) -> Draft:
    assert draft is not None
    session.commit(draft)
    return draft


def big(n: int) -> dict[str, Any]:
    return {"n": n, "padding": "x" * 1_000}


def test_the_first_frame_has_serial_zero_and_the_whole_object() -> None:
    draft = PublisherSession(UID, DELTAS).create({"a": 1})
    assert draft.raw == b'{"uid":"%s","serial":0,"data":{"a":1}}' % UID.encode()
    assert draft.expect is None
    assert draft.store is None


def test_each_update_takes_the_next_serial_and_version() -> None:
    session = created(big(0))
    first = done(session, session.update(big(1)))
    assert (first.frame.serial, first.frame.ver, first.frame.alg) == (1, 1, "jp")
    assert first.frame.delta == [{"op": "replace", "path": "/n", "value": 1}]
    second = done(session, session.update(big(2)))
    assert (second.frame.serial, second.frame.ver) == (2, 2)
    third = done(session, session.replace(big(3)))
    assert (third.frame.serial, third.frame.ver, third.frame.kind) == (3, 0, Kind.FULL)
    fourth = done(session, session.update(big(4)))
    assert (fourth.frame.serial, fourth.frame.ver) == (4, 1)


def test_the_raw_bytes_are_the_frame() -> None:
    session = created(big(0), Policy(checksum_every=1))
    draft = session.update(big(1), meta={"why": "test"})
    assert draft is not None
    assert decode(draft.raw) == draft.frame
    assert draft.frame.meta == {"why": "test"}


def test_an_update_that_changes_nothing_is_no_frame() -> None:
    session = created({"a": 1, "b": [1.0]})
    assert session.update({"b": [1.0], "a": 1}) is None
    assert session.update({"b": [1], "a": 1}) is not None
    assert session.update({"b": [1.0], "a": True}) is not None
    assert created("text").update("text") is None
    assert created(b"bytes").update(b"bytes") is None


def test_the_callers_object_is_copied() -> None:
    value: dict[str, Any] = {"list": [1], "padding": "x" * 500}
    session = created(value)
    value["list"].append(2)
    draft = done(session, session.update(value))
    assert draft.frame.delta == [{"op": "add", "path": "/list/1", "value": 2}]
    value["list"].append(3)
    assert session.state is not None
    assert session.state.value["list"] == [1, 2]


def test_a_delta_that_is_too_large_gives_way_to_the_object() -> None:
    session = created({"text": "a" * 100})
    draft = done(session, session.update({"text": "b" * 100}))
    assert draft.frame.kind is Kind.FULL
    assert (draft.frame.serial, draft.frame.ver) == (1, 0)


def test_deltas_that_are_too_large_together_give_way_to_the_object() -> None:
    session = created({"n": 0, "padding": "x" * 200})
    kinds = [done(session, session.update({"n": n, "padding": "x" * 200})).frame.kind for n in range(1, 8)]
    size = len(msgspec.json.encode([{"op": "replace", "path": "/n", "value": 1}]))
    full = len(msgspec.json.encode({"n": 0, "padding": "x" * 200}))
    deltas = (full - 1) // size  # as many as stay below the object's own size
    assert kinds == [Kind.DELTA] * deltas + [Kind.FULL] + [Kind.DELTA] * (6 - deltas)


def test_after_a_hundred_deltas_in_a_row_comes_the_object() -> None:
    session = created({"n": 0, "padding": "x" * 50_000})
    drafts = [done(session, session.update({"n": n, "padding": "x" * 50_000})) for n in range(1, 103)]
    assert [draft.frame.ver for draft in drafts] == [*range(1, 101), 0, 1]


def test_a_full_frame_larger_than_the_transport_takes_is_stored_first() -> None:
    session = PublisherSession(UID, DELTAS, Policy(max_payload=500))
    draft = session.create(big(0))
    assert draft.raw == b""
    assert draft.store == msgspec.json.encode(big(0))
    with pytest.raises(UsageError):
        session.commit(draft)
    stored = session.stored(draft, "https://example.org/o")
    assert decode(stored.raw) == stored.frame
    assert (stored.frame.data, stored.frame.data_uri, stored.frame.kind) == (UNSET, "https://example.org/o", Kind.FULL)
    session.commit(stored)
    small = session.update(big(1))
    assert small is not None
    assert small.frame.kind is Kind.DELTA
    with pytest.raises(DecodeError):
        session.stored(draft, "u" * 9_000)


def test_a_delta_larger_than_the_transport_takes_goes_as_an_object() -> None:
    session = PublisherSession(UID, DELTAS, Policy(max_payload=300, delta_ratio=1e9, cumulative_ratio=1e9))
    session.commit(session.stored(session.create(big(0)), "mem://0"))
    draft = session.update({**big(0), "more": "y" * 400})
    assert draft is not None
    assert draft.store is not None
    assert draft.frame.kind is Kind.FULL


def test_texts_and_binaries_have_their_own_algorithms() -> None:
    text = created("a long text " * 20)
    draft = done(text, text.update("a long text " * 20 + "!"))
    assert (draft.frame.alg, draft.frame.delta) == ("md", "=240\t+!")
    binary = created(bytes(range(256)) * 4)
    draft = done(binary, binary.update(bytes(range(256)) * 4 + b"!"))
    assert draft.frame.alg == "X-vcdiff"
    assert isinstance(draft.frame.delta, bytes)
    first = PublisherSession(UID, DELTAS).create(b"\xff")
    assert (first.frame.object_kind, first.frame.encoding) == (ObjectKind.BINARY, "base64")
    assert PublisherSession(UID, DELTAS).create("t").frame.object_kind is ObjectKind.TEXT
    assert PublisherSession(UID, DELTAS).create("t", ObjectKind.JSON).frame.object_kind is UNSET


def test_another_algorithm_can_be_chosen_and_is_left_where_it_cannot_say_it() -> None:
    session = created(big(0), Policy(algorithm="X-mp"))
    assert done(session, session.update(big(1))).frame.delta == {"n": 1}
    assert done(session, session.update({**big(1), "n": None})).frame.kind is Kind.FULL


def test_a_delta_that_would_make_another_object_is_never_sent() -> None:
    class Wrong:
        code = "X-wrong"
        kinds = frozenset({ObjectKind.JSON})

        def make(self, old: Any, new: Any) -> Any:
            return 1

        def apply(self, old: Any, delta: Any, budget: Budget, *, in_place: bool = False) -> Any:
            return {"wrong": True}

    session = PublisherSession(UID, Deltas([Wrong()]), Policy(algorithm="X-wrong"))
    session.commit(session.create(big(0)))
    draft = done(session, session.update(big(1)))
    assert (draft.frame.kind, draft.frame.data) == (Kind.FULL, big(1))


def test_a_delta_made_by_the_caller_is_published_as_it_is() -> None:
    session = created(big(0))
    delta = [{"op": "test", "path": "/n", "value": 0}, {"op": "replace", "path": "/n", "value": 7}]
    draft = done(session, session.apply_delta(delta, "jp"))
    assert draft.frame.delta == delta
    assert draft.state.value == big(7)
    with pytest.raises(UsageError):
        session.apply_delta([{"op": "remove", "path": "/nowhere"}], "jp")
    with pytest.raises(UsageError):
        session.apply_delta("=1", "md")
    with pytest.raises(UsageError):
        session.apply_delta([], "X-unknown")


def test_a_freeze_is_the_last_frame() -> None:
    session = created(big(0))
    done(session, session.update(big(1)))
    draft = done(session, session.freeze())
    assert draft.raw == b'{"uid":"%s","serial":2,"ver":2,"frozen":true}' % UID.encode()
    with pytest.raises(FrozenError):
        session.update(big(2))
    with pytest.raises(FrozenError):
        session.replace(big(2))
    with pytest.raises(FrozenError):
        session.apply_delta([], "jp")
    with pytest.raises(FrozenError):
        session.freeze()


def test_a_freeze_right_after_a_full_frame_has_version_one() -> None:
    session = created(1)
    assert session.freeze().frame.ver == 1


@pytest.mark.parametrize(("every", "serials"), [(0, []), (1, [1, 2, 3, 4, 5, 6]), (3, [3, 6])])
def test_checksums_come_as_often_as_asked_and_only_with_deltas(every: int, serials: list[int]) -> None:
    published = Published(Policy(delta_ratio=1e9, cumulative_ratio=1e9, checksum_every=every))
    published.create(big(0))
    for n in range(1, 7):
        published.update(big(n))
    found = [frame for frame in published.frames if frame.checksum is not None]
    assert [frame.serial for frame in found] == serials
    for frame in found:
        assert frame.checksum == checksum_of(big(frame.serial), ObjectKind.JSON, "utf-8/SHA-256")


def test_the_checksum_of_a_binary_is_over_its_bytes() -> None:
    session = created(bytes(1_000), Policy(checksum_every=1, checksum_hash="MD5"))
    draft = session.update(bytes(1_000) + b"x")
    assert draft is not None
    assert draft.frame.checksum == checksum_of(bytes(1_000) + b"x", ObjectKind.BINARY, "raw/MD5")


def test_how_often_checksums_come_is_written_in_words() -> None:
    assert [checksum_interval(text) for text in ("off", "always", "every:7")] == [0, 1, 7]
    for wrong in ("", "every", "every:0", "every:-1", "every:x", "7"):
        with pytest.raises(UsageError):
            checksum_interval(wrong)


@pytest.mark.parametrize(
    "value",
    [float("nan"), [float("inf")], {"a": {1: 2}}, {1, 2}.__iter__(), "\ud800", object(), {"a": {"b": [float("nan")]}}],
)
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    session = PublisherSession(UID, DELTAS)
    if not isinstance(value, dict) or "a" not in value or 1 not in value["a"]:
        with pytest.raises(UsageError):
            session.create(value)
    else:  # number keys become text, as everywhere in JSON
        assert session.create(value).state.value == {"a": {"1": 2}}


def test_an_object_of_another_kind_needs_replace() -> None:
    session = created("text")
    with pytest.raises(UsageError):
        session.update({"a": 1})
    assert done(session, session.replace({"a": 1})).frame.holds is ObjectKind.JSON
    assert done(session, session.update({"a": 2})).state.value == {"a": 2}


def test_what_is_called_too_early_or_twice_is_a_usage_error() -> None:
    session = PublisherSession(UID, DELTAS)
    for attempt in (lambda: session.update(1), lambda: session.replace(1), session.freeze, session.snapshot):
        with pytest.raises(UsageError):
            attempt()
    session.commit(session.create(1))
    with pytest.raises(UsageError):
        session.create(1)
    with pytest.raises(DecodeError):
        PublisherSession("", DELTAS)


def test_a_draft_that_is_not_committed_never_happened() -> None:
    session = created(big(0))
    lost = session.update(big(1))
    again = session.update(big(2))
    assert lost is not None
    assert again is not None
    assert lost.frame.serial == again.frame.serial == 1
    session.commit(again)
    with pytest.raises(ConflictError):
        session.commit(lost)


def test_a_second_publisher_is_told_apart_by_what_each_expects() -> None:
    first = created(big(0))
    assert first.state is not None
    second = PublisherSession.resume(UID, [Published().create(big(0))], DELTAS, head=first.head)
    mine, theirs = done(first, first.update(big(1))), second.update(big(2))
    assert theirs is not None
    assert theirs.expect == mine.expect  # so only one of them can be written
    assert theirs.expect != mine.head


def test_a_publisher_goes_on_from_its_frames_and_head_after_a_restart(published: Published) -> None:
    head = published.session.head
    resumed = PublisherSession.resume(UID, published.frames, DELTAS, ALWAYS_DELTA, head=head)
    assert resumed.head == head
    assert resumed.state is not None
    assert resumed.state.to_bytes() == published.states[4].to_bytes()
    draft = resumed.update({"n": 99, "log": []})
    assert draft is not None
    assert (draft.frame.serial, draft.frame.ver, draft.expect) == (5, 5, head)
    without_head = PublisherSession.resume(UID, published.frames[::-1], DELTAS)
    assert without_head.head == head


def test_a_publisher_does_not_go_on_from_too_few_or_too_many_frames(published: Published) -> None:
    early = PublisherSession.resume(UID, published.frames[:3], DELTAS).head
    with pytest.raises(ConflictError):
        PublisherSession.resume(UID, published.frames, DELTAS, head=early)
    with pytest.raises(UnavailableError):
        PublisherSession.resume(UID, published.frames[:3], DELTAS, head=published.session.head)
    with pytest.raises(UnavailableError):
        PublisherSession.resume(UID, published.frames[1:], DELTAS, head=published.session.head)
    with pytest.raises(UnavailableError):
        PublisherSession.resume(UID, [], DELTAS)


@pytest.mark.parametrize("value", [{"a": [1.0, None]}, "text", b"\x00\xff"])
def test_a_publisher_goes_on_from_a_snapshot(value: Any) -> None:
    session = created(value)
    restored = PublisherSession.restore(session.snapshot(), DELTAS)
    assert restored.head == session.head
    assert restored.snapshot() == session.snapshot()
    done(session, session.freeze())
    with pytest.raises(FrozenError):
        PublisherSession.restore(session.snapshot(), DELTAS).update(value)


@pytest.mark.parametrize("stored", [b"", b"[]", b'[{"uid":"u"},1]'])
def test_a_damaged_snapshot_is_loud(stored: bytes) -> None:
    with pytest.raises(CorruptionError):
        PublisherSession.restore(stored, DELTAS)
    with pytest.raises(CorruptionError):
        PublisherSession.resume(UID, [], DELTAS, head=stored)


def test_serials_end_at_their_limit() -> None:
    session = created(big(0))
    assert session.head is not None
    stored = msgspec.json.decode(session.snapshot())
    stored[0]["serial"] = stored[1][2] = limits.SDSP_SERIAL_MAX
    late = PublisherSession.restore(msgspec.json.encode(stored), DELTAS)
    with pytest.raises(UsageError):
        late.update(big(1))


def test_uids_are_guids_that_sort_by_time() -> None:
    early, late = new_uid(1_700_000_000_000_000, bytes(10)), new_uid(1_700_000_001_000_000, b"\xff" * 10)
    assert early == "018bcfe5-6800-7000-8000-000000000000"
    assert late == "018bcfe5-6be8-7fff-bfff-ffffffffffff"
    assert UUID(early).version == UUID(late).version == 7
    assert UUID(late).variant == "specified in RFC 4122"
    assert early < late
    with pytest.raises(UsageError):
        new_uid(0, b"short")


def test_a_thousand_edits_are_followed_exactly() -> None:
    session = created({"rows": [{"id": n, "v": 0} for n in range(50)]})
    assert session.state is not None
    state: State | None = None
    value: dict[str, Any] = {"rows": [{"id": n, "v": 0} for n in range(50)]}
    state = session.state
    for n in range(1_000):
        value["rows"][n * 7 % 50]["v"] = n
        if n % 13 == 0:
            value["rows"].append(value["rows"].pop(n % 50))
        draft = session.update(value)
        if draft is not None:
            session.commit(draft)
            found = fold(state, decode(draft.raw), DELTAS)
            assert isinstance(found, State)
            state = found
    assert state.value == value
