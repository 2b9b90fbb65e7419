"""The answering side of a stream: what is asked, whether it may be asked, and what to do about it.

Holds what is open on this stream. Records are judged by the sink, read by scans and sent by the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.core.record import Arrival
from syncline.core.verdict import Outcome, Reason
from syncline.protocols.sds.catalogue import plain_name
from syncline.protocols.sds.session.actions import (
    Action,
    Blame,
    Close,
    Send,
    Serve,
    Store,
    Unsubscribed,
    code_of,
    refusal,
)
from syncline.protocols.sds.session.feed import Feed
from syncline.protocols.sds.session.greeting import checked, greeting, same_schema
from syncline.protocols.sds.session.query import QueryScan
from syncline.protocols.sds.session.quotas import Quotas
from syncline.protocols.sds.session.sync import SyncScan
from syncline.protocols.sds.wire import (
    Ack,
    ErrorCode,
    Hello,
    Message,
    Publish,
    Query,
    Refusal,
    Subscribe,
    Sync,
    Unsubscribe,
    decode,
    encode,
)

STRIKES: Final = 16  # frames that could not be read, after which the stream is ended


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a node offers to peers."""

    network: str
    schemas: frozenset[str]
    query_seconds: float = limits.SDS_QUERY_SECONDS


class Responder:
    """One stream that a peer opened to us."""

    def __init__(
        self,
        peer: str,
        terms: Terms,
        quotas: Quotas,
        *,
        newest: Callable[[], int],
        wall: Callable[[], int],
        archived: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.peer = peer
        self.hello: Hello | None = None
        self._terms = terms
        self._quotas = quotas
        self._newest = newest
        self._wall = wall
        self._archived = archived
        self._subscriptions: set[str] = set()
        self._open = 0
        self._strikes = 0

    def start(self) -> list[Action]:
        return [Send(encode(greeting(self._terms.schemas)))]

    def close(self) -> None:
        """The stream has ended, and with it all its subscriptions."""
        if self._subscriptions:
            self._quotas.unsubscribe(self.peer, len(self._subscriptions))
            self._subscriptions.clear()

    def receive(self, frame: bytes, now: float) -> list[Action]:
        """A frame came."""
        try:
            message = decode(frame)
        except DecodeError as error:
            return self.broken(error)
        if self.hello is None:
            return self._greeted(message)
        try:
            return self._asked(message, frame, now)
        except DecodeError as error:
            return [refusal(code_of(error.reason), str(error), _request_id(message))]

    def broken(self, error: DecodeError) -> list[Action]:
        """A frame came that cannot be read, or that the network would not even let through."""
        self._strikes += 1
        actions: list[Action] = [refusal(ErrorCode.INVALID_MESSAGE, str(error)), Blame(str(error))]
        if self.hello is None or self._strikes >= STRIKES or error.reason is Reason.OVERSIZE:
            actions.append(Close("frames that cannot be read"))
        return actions

    def stored(self, message: Publish, arrival: Arrival) -> list[Action]:
        """What became of a publish: acknowledged once it is on disk (a repeat is, too), refused with its code."""
        if arrival.verdict is Outcome.ACCEPT or arrival.reason is Reason.DUPLICATE:
            return [Send(encode(Ack(request_id=message.message_id, stored=(arrival.id.hex(),))))]
        reason = arrival.reason or Reason.MALFORMED
        actions: list[Action] = [
            refusal(
                code_of(reason), reason.doc, message.message_id, 1 if code_of(reason) is ErrorCode.RATE_LIMITED else 0
            )
        ]
        if arrival.verdict is Outcome.REJECT and reason.about == "content":
            actions.append(Blame(reason.value))
        return actions

    def served(self) -> None:
        """A query or sync has been answered."""
        self._open -= 1

    def _greeted(self, message: Message) -> list[Action]:
        # SDS: hello first, the same major version; else error 1 and the end.
        try:
            if not isinstance(message, Hello):
                raise DecodeError("hello comes first", reason=Reason.INVALID_FIELD)
            self.hello = checked(message)
        except DecodeError as error:
            return [refusal(ErrorCode.INVALID_MESSAGE, str(error), _request_id(message)), Close(str(error))]
        return []

    def _asked(self, message: Message, frame: bytes, now: float) -> list[Action]:
        match message:
            case Publish():
                return self._publish(message, frame, now)
            case Query():
                return self._query(message, now)
            case Sync():
                return self._sync(message, now)
            case Subscribe():
                return self._subscribe(message)
            case Unsubscribe():
                return self._unsubscribe(message)
            case Refusal():
                return []  # an error is never answered with an error
            case Hello():
                return [refusal(ErrorCode.INVALID_MESSAGE, "hello comes once"), Close("a second hello")]
            case _:
                return [
                    refusal(ErrorCode.INVALID_MESSAGE, "an answer to nothing", _request_id(message)),
                    Blame("an answer to nothing"),
                ]

    def _publish(self, message: Publish, frame: bytes, now: float) -> list[Action]:
        wait = self._quotas.publish(self.peer, now)
        if wait:
            return [refusal(ErrorCode.RATE_LIMITED, "too many publishes", message.message_id, wait)]
        self._check_schemas([message.schema])
        return [Store(message, frame)]

    def _query(self, query: Query, now: float) -> list[Action]:
        if refused := self._overasked(query.query_id, now):
            return [refused]
        self._check_id(query.query_id, "query_id")
        self._check_schemas([query.schema])
        deadline = now + self._terms.query_seconds
        scan = QueryScan(query, network=self._terms.network, deadline=deadline, archived=self._archived())
        self._open += 1
        return [Serve(scan)]

    def _sync(self, sync: Sync, now: float) -> list[Action]:
        if refused := self._overasked(sync.sync_id, now):
            return [refused]
        self._check_id(sync.sync_id, "sync_id")
        self._check_schemas(sync.schemas)
        scan = SyncScan(sync, network=self._terms.network, schemas=self._terms.schemas)
        self._open += 1
        return [Serve(scan)]

    def _overasked(self, request_id: str, now: float) -> Send | None:
        wait = self._quotas.query(self.peer, now)
        if wait:
            return refusal(ErrorCode.RATE_LIMITED, "too many queries", request_id, wait)
        if self._open >= limits.SDS_OPEN_REQUESTS:
            return refusal(ErrorCode.RATE_LIMITED, f"{self._open} requests are still being answered", request_id, 1)
        return None

    def _subscribe(self, subscribe: Subscribe) -> list[Action]:
        name = subscribe.subscription_id
        self._check_id(name, "subscription_id")
        if name in self._subscriptions:
            raise DecodeError("this subscription is active", reason=Reason.INVALID_FIELD, about="subscription_id")
        self._check_schemas(subscribe.schemas)
        feed = Feed(subscribe, network=self._terms.network, start=self._newest(), wall=self._wall)
        if not self._quotas.subscribe(self.peer):
            # Waiting does not help here, ending another subscription does: retry_after is 0.
            return [refusal(ErrorCode.RATE_LIMITED, "too many subscriptions", name)]
        self._subscriptions.add(name)
        return [Send(encode(Ack(request_id=name))), Serve(feed)]

    def _unsubscribe(self, message: Unsubscribe) -> list[Action]:
        name = message.subscription_id
        if name not in self._subscriptions:
            raise DecodeError("there is no such subscription", reason=Reason.INVALID_FIELD, about="subscription_id")
        self._subscriptions.remove(name)
        self._quotas.unsubscribe(self.peer)
        return [Unsubscribed(name), Send(encode(Ack(request_id=name)))]

    def _check_schemas(self, names: Collection[str]) -> None:
        if len(names) > limits.SDS_LIST_MAX:
            raise DecodeError("more schemas than there are", reason=Reason.TOO_COMPLEX, about="schemas")
        for name in names:
            if plain_name(name) not in self._terms.schemas:
                raise DecodeError("unknown schema", reason=Reason.UNKNOWN_SCHEMA, about=name[:80])
            assert self.hello is not None
            if not same_schema(name, self.hello):
                raise DecodeError(
                    "another version of this schema is spoken here", reason=Reason.UNKNOWN_SCHEMA, about=name[:80]
                )

    def _check_id(self, text: str, about: str) -> None:
        if not 0 < len(text) <= limits.SDS_TEXT_MAX:
            raise DecodeError(
                f"an id has 1 to {limits.SDS_TEXT_MAX} characters", reason=Reason.INVALID_FIELD, about=about
            )


def _request_id(message: Message) -> str:
    """The id by which the sender knows a message; empty if it has none."""
    for name in ("query_id", "sync_id", "subscription_id", "message_id", "request_id"):
        if found := getattr(message, name, ""):
            return str(found)[: limits.SDS_TEXT_MAX]
    return ""
