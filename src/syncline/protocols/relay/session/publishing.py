"""Taking messages in: from clients, from other servers, from the node itself. Cached once, announced after the commit.

Quotas and repeats are decided here, on what is cached and on its way; whether the bytes are good is judged by the rules,
and the journal has the last word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from syncline.core import limits
from syncline.core.clock import Clock
from syncline.core.errors import UnavailableError
from syncline.core.ports import Receipt, StateChange
from syncline.core.record import Direction, Incoming
from syncline.core.verdict import Outcome, Reason, Verdict, ignore, reject
from syncline.protocols.relay.rules.messages import PROTOCOL, Taken, is_topic, judge_message
from syncline.protocols.relay.session.batches import CommitQueue, Step
from syncline.protocols.relay.session.cache import Cache, Entry
from syncline.protocols.relay.session.quotas import Quotas
from syncline.protocols.relay.wire.messages import TAG_MAX, U64_MAX, NetworkMessage, encode
from syncline.protocols.relay.wire.rpc import Problem, PublishParams

REPEATED: Final = ignore(Reason.DUPLICATE)
LOOPED: Final = ignore(Reason.LOOP)
_IN: Final = Direction.IN  # looking up members of enums takes as long as making a draft
_OUT: Final = Direction.OUT
_ACCEPT: Final = Outcome.ACCEPT
_NO_STATE: Final[Sequence[StateChange]] = ()


class Reply(Protocol):
    """Whoever asked. Called once, after the commit or its failure."""

    def ok(self, value: Any) -> None: ...

    def failed(self, error: Exception) -> None: ...


class Draft(msgspec.Struct, eq=False, gc=False):
    """A message on its way into the cache."""

    topic: str
    source: str
    received_at: int
    direction: Direction = _IN
    message: NetworkMessage | None = None
    raw: bytes | None = None
    digest: bytes = b""
    problem: Problem | None = None  # why it is refused, as a client hears it
    detail: str = ""
    context: Verdict | None = None  # the same, as the record says it
    entry: Entry | None = None  # its place in the cache, if it is new
    known: Entry | None = None  # the place of the message it repeats

    def refuse(self, problem: Problem, detail: str = "", context: Verdict | None = None) -> Draft:
        self.problem, self.detail, self.context = problem, detail, context
        return self

    def incoming(self) -> Incoming:
        assert self.raw is not None
        if self.message is not None and self.digest:
            return Taken(
                protocol=PROTOCOL,
                topic=self.topic,
                raw=self.raw,
                peer=self.source,
                received_at=self.received_at,
                direction=self.direction,
                context=self.context,
                message=self.message,
                digest=self.digest,
            )
        return Incoming(
            protocol=PROTOCOL,
            topic=self.topic[: limits.TEXT_MAX],
            raw=self.raw,
            peer=self.source,
            received_at=self.received_at,
            direction=self.direction,
            context=self.context,
        )


Announce = Callable[[Entry, NetworkMessage, bytes], None]
Remember = Callable[[Entry, NetworkMessage], Sequence[StateChange]]


class Publishing:
    """The way into the cache. `announce` is told of every message that has become live."""

    def __init__(
        self, cache: Cache, queue: CommitQueue, quotas: Quotas, clock: Clock, announce: Announce, remember: Remember
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._quotas = quotas
        self._now = clock.now
        self._announce = announce
        self._remember = remember  # further state to keep with a message
        self.cached = 0
        self.repeated = 0

    def draft(self, params: PublishParams, source: str, *, is_client: bool) -> Draft:
        """A message stamped with our time, checked but not admitted."""
        now, quotas, topic, ttl = self._now(), self._quotas, params.topic, params.ttl
        draft = Draft(topic, source, now, _IN if is_client else _OUT)
        body = params.message.encode()
        if not 0 <= params.tag <= TAG_MAX:
            return draft.refuse(Problem.INVALID_PARAMS, f"a tag lies between 0 and {TAG_MAX}")
        if 0 <= ttl <= U64_MAX:
            # Relay network: the timestamp is when the publishing server observed the message, and so is expires_at
            draft.message = message = NetworkMessage(
                tag=params.tag, prompt=params.prompt, timestamp=now // 1_000, ttl=ttl, message=body
            )
            draft.raw = encode(message)
        if not is_topic(topic):
            return draft.refuse(Problem.INVALID_TOPIC)
        if len(body) > quotas.message_bytes:
            detail = f"a message may have {quotas.message_bytes} bytes, this one has {len(body)}"
            return draft.refuse(Problem.PAYLOAD_SIZE, detail, reject(Reason.QUOTA_EXCEEDED, detail))
        if ttl < 1:
            return draft.refuse(Problem.TTL_TOO_SHORT)
        if ttl > quotas.ttl_max:
            detail = f"a message may be cached for {quotas.ttl_max} s"
            return draft.refuse(Problem.TTL_TOO_LONG, detail, reject(Reason.QUOTA_EXCEEDED, detail))
        return draft

    def parcel(self, topic: str, raw: bytes, server: str) -> Draft:
        """A message another server handed over, admitted if it is good, new and has room.

        It is kept even if nobody wants it any more: the sender counts on us to have it from now on.
        """
        now = self._now()
        draft = Draft(topic, server, now)
        draft.raw = raw
        draft.message, verdict = judge_message(topic, raw, now)
        if draft.message is None or not verdict.accepted:
            return draft  # the judge says why
        if len(draft.message.message) > self._quotas.message_bytes:
            detail = f"{len(draft.message.message)} bytes; {self._quotas.message_bytes} are allowed here"
            return draft.refuse(Problem.PAYLOAD_SIZE, detail, reject(Reason.QUOTA_EXCEEDED, detail))
        self.admit(draft, is_client=False)
        if draft.known is not None and draft.known.forwarded:
            draft.context = LOOPED
        return draft

    def admit(self, draft: Draft, *, is_client: bool = True) -> None:
        """Find the message's place in the cache, or the problem that there is none."""
        message, raw, cache = draft.message, draft.raw, self._cache
        assert message is not None
        assert raw is not None
        draft.digest = digest = hashlib.sha256(message.message).digest()
        mailbox = cache.mailbox(draft.topic)
        if mailbox is not None:
            known = mailbox.find(digest)
            if known is not None and known.expires_at > draft.received_at:
                draft.known, draft.context = known, REPEATED  # Relay network: only newly cached ones go on
                return
        full = cache.full(mailbox, len(raw), draft.source, is_client=is_client)
        if full:
            draft.refuse(Problem.MAILBOX_LIMIT, full, reject(Reason.QUOTA_EXCEEDED, full))
            return
        draft.entry = cache.admit(mailbox, draft.topic, digest, len(raw), message.expires_at, draft.source)

    def withdraw(self, drafts: Sequence[Draft]) -> None:
        """Take back what was admitted and will not be committed after all."""
        for draft in drafts:
            if draft.entry is not None:
                draft.entry.failed = True
                self._cache.discard(draft.entry)
                draft.entry = None

    def refuse(self, draft: Draft) -> None:
        """Let the journal know of a message that is refused, if it is one."""
        if draft.raw is not None:
            self._queue.put([draft.incoming()])

    def commit(self, drafts: Sequence[Draft], reply: Reply, state: Sequence[StateChange] = ()) -> None:
        """Hand admitted drafts to the journal; `reply` hears when they are on disk."""
        self.hand_over(drafts, _Publication(self, drafts, reply), state)

    def commit_one(self, draft: Draft, reply: Reply) -> None:
        """The same for a single draft, which most publications are."""
        entry, message, state = draft.entry, draft.message, _NO_STATE
        if entry is not None and message is not None and message.prompt:
            state = self._remember(entry, message)
        step = _SinglePublication(self, draft, reply)
        self._queue.put((draft.incoming(),), state, step, (entry,) if entry is not None else ())

    def hand_over(self, drafts: Sequence[Draft], step: Step, state: Sequence[StateChange] = ()) -> None:
        """Queue drafts with the state that belongs to them."""
        entries = []
        for draft in drafts:
            if draft.entry is not None and draft.message is not None:
                entries.append(draft.entry)
                if draft.message.prompt:
                    state = [*state, *self._remember(draft.entry, draft.message)]
        self._queue.put([draft.incoming() for draft in drafts], state, step, entries)

    def settle(self, draft: Draft, receipt: Receipt) -> bool:
        """The message is judged and on disk: make it live. Whether it is cached now."""
        entry, message, raw = draft.entry, draft.message, draft.raw
        if entry is None or message is None or raw is None:
            self.repeated += draft.known is not None
            return draft.known is not None and not draft.known.failed
        if receipt.arrival.verdict is _ACCEPT:
            entry.live = True
            self.cached += 1
            self._announce(entry, message, raw)
            return True
        self.withdraw([draft])
        return receipt.arrival.reason is Reason.DUPLICATE


class _SinglePublication(msgspec.Struct, eq=False, gc=False):
    """What happens after the commit of one message, which most publications are."""

    publishing: Any
    draft: Draft
    reply: Any

    def done(self, receipts: Sequence[Receipt]) -> None:
        if self.publishing.settle(self.draft, receipts[0]):
            self.reply.ok(True)
        else:
            self.reply.failed(UnavailableError("the message could not be kept"))

    def failed(self, error: Exception) -> None:
        self.publishing.withdraw([self.draft])
        self.reply.failed(error)


class _Publication(msgspec.Struct, eq=False, gc=False):
    """What happens after the commit: the messages become live, and the publisher is told so."""

    publishing: Any
    drafts: Sequence[Draft]
    reply: Any

    def done(self, receipts: Sequence[Receipt]) -> None:
        kept = True
        for draft, receipt in zip(self.drafts, receipts, strict=True):
            kept = self.publishing.settle(draft, receipt) and kept
        if kept:
            self.reply.ok(True)
        else:
            self.reply.failed(UnavailableError("the message could not be kept"))

    def failed(self, error: Exception) -> None:
        self.publishing.withdraw(self.drafts)
        self.reply.failed(error)
