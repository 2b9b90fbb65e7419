"""Client requests: checked, answered at once when they are refused, and otherwise when what they change is on disk.

Every publish that can be spelled as a message is handed to the journal, refused ones with the reason. Requests over the
rate are only answered and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from syncline.core.clock import Clock
from syncline.core.limits import RELAY_FETCH_BYTES, RELAY_FETCH_MESSAGES
from syncline.protocols.relay.rules.messages import is_topic
from syncline.protocols.relay.session.batches import CommitQueue
from syncline.protocols.relay.session.cache import Cache, Entry
from syncline.protocols.relay.session.clients import Connection
from syncline.protocols.relay.session.deliveries import Deliveries
from syncline.protocols.relay.session.outbox import Load, Outbox
from syncline.protocols.relay.session.publishing import Draft, Publishing
from syncline.protocols.relay.session.quotas import Quotas
from syncline.protocols.relay.session.subscriptions import Subscriptions
from syncline.protocols.relay.wire import rpc
from syncline.protocols.relay.wire.messages import decode
from syncline.protocols.relay.wire.rpc import Problem, RequestId

SUBSCRIBE_COST: Final = 1 / 25  # of a request, for each topic of a batch: it is a row to write, not a message
NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
FLOOD: Final = 3001  # the close code of a connection that goes on after so many refusals


class RequestError(Exception):
    """A request that is refused."""

    def __init__(self, problem: Problem, detail: str = "") -> None:
        super().__init__(problem.label)
        self.problem = problem
        self.detail = detail


class Requests:
    """The methods a client may call."""

    def __init__(
        self,
        *,
        cache: Cache,
        publishing: Publishing,
        subscriptions: Subscriptions,
        deliveries: Deliveries,
        queue: CommitQueue,
        outbox: Outbox,
        quotas: Quotas,
        clock: Clock,
    ) -> None:
        self._cache = cache
        self._publishing = publishing
        self._subscriptions = subscriptions
        self._deliveries = deliveries
        self._queue = queue
        self._outbox = outbox
        self._quotas = quotas
        self._clock = clock
        self._monotonic = clock.monotonic
        self._methods: dict[str, Callable[[Connection, RequestId, msgspec.Raw], None]] = {
            "irn_publish": self._publish,
            "irn_batchPublish": self._batch_publish,
            "irn_subscribe": self._subscribe,
            "irn_batchSubscribe": self._batch_subscribe,
            "irn_unsubscribe": self._unsubscribe,
            "irn_batchUnsubscribe": self._batch_unsubscribe,
            "irn_fetchMessages": self._fetch,
            "irn_batchFetchMessages": self._batch_fetch,
        }
        self.is_draining = False
        self.answered: Counter[str] = Counter()  # by method: bounded by the table above
        self.refused: Counter[str] = Counter()  # by problem

    def receive(self, connection: Connection, payload: bytes) -> None:
        """One message of a client: a request, or its acknowledgement of a delivery."""
        try:
            call = rpc.decode_call(payload)
        except NOT_JSON as error:
            self._refuse(connection, None, RequestError(Problem.INVALID_JSON, str(error)))
            return
        if not call.method:
            if call.result and not call.error and isinstance(call.id, int):
                self._deliveries.acknowledge(connection, call.id)
            return
        try:
            if call.jsonrpc != "2.0":
                raise RequestError(Problem.INVALID_JSON, "jsonrpc must be '2.0'")
            if self.is_draining:
                raise RequestError(Problem.INTERNAL, "this server is stopping; connect again")
            method = self._methods.get(call.method)
            if method is None:
                raise RequestError(Problem.INVALID_METHOD, f"there is no method {call.method[:64]!r}")
            missing = connection.bucket.take(self._monotonic())
            if missing:
                raise _too_many(missing)
            method(connection, call.id, call.params)
            self.answered[call.method] += 1
        except msgspec.ValidationError as error:
            self._refuse(connection, call.id, RequestError(Problem.INVALID_PARAMS, str(error)))
        except NOT_JSON as error:  # the parameters, which are read only now
            self._refuse(connection, call.id, RequestError(Problem.INVALID_JSON, str(error)))
        except RequestError as error:
            self._refuse(connection, call.id, error)

    def _refuse(self, connection: Connection, request_id: RequestId | None, error: RequestError) -> None:
        connection.text(rpc.fault(request_id, error.problem, error.detail))
        self.refused[error.problem.label] += 1
        connection.strikes += 1
        if connection.strikes > self._quotas.strikes:
            connection.close(FLOOD, f"more than {self._quotas.strikes} refused requests")

    def _take(self, connection: Connection, tokens: float) -> None:
        missing = connection.bucket.take(self._monotonic(), tokens)
        if missing:
            raise _too_many(missing)

    def _publish(self, connection: Connection, request_id: RequestId, params: msgspec.Raw) -> None:
        publishing = self._publishing
        draft = publishing.draft(rpc.decode_publish(params), connection.client.did, is_client=True)
        if draft.problem is None:
            publishing.admit(draft)
        if draft.problem is not None:
            publishing.refuse(draft)
            raise RequestError(draft.problem, draft.detail)
        connection.in_flight += 1
        publishing.commit_one(draft, _Answer(connection, request_id))

    def _batch_publish(self, connection: Connection, request_id: RequestId, params: msgspec.Raw) -> None:
        messages = msgspec.json.decode(params, type=rpc.BatchPublishParams).messages
        self._check_batch(messages)
        self._take(connection, len(messages) - 1.0)
        self._send(connection, request_id, messages)

    def _send(self, connection: Connection, request_id: RequestId, messages: Sequence[rpc.PublishParams]) -> None:
        """All of a batch is taken in, or none: the first bad message refuses it."""
        publishing, source = self._publishing, connection.client.did
        admitted: list[Draft] = []
        for each in messages:
            draft = publishing.draft(each, source, is_client=True)
            if draft.problem is None:
                publishing.admit(draft)
            if draft.problem is not None:
                publishing.withdraw(admitted)
                publishing.refuse(draft)
                raise RequestError(draft.problem, draft.detail)
            admitted.append(draft)
        connection.in_flight += 1
        self._publishing.commit(admitted, _Answer(connection, request_id))

    def _subscribe(self, connection: Connection, request_id: RequestId, params: msgspec.Raw) -> None:
        topic = msgspec.json.decode(params, type=rpc.TopicParams).topic
        self._listen(connection, request_id, [topic], single=True)

    def _batch_subscribe(self, connection: Connection, request_id: RequestId, params: msgspec.Raw) -> None:
        topics = msgspec.json.decode(params, type=rpc.TopicsParams).topics
        self._check_batch(topics)
        self._take(connection, len(topics) * SUBSCRIBE_COST)
        self._listen(connection, request_id, topics, single=False)

    def _listen(self, connection: Connection, request_id: RequestId, topics: Sequence[str], *, single: bool) -> None:
        self._check_topics(topics)
        full = self._subscriptions.room(connection.client, topics)
        if full:
            raise RequestError(Problem.SUBSCRIBER_LIMIT, full)
        connection.in_flight += 1
        self._subscriptions.subscribe(connection, topics, _Answer(connection, request_id, single=single))

    def _unsubscribe(self, connection: Connection, request_id: RequestId, params: msgspec.Raw) -> None:
        self._unlisten(connection, request_id, [msgspec.json.decode(params, type=rpc.UnsubscribeParams).topic])

    def _batch_unsubscribe(self, connection: Connection, request_id: RequestId, params: msgspec.Raw) -> None:
        found = msgspec.json.decode(params, type=rpc.BatchUnsubscribeParams).subscriptions
        self._check_batch(found)
        self._take(connection, len(found) * SUBSCRIBE_COST)
        self._unlisten(connection, request_id, [each.topic for each in found])

    def _unlisten(self, connection: Connection, request_id: RequestId, topics: Sequence[str]) -> None:
        self._check_topics(topics)
        connection.in_flight += 1
        self._subscriptions.unsubscribe(connection.client, topics, _Answer(connection, request_id))

    def _fetch(self, connection: Connection, request_id: RequestId, params: msgspec.Raw) -> None:
        self._read(connection, request_id, [msgspec.json.decode(params, type=rpc.TopicParams).topic])

    def _batch_fetch(self, connection: Connection, request_id: RequestId, params: msgspec.Raw) -> None:
        topics = msgspec.json.decode(params, type=rpc.TopicsParams).topics
        self._check_batch(topics)
        self._take(connection, len(topics) * SUBSCRIBE_COST)
        self._read(connection, request_id, list(dict.fromkeys(topics)))

    def _read(self, connection: Connection, request_id: RequestId, topics: Sequence[str]) -> None:
        """Answer with what the client has not acknowledged; what is fetched counts as acknowledged."""
        self._check_topics(topics)
        wanted, more = self._unread(connection, topics)
        connection.in_flight += 1

        def answer(bodies: Sequence[bytes | None]) -> None:
            connection.in_flight -= 1
            if connection.end is not None:
                return  # it has gone: nobody has read them
            messages = []
            for entry, body in zip(wanted, bodies, strict=True):
                if body is not None:
                    found = decode(body)
                    messages.append(rpc.Delivered(entry.topic, found.message.decode(), found.timestamp, found.tag))
                self._deliveries.mark_read(connection.client, entry)
            connection.text(rpc.result(request_id, {"messages": messages, "hasMore": more}))

        self._outbox.loads.append(Load(wanted, answer))

    def _unread(self, connection: Connection, topics: Sequence[str]) -> tuple[list[Entry], bool]:
        now, size, wanted = self._clock.now(), 0, list[Entry]()
        for topic in topics:
            mailbox, cursor = self._cache.mailbox(topic), connection.client.cursors.get(topic)
            for entry in mailbox.after(cursor.through if cursor is not None else 0) if mailbox is not None else ():
                if not connection.client.wants(entry) or entry.expires_at <= now:
                    continue
                size += entry.size
                if wanted and (size > RELAY_FETCH_BYTES or len(wanted) == RELAY_FETCH_MESSAGES):
                    return wanted, True
                wanted.append(entry)
        return wanted, False

    def _check_batch(self, items: Sequence[Any]) -> None:
        if not items:
            raise RequestError(Problem.BATCH_EMPTY)
        if len(items) > self._quotas.batch:
            raise RequestError(Problem.BATCH_LIMIT, f"a batch has at most {self._quotas.batch} items, not {len(items)}")

    def _check_topics(self, topics: Sequence[str]) -> None:
        for topic in topics:
            if not is_topic(topic):
                raise RequestError(Problem.INVALID_TOPIC)


def _too_many(missing: float) -> RequestError:
    return RequestError(Problem.TOO_MANY_REQUESTS, f"try again in {missing:.1f} s")


class _Answer(msgspec.Struct, eq=False, gc=False):
    """Answers a request when what it changed is on disk."""

    connection: Any
    request_id: RequestId
    single: bool = False

    def ok(self, value: Any) -> None:
        self.connection.in_flight -= 1
        if value is True:
            self.connection.text(rpc.yes(self.request_id))
        else:
            self.connection.text(rpc.result(self.request_id, value[0] if self.single else value))

    def failed(self, error: Exception) -> None:
        """A client learns that it failed, not where our disk is."""
        self.connection.in_flight -= 1
        self.connection.text(rpc.fault(self.request_id, Problem.INTERNAL))
