"""The publisher's half: turns changes of an object into frames, full ones or deltas, and counts serials.

Each step is made as a `Draft` first. The driver stores what must be stored, writes `draft.head` where it expects
`draft.expect` (so that a second publisher gets a conflict instead of a fork), sends `draft.raw`, and commits the draft;
a draft that is not committed never happened. Where head and frames are kept is the driver's choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET

from syncline.core import limits
from syncline.core.errors import ConflictError, CorruptionError, DeltaError, FrozenError, UnavailableError, UsageError
from syncline.protocols.sdsp.checksums import checksum_of
from syncline.protocols.sdsp.deltas.base import Budget, Delta
from syncline.protocols.sdsp.deltas.registry import Deltas
from syncline.protocols.sdsp.rebuild import Problem, State, Status, object_at
from syncline.protocols.sdsp.wire import (
    Checksum,
    Frame,
    ObjectKind,
    check,
    delta_frame,
    encode,
    freeze_frame,
    full_frame,
    object_from_bytes,
    object_to_bytes,
)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """When a publisher sends the whole object, and what goes with it."""

    delta_ratio: float = 0.8  # a delta of at least this share of the object is not worth it
    cumulative_ratio: float = 1.0  # nor are deltas since the last full frame of this share together
    max_ver: int = 100  # nor more deltas than this in a row
    max_payload: int = limits.SDSP_FRAME_MAX  # the transport's; a larger full frame goes by dataUri
    algorithm: str = ""  # empty: jp for JSON, md for texts, X-vcdiff for binaries
    checksum_every: int = 0  # 0: never, 1: with every delta, N: with every Nth
    checksum_hash: str = "SHA-256"


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What a publisher must not forget, small enough to be written with every frame."""

    uid: str
    serial: int
    ver: int
    frozen: bool
    kind: ObjectKind
    delta_bytes: int  # of all deltas since the last full frame

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, stored: bytes) -> Head:
        try:
            return msgspec.json.decode(stored, type=cls)
        except msgspec.DecodeError as error:
            raise CorruptionError(f"a stored SDSP publisher head cannot be read: {error}") from None


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a publisher, not done yet.

    If `store` is set, the frame is too large for the transport: store these bytes, then go on with
    `PublisherSession.stored(draft, uri)`. `head` is to be written where `expect` is now (None: nothing yet).
    """

    frame: Frame
    raw: bytes
    head: bytes
    expect: bytes | None
    state: State
    store: bytes | None = None


class PublisherSession:
    """Publishes one object. One publisher at a time may do so: the conflict of two shows in `Draft.expect`.

    Values given are copied: changing them afterwards changes nothing here. Not for several threads at once.
    """

    def __init__(self, uid: str, deltas: Deltas, policy: Policy | None = None) -> None:
        check(full_frame(uid, 0, None))
        self.uid = uid
        self._deltas = deltas
        self._policy = policy or Policy()
        self._state: State | None = None
        self._head: Head | None = None

    @classmethod
    def resume(
        cls,
        uid: str,
        frames: Iterable[Frame],
        deltas: Deltas,
        policy: Policy | None = None,
        *,
        head: bytes | None = None,
    ) -> PublisherSession:
        """Go on after a restart, from the published frames (back to the newest full one, resolved) and the last head.

        Without `head` the newest frame counts. Raises ConflictError if frames are newer than the head (somebody else
        published), UnavailableError if the frames do not reach it.
        """
        session = cls(uid, deltas, policy)
        by_serial = {frame.serial: frame for frame in frames if frame.uid == uid}
        newest = max(by_serial, default=-1)
        known = Head.from_bytes(head) if head is not None else None
        serial = known.serial if known is not None else newest
        if newest > serial:
            raise ConflictError("another publisher has published this object since", about=f"{uid} {newest}")
        state = object_at(serial, by_serial.values(), deltas)
        if isinstance(state, Problem):
            raise UnavailableError(
                f"the published object cannot be rebuilt: {state.cause} at serial {state.serial}",
                hint="give the frames from its newest full one on",
                about=uid,
            )
        session._state = state
        since = (by_serial[n].delta for n in range(serial - state.ver, serial + 1))
        spent = known.delta_bytes if known is not None else sum(_delta_size(d) for d in since if d is not UNSET)
        session._head = known or _head_of(state, spent)
        return session

    @classmethod
    def restore(cls, snapshot: bytes, deltas: Deltas, policy: Policy | None = None) -> PublisherSession:
        """Go on after a restart, from what `snapshot` gave."""
        try:
            head, stored = msgspec.json.decode(snapshot, type=tuple[Head, msgspec.Raw])
        except msgspec.DecodeError as error:
            raise CorruptionError(f"a stored SDSP publisher cannot be read: {error}") from None
        session = cls(head.uid, deltas, policy)
        session._head, session._state = head, State.from_bytes(bytes(stored))
        return session

    def snapshot(self) -> bytes:
        """Head and object: all that is needed to go on without any history."""
        state, head = self._alive(frozen_too=True)
        return msgspec.json.encode((head, msgspec.Raw(state.to_bytes())))

    @property
    def state(self) -> State | None:
        """The object as last committed."""
        return self._state

    @property
    def head(self) -> bytes | None:
        """The head as last committed: what `Draft.expect` will be."""
        return None if self._head is None else self._head.to_bytes()

    def create(self, value: Any, kind: ObjectKind | None = None, *, meta: Any = UNSET) -> Draft:
        """The first frame. Without `kind`: bytes are binary, str is text, anything else JSON."""
        if self._state is not None:
            raise UsageError("the object has been created already", hint="use update or replace", about=self.uid)
        return self._full(0, *_owned(value, kind or _kind_of(value)), meta)  # SDSP: the first frame has serial 0

    def update(self, new: Any, *, meta: Any = UNSET) -> Draft | None:
        """The object is now `new`: a delta if that is worth it, else a full frame; None if nothing changed."""
        state, _ = self._alive()
        owned, kind, encoded = _owned(new, state.kind)
        if encoded == object_to_bytes(state.value, kind):
            return None
        algorithm = self._algorithm(kind)
        delta = algorithm.make(state.value, owned)
        if delta in _EMPTY:  # only the order of members differs
            return None
        if delta is not None and self._worth(delta, encoded) and self._leads_to(algorithm, delta, owned, encoded):
            return self._delta(delta, algorithm.code, owned, encoded, meta)
        return self._full(state.serial + 1, owned, kind, encoded, meta)

    def apply_delta(self, delta: Any, algorithm: str, *, meta: Any = UNSET) -> Draft:
        """Publish a delta that the caller has made. Raises UsageError if it does not fit the object."""
        state, _ = self._alive()
        known = self._deltas.get(algorithm)
        if known is None or state.kind not in known.kinds:
            raise UsageError(f"no algorithm {algorithm!r} for {state.kind} objects", about=self.uid)
        owned_delta = delta if isinstance(delta, bytes) else _owned(delta, ObjectKind.JSON)[0]
        try:
            new = known.apply(state.value, owned_delta, Budget())
        except DeltaError as error:
            raise UsageError(f"the delta does not fit the object: {error}", about=self.uid) from None
        encoded = object_to_bytes(new, state.kind)
        if state.ver >= self._policy.max_ver:
            return self._full(state.serial + 1, new, state.kind, encoded, meta)
        return self._delta(owned_delta, algorithm, new, encoded, meta)

    def replace(self, new: Any, kind: ObjectKind | None = None, *, meta: Any = UNSET) -> Draft:
        """A full frame with `new`, whatever was there before; it may be of another kind."""
        state, _ = self._alive()
        return self._full(state.serial + 1, *_owned(new, kind or _kind_of(new)), meta)

    def freeze(self, *, meta: Any = UNSET) -> Draft:
        """The last frame: the object will not change any more."""
        state, head = self._alive()
        frame = freeze_frame(self.uid, state.serial + 1, state.ver + 1, meta=_meta(meta))
        frozen = State(self.uid, frame.serial, frame.ver, state.kind, state.value, Status.FROZEN, state.size)
        return self._draft(frame, frozen, head.delta_bytes)

    def stored(self, draft: Draft, uri: str) -> Draft:
        """The draft, now that `draft.store` can be loaded from `uri`."""
        frame = full_frame(self.uid, draft.frame.serial, None, draft.state.kind, uri=uri, meta=draft.frame.meta)
        check(frame)
        return msgspec.structs.replace(draft, frame=frame, raw=encode(frame), store=None)

    def commit(self, draft: Draft) -> None:
        """The draft has been written and sent. Raises ConflictError if another one was committed since it was made."""
        if draft.store is not None:
            raise UsageError("store the object first, then commit what `stored` returns", about=self.uid)
        if draft.expect != self.head:
            raise ConflictError("another draft was committed since this one was made", about=self.uid)
        self._state = draft.state
        self._head = Head.from_bytes(draft.head)

    def _alive(self, *, frozen_too: bool = False) -> tuple[State, Head]:
        if self._state is None or self._head is None:
            raise UsageError("the object has not been created yet", hint="call create first", about=self.uid)
        if self._head.frozen and not frozen_too:
            raise FrozenError("the object is frozen: it takes no more updates", about=self.uid)
        return self._state, self._head

    def _algorithm(self, kind: ObjectKind) -> Delta:
        chosen = self._deltas.get(self._policy.algorithm)
        return chosen if chosen is not None and kind in chosen.kinds else self._deltas.default(kind)

    def _worth(self, delta: Any, encoded: bytes) -> bool:
        """Whether to send the delta. SDSP: better the entire object when the delta, or all deltas, are larger."""
        state, head = self._alive()
        size = _delta_size(delta)
        return (
            size < self._policy.delta_ratio * len(encoded)
            and head.delta_bytes + size < self._policy.cumulative_ratio * len(encoded)
            and state.ver < self._policy.max_ver
        )

    def _leads_to(self, algorithm: Delta, delta: Any, new: Any, encoded: bytes) -> bool:
        """Whether applying the delta really gives the new object: libraries that make deltas have been wrong before."""
        state, _ = self._alive()
        try:
            made = algorithm.apply(state.value, delta, Budget())
        except DeltaError:
            return False
        if object_to_bytes(made, state.kind) == encoded:
            return True
        return state.kind is ObjectKind.JSON and _SORTED.encode(made) == _SORTED.encode(new)

    def _delta(self, delta: Any, code: str, new: Any, encoded: bytes, meta: Any) -> Draft:
        state, head = self._alive()
        serial, ver = state.serial + 1, state.ver + 1
        checksum = self._checksum(serial, new, state.kind)
        frame = delta_frame(self.uid, serial, ver, code, delta, checksum=checksum, meta=_meta(meta))
        changed = State(self.uid, serial, ver, state.kind, new, Status.SYNCED, len(encoded))
        draft = self._draft(frame, changed, head.delta_bytes + _delta_size(delta))
        if len(draft.raw) <= self._policy.max_payload:
            return draft
        return self._full(serial, new, state.kind, encoded, meta)

    def _full(self, serial: int, new: Any, kind: ObjectKind, encoded: bytes, meta: Any) -> Draft:
        if len(encoded) > limits.SDSP_OBJECT_MAX:
            raise UsageError(f"an object of {len(encoded)} bytes; {limits.SDSP_OBJECT_MAX} are allowed", about=self.uid)
        frame = full_frame(self.uid, serial, new, kind, meta=_meta(meta))
        draft = self._draft(frame, State(self.uid, serial, 0, kind, new, Status.SYNCED, len(encoded)), 0)
        if len(draft.raw) <= self._policy.max_payload:
            return draft
        return msgspec.structs.replace(draft, raw=b"", store=encoded)  # SDSP: very large objects go by location

    def _draft(self, frame: Frame, state: State, delta_bytes: int) -> Draft:
        if frame.serial > limits.SDSP_SERIAL_MAX:
            raise UsageError("the object has used up its serials", about=self.uid)
        head = _head_of(state, delta_bytes).to_bytes()
        return Draft(frame=frame, raw=encode(frame), head=head, expect=self.head, state=state)

    def _checksum(self, serial: int, value: Any, kind: ObjectKind) -> Checksum | None:
        every = self._policy.checksum_every
        if every == 0 or serial % every:
            return None
        canon = "raw" if kind is ObjectKind.BINARY else "utf-8"
        return checksum_of(value, kind, f"{canon}/{self._policy.checksum_hash}")


def new_uid(now: int, entropy: bytes) -> str:
    """A UUIDv7: `now` in microseconds since 1970, `entropy` 10 random bytes.

    # SDSP: a GUID is recommended; never a hash of the object, which two publishers may share.
    """
    if len(entropy) != 10:
        raise UsageError("a UUIDv7 needs 10 random bytes")
    millis = (now // 1_000) & (2**48 - 1)
    spare = int.from_bytes(entropy) & (2**74 - 1)
    high, low = spare >> 62, spare & (2**62 - 1)
    return str(UUID(int=millis << 80 | 7 << 76 | high << 64 | 0b10 << 62 | low))


def checksum_interval(text: str) -> int:
    """`off`, `always` or `every:N` as `Policy.checksum_every`."""
    named = {"off": 0, "always": 1}.get(text)
    if named is not None:
        return named
    prefix, _, number = text.partition(":")
    if prefix != "every" or not number.isdecimal() or int(number) < 1:
        raise UsageError(f"{text!r} is not off, always or every:N")
    return int(number)


_SORTED: Final = msgspec.json.Encoder(order="sorted")
_NULL: Final = b"null"
_EMPTY: Final[tuple[Any, ...]] = ([], {}, "", b"")  # deltas that say that nothing changed


def _kind_of(value: Any) -> ObjectKind:
    if isinstance(value, bytes):
        return ObjectKind.BINARY
    return ObjectKind.TEXT if isinstance(value, str) else ObjectKind.JSON


def _owned(value: Any, kind: ObjectKind) -> tuple[Any, ObjectKind, bytes]:
    """A private copy of a user's value, its kind, and its bytes as they are stored and counted."""
    expected = {ObjectKind.TEXT: str, ObjectKind.BINARY: bytes}.get(kind)
    if expected is not None and not isinstance(value, expected):
        raise UsageError(f"a {kind} object is {expected.__name__}, not {type(value).__name__}", hint="use replace")
    try:
        encoded = object_to_bytes(value, kind)
        owned = object_from_bytes(encoded, kind)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the object is not JSON: {error}") from None
    except Exception as error:
        raise UsageError(f"the object cannot be published: {error}") from None
    if kind is ObjectKind.JSON and _NULL in encoded and _has_nan(value):
        raise UsageError("JSON has no infinity and no not-a-number")
    return owned, kind, encoded


def _meta(meta: Any) -> Any:
    return meta if meta is UNSET else _owned(meta, ObjectKind.JSON)[0]


def _has_nan(value: Any) -> bool:
    """Whether a number is in there that JSON cannot write; msgspec would write null."""
    level = [value]
    while level:
        inner: list[Any] = []
        for item in level:
            if isinstance(item, float) and not math.isfinite(item):
                return True
            if isinstance(item, Mapping):
                inner.extend(item.values())
            elif isinstance(item, (list, tuple, set, frozenset)):
                inner.extend(item)
        level = inner
    return False


def _delta_size(delta: Any) -> int:
    return (len(delta) + 2) // 3 * 4 if isinstance(delta, bytes) else len(msgspec.json.encode(delta))


def _head_of(state: State, delta_bytes: int) -> Head:
    return Head(
        uid=state.uid,
        serial=state.serial,
        ver=state.ver,
        frozen=state.frozen,
        kind=state.kind,
        delta_bytes=delta_bytes,
    )
