"""The asking side of a stream: what we asked, and which answer belongs to it.

Answers are believed to be what they say; whether the records in them are good is judged by the sink like any others.
"""

from __future__ import annotations

from collections.abc import Iterable

from syncline.core import limits
from syncline.core.errors import DecodeError, OverloadedError, UsageError
from syncline.core.verdict import Reason
from syncline.protocols.sds.session.actions import (
    Action,
    Blame,
    Close,
    Pushed,
    Refused,
    Replied,
    Send,
    refusal,
)
from syncline.protocols.sds.session.greeting import checked, greeting
from syncline.protocols.sds.wire import (
    Ack,
    ErrorCode,
    Hello,
    Message,
    Publish,
    Query,
    QueryResponse,
    Refusal,
    Subscribe,
    Sync,
    SyncResponse,
    Unsubscribe,
    decode,
    encode,
)


class Requester:
    """One stream that we opened to a peer."""

    def __init__(self, peer: str, schemas: Iterable[str]) -> None:
        self.peer = peer
        self.hello: Hello | None = None
        self._schemas = tuple(schemas)
        self._waiting: dict[str, type[Message]] = {}  # request → what answers it
        self._subscriptions: set[str] = set()
        self._has_subscribed = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def start(self) -> list[Action]:
        return [Send(encode(greeting(self._schemas)))]

    def publish(self, message: Publish) -> list[Action]:
        return self._ask(message.message_id, message, Ack)

    def query(self, query: Query) -> list[Action]:
        return self._ask(query.query_id, query, QueryResponse)

    def sync(self, sync: Sync) -> list[Action]:
        return self._ask(sync.sync_id, sync, SyncResponse)

    def subscribe(self, subscribe: Subscribe) -> list[Action]:
        actions = self._ask(subscribe.subscription_id, subscribe, Ack)
        self._subscriptions.add(subscribe.subscription_id)
        self._has_subscribed = True
        return actions

    def unsubscribe(self, subscription_id: str) -> list[Action]:
        if subscription_id not in self._subscriptions:
            raise UsageError("there is no such subscription", about=subscription_id)
        self._subscriptions.discard(subscription_id)
        return self._ask(subscription_id, Unsubscribe(subscription_id=subscription_id), Ack)

    def forget(self, request_id: str) -> None:
        """Nobody waits for this answer any more; when it comes it is not a surprise but nothing either."""
        self._waiting.pop(request_id, None)

    def _ask(self, request_id: str, message: Message, answer: type[Message]) -> list[Action]:
        if not request_id or request_id in self._waiting:
            raise UsageError("a request needs an id of its own", about=request_id)
        if len(self._waiting) >= limits.SDS_WAITING_REQUESTS:
            raise OverloadedError("too many requests wait for an answer", about=self.peer)
        self._waiting[request_id] = answer
        return [Send(encode(message))]

    def receive(self, frame: bytes, now: float) -> list[Action]:
        """A frame came."""
        try:
            message = decode(frame)
            if self.hello is None:
                return self._greeted(message)
        except DecodeError as error:
            return self.broken(error)
        return self._answered(message, frame)

    def broken(self, error: DecodeError) -> list[Action]:
        """The peer's frames cannot be followed, so nothing it says can be told apart: the end."""
        return [refusal(ErrorCode.INVALID_MESSAGE, str(error)), Blame(str(error)), Close(str(error))]

    def _greeted(self, message: Message) -> list[Action]:
        if isinstance(message, Refusal):
            return [Refused(message.request_id, message), Close(message.message)]
        if not isinstance(message, Hello):
            raise DecodeError("hello comes first", reason=Reason.INVALID_FIELD)
        self.hello = checked(message)
        return []

    def _answered(self, message: Message, frame: bytes) -> list[Action]:
        match message:
            case Publish():
                if self._subscriptions:
                    return [Pushed(message, frame)]
                return [] if self._has_subscribed else [Blame("a push nobody asked for")]  # the last may be late
            case Refusal():
                self._waiting.pop(message.request_id, None)
                self._subscriptions.discard(message.request_id)
                return [Refused(message.request_id, message)]
            case QueryResponse(query_id=request_id):
                return self._reply(request_id, message, last=True)
            case SyncResponse(sync_id=request_id, has_more=has_more):
                return self._reply(request_id, message, last=not has_more)
            case Ack(request_id=request_id):
                return self._reply(request_id, message, last=True)
            case Hello():
                return self.broken(DecodeError("hello comes once", reason=Reason.INVALID_FIELD))
            case _:
                return self.broken(DecodeError("a request on a stream of ours", reason=Reason.INVALID_FIELD))

    def _reply(self, request_id: str, message: Message, *, last: bool) -> list[Action]:
        if self._waiting.get(request_id) is not type(message):
            return []  # late: nobody waits for it any more
        if last:
            del self._waiting[request_id]
        return [Replied(request_id, message, last)]
