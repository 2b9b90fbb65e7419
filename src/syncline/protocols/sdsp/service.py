"""SDSP inside a node: makes and takes frames, keeps each in the journal before anybody hears of it, and serves them.

One request to publish is one transaction: the frame, the object's tip, and whatever the caller adds. What frames may
look like is in `wire` and `rules`, when to send deltas in `session`, the routes in `web`.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET, Meta

from syncline.core import limits
from syncline.core.errors import (
    ConflictError,
    DecodeError,
    FrozenError,
    RefusedError,
    UsageError,
)
from syncline.core.ports import Ground, Judge, Receipt, Service, StateChange, WebMount
from syncline.core.record import Arrival, Direction, Incoming, Record
from syncline.core.verdict import Reason
from syncline.networks.fetch import Fetcher, FetchPolicy
from syncline.protocols.sdsp.deltas import Deltas
from syncline.protocols.sdsp.keeper import Keeper
from syncline.protocols.sdsp.plugins import open_storage
from syncline.protocols.sdsp.rebuild import State, same_content
from syncline.protocols.sdsp.requests import Request, request_of, step_of
from syncline.protocols.sdsp.rules import PROTOCOL, judge, judge_context
from syncline.protocols.sdsp.session import Draft, Head, Policy, PublisherSession, new_uid
from syncline.protocols.sdsp.session.publisher import checksum_interval
from syncline.protocols.sdsp.shelf import Shelf
from syncline.protocols.sdsp.tips import Tip, Tips, changes, first_tip
from syncline.protocols.sdsp.wire import Frame, add_history_uri, decode

CLIENT: Final = "api"  # the peer of frames that clients hand over ready-made


class SdspSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Objects that are synchronised by deltas."""

    storage: Annotated[
        str, Meta(description="object store for large objects (s3://bucket/prefix, gs://…, az://…, file:///…)")
    ] = ""
    storage_base: Annotated[
        str, Meta(description="public address of that store's files; absent: presigned URLs, where the store can")
    ] = ""
    delta_ratio: Annotated[
        float, Meta(gt=0, description="a delta of at least this share of the object is sent as the whole object")
    ] = 0.8
    max_ver: Annotated[int, Meta(ge=0, description="deltas in a row before the whole object is sent again")] = 100
    checksum: Annotated[str, Meta(description="checksums on deltas: off, always or every:N")] = "off"
    fetch_networks: Annotated[
        list[str],
        Meta(
            description="private networks that dataUri and historyUri may lead to, e.g. 10.0.0.0/8; public ones always"
        ),
    ] = []
    objects: Annotated[int, Meta(ge=1, description="objects whose newest state is kept in memory")] = (
        limits.SDSP_OBJECTS
    )


class SdspService:
    """Implements `core.ports.Service`."""

    def __init__(self, ground: Ground, shelf: Shelf, deltas: Deltas, policy: Policy) -> None:
        self._ground = ground
        self.shelf = shelf
        self.keeper = Keeper(ground, shelf)
        self._deltas = deltas
        self._policy = policy
        self._sessions: OrderedDict[str, PublisherSession] = OrderedDict()
        self._weights: dict[str, int] = {}  # bytes of the sessions' objects, where they are known
        self._floor = 0  # the newest lsn seen
        self._counts = dict.fromkeys(("published", "repeated", "unchanged", "conflicts"), 0)
        self._secret = hashlib.blake2b(ground.key.seed, digest_size=32, person=b"sdsp-history").digest()

    async def run(self, *, started: Callable[[], None]) -> None:
        started()
        await self.keeper.run()
        await anyio.sleep_forever()

    def peers(self) -> list[Mapping[str, Any]]:
        return []

    def statistics(self) -> Mapping[str, int | float]:
        return {
            **self._counts,
            "followers": self.shelf.followers,
            "objects_live": self.shelf.live,
            "kept": self.keeper.copied,
        }

    def web(self) -> WebMount | None:
        from syncline.protocols.sdsp.web import mount

        return mount(self)

    # Addresses ----------------------------------------------------------------------------------------------------

    def token(self, uid: str) -> str:
        """What opens the history of one object, and nothing else. Follows from the node's key, so it outlives restarts."""
        digest = hashlib.blake2b(uid.encode(), key=self._secret, digest_size=16).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def outgoing(self, uid: str, raw: bytes) -> bytes:
        """A frame as followers get it: with the address of its history, if others can reach this node."""
        if not self._ground.public_url:
            return raw
        # SDSP: does not require authentication, as the URL itself is secure; as short as practical
        base = self._ground.public_url.rstrip("/")
        return add_history_uri(raw, f"{base}/sdsp/{quote(uid)}/history/{self.token(uid)}")

    # Publishing ---------------------------------------------------------------------------------------------------

    async def publish(self, request: Mapping[str, Any], state: Sequence[StateChange] = ()) -> Mapping[str, Any]:
        """Publish what a request asks for; see `Request` for its fields."""
        wanted = request_of(request)
        if wanted.frame is not UNSET:
            raw = wanted.frame.encode() if isinstance(wanted.frame, str) else msgspec.json.encode(wanted.frame)
            return await self._take(raw, wanted, state)
        uid = wanted.uid or new_uid(self._ground.clock.now(), os.urandom(10))
        async with self.shelf.alone(uid):
            return await self._make(uid, wanted, state)

    async def _make(self, uid: str, wanted: Request, state: Sequence[StateChange]) -> Mapping[str, Any]:
        """Let this node's own publisher session make the frame."""
        tip, stored = self.shelf.tips.get(uid)
        self._check_expected(uid, tip, wanted.expect_serial)
        session = await self._session(uid, tip)
        heavy = self._weights.get(uid, limits.SDSP_HEAVY_BYTES) >= limits.SDSP_HEAVY_BYTES
        make = step_of(session, wanted)
        draft = await anyio.to_thread.run_sync(make) if heavy else make()
        if draft is None:
            assert tip is not None
            self._counts["unchanged"] += 1
            return {"uid": uid, "serial": tip.serial, "topic": tip.topic, "published": False}
        if draft.store is not None:
            draft = session.stored(draft, await self._stored(uid, draft))
        topic = wanted.topic or (tip.topic if tip else uid)
        new = self._moved(tip, draft.frame, topic, owner=self._ground.key.peer_id)
        new = msgspec.structs.replace(new, topic=topic, head=Head.from_bytes(draft.head))
        try:
            receipt = await self._append(
                topic, draft.raw, self._ground.key.peer_id, [*changes(uid, tip, new, stored), *state]
            )
            session.commit(draft)
            self._weights[uid] = draft.state.size
        except BaseException:
            self._drop_session(uid)  # it may or may not have been kept
            self.shelf.forget(uid)
            raise
        return await self._published(draft.frame, topic, draft.raw, receipt, draft.state)

    async def _take(self, raw: bytes, wanted: Request, state: Sequence[StateChange]) -> Mapping[str, Any]:
        """Publish a frame that a client has made."""
        try:
            frame = decode(raw)
        except DecodeError:
            await self._append(wanted.topic, raw, CLIENT, [])  # kept, as every arrival is, with its reason
            raise
        async with self.shelf.alone(frame.uid):
            tip, stored = self.shelf.tips.get(frame.uid)
            topic = wanted.topic or (tip.topic if tip else frame.uid)
            older = tip is not None and frame.serial <= tip.serial
            same = await anyio.to_thread.run_sync(self.shelf.tips.same, frame) if older else None
            if same is not None and same_content(same, frame):
                self._counts["repeated"] += 1
                return {"uid": frame.uid, "serial": frame.serial, "topic": topic, "published": False}
            if not judge_context(frame, self.shelf.tips.known(frame, "")).accepted:
                await self._append(topic, raw, CLIENT, [])  # kept as refused, which changes nothing else; raises
            self._check_expected(frame.uid, tip, wanted.expect_serial)
            new = self._moved(tip, frame, topic)
            self._drop_session(frame.uid)
            try:
                receipt = await self._append(topic, raw, CLIENT, [*changes(frame.uid, tip, new, stored), *state])
            except BaseException:
                self.shelf.forget(frame.uid)
                raise
            return await self._published(frame, topic, raw, receipt, None)

    def _moved(self, tip: Tip | None, frame: Frame, topic: str, *, owner: str = "") -> Tip:
        """The object's tip once this frame is there."""
        now = self._ground.clock.now()
        return tip.after(frame, self._floor, now) if tip else first_tip(frame, topic, owner, self._floor, now)

    def _check_expected(self, uid: str, tip: Tip | None, expected: int | None) -> None:
        newest = -1 if tip is None else tip.serial
        if expected is not None and newest != expected:
            self._counts["conflicts"] += 1
            raise ConflictError(f"the newest frame is {newest}, not {expected}", about=uid)

    async def _append(self, topic: str, raw: bytes, peer: str, state: Sequence[StateChange]) -> Receipt:
        """Have one frame judged and kept. Raises what the refusal means to a publisher."""
        if len(raw) > limits.RAW_INLINE_MAX:
            raise UsageError(
                f"a frame of {len(raw)} bytes; {limits.RAW_INLINE_MAX} are kept here",
                hint="put the object into object storage and publish its dataUri",
            )
        message = Incoming(
            protocol=PROTOCOL,
            topic=topic,
            raw=raw,
            peer=peer,
            received_at=self._ground.clock.now(),
            direction=Direction.OUT,
        )
        [receipt] = await self._ground.sink.receive([message], state)
        if receipt.record is not None:
            self._floor = max(self._floor, receipt.record.lsn)
        if not receipt.accepted:
            raise self._refusal(receipt.arrival)
        return receipt

    def _refusal(self, arrival: Arrival) -> Exception:
        reason = arrival.reason or Reason.JUDGE_FAILED
        match reason:
            case Reason.FORK | Reason.PUBLISHER_MISMATCH:
                self._counts["conflicts"] += 1
                return ConflictError(f"another publisher was first: {reason.doc}", about=arrival.key)
            case Reason.FROZEN:
                return FrozenError("the object is frozen: it takes no more updates", about=arrival.key)
            case _:
                return RefusedError(f"our own rules refuse this frame: {reason.doc}", reason=reason, about=arrival.key)

    async def _published(
        self, frame: Frame, topic: str, raw: bytes, receipt: Receipt, state: State | None
    ) -> Mapping[str, Any]:
        """The frame is on disk: now followers may hear of it."""
        await self.shelf.add(frame, raw, state)
        self._counts["published"] += 1
        return {
            "uid": frame.uid,
            "serial": frame.serial,
            "ver": frame.ver,
            "kind": frame.kind,
            "topic": topic,
            "published": True,
            "record": str(receipt.record.name) if receipt.record else None,
        }

    async def _session(self, uid: str, tip: Tip | None) -> PublisherSession:
        session = self._sessions.get(uid)
        head = tip.head.to_bytes() if tip is not None and tip.head is not None else None
        if session is None or tip is None or session.head != head:
            if tip is None:
                session = PublisherSession(uid, self._deltas, self._policy)
            else:
                frames = await self.shelf.chain(uid)
                session = await anyio.to_thread.run_sync(
                    lambda: PublisherSession.resume(uid, frames, self._deltas, self._policy, head=head)
                )
            self._sessions[uid] = session
        self._sessions.move_to_end(uid)
        while len(self._sessions) > 1 and self._crowded():
            self._drop_session(next(iter(self._sessions)))
        return session

    def _crowded(self) -> bool:
        too_many = len(self._sessions) > self._ground.settings.objects
        return too_many or sum(self._weights.values()) > limits.SDSP_LIVE_BYTES

    def _drop_session(self, uid: str) -> None:
        self._sessions.pop(uid, None)
        self._weights.pop(uid, None)

    async def _stored(self, uid: str, draft: Draft) -> str:
        assert draft.store is not None
        if self.shelf.storage is None:
            raise UsageError(
                f"an object of {len(draft.store)} bytes needs object storage", hint="set sdsp.storage", about=uid
            )
        return (await self.shelf.storage.store(draft.store)).uri


class SdspPlugin:
    """Implements `core.ports.ProtocolPlugin`."""

    name = PROTOCOL
    settings: type[msgspec.Struct] = SdspSettings

    def judge(self, ground: Ground) -> Judge:
        tips, own = Tips(ground), ground.key.peer_id

        def judged(incoming: Incoming) -> Arrival:
            publisher = own if incoming.direction is Direction.OUT and incoming.peer == own else ""
            return judge(incoming, lambda frame: tips.known(frame, publisher))

        return judged

    def service(self, ground: Ground) -> Service:
        settings: SdspSettings = ground.settings
        deltas = Deltas.installed()
        policy = Policy(
            delta_ratio=settings.delta_ratio,
            max_ver=settings.max_ver,
            max_payload=limits.RAW_INLINE_MAX,
            checksum_every=checksum_interval(settings.checksum),
        )
        shelf = Shelf(
            ground,
            deltas=deltas,
            fetcher=Fetcher(FetchPolicy(allowed=tuple(settings.fetch_networks))),
            storage=open_storage(settings.storage, base=settings.storage_base) if settings.storage else None,
            objects=settings.objects,
        )
        return SdspService(ground, shelf, deltas, policy)

    def decoded(self, record: Record) -> Mapping[str, Any]:
        try:
            frame: Mapping[str, Any] = msgspec.json.decode(record.raw or b"", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
        return frame


PLUGIN: Final = SdspPlugin()
