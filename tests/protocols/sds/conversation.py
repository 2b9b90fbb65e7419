"""Two ends of a stream in one thread: sessions, real journals and real rules, and every frame that crossed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncline.core.keys import NodeKey
from syncline.core.limits import HOUR
from syncline.core.ports import RecordQuery
from syncline.core.record import Arrival, Incoming
from syncline.journal import Journal
from syncline.protocols.sds.catalogue import NAMES, standard
from syncline.protocols.sds.rules import Context, judge, kept, signed_publish, topic_of
from syncline.protocols.sds.session import (
    Action,
    Blame,
    Close,
    Feed,
    Pushed,
    Quotas,
    Refused,
    Replied,
    Requester,
    Responder,
    Scan,
    Send,
    Serve,
    Store,
    Unsubscribed,
)
from syncline.protocols.sds.session.responder import Terms
from syncline.protocols.sds.wire import Held, Message, Publish, Refusal, decode, encode
from syncline.testing.clock import FakeClock

NETWORK = "testnet"


class Place:
    """A node's journal and rules, without its networks."""

    def __init__(self, folder: Path, number: int, *, memory: int | None = 24 * HOUR) -> None:
        self.key = NodeKey(bytes([number]) * 32)
        self.clock = FakeClock()
        self.context = Context(network=NETWORK, memory=memory)
        self.journal = Journal.open(folder / f"{number}" / "journal.db", node=self.key.peer_id, clock=self.clock)
        self._made = 0

    def close(self) -> None:
        self.journal.close()

    def message(self, schema: str = "OMM", payload: dict[str, Any] | bytes | None = None, ttl: int = 0) -> Publish:
        """A publish by this place."""
        self._made += 1
        data = payload if isinstance(payload, bytes) else standard(schema).writer.encode(payload or {})
        name = f"{self.key.peer_id[-4:]}-{self._made}"
        return signed_publish(self.key, schema=schema, payload=data, message_id=name, now=self.clock.now(), ttl=ttl)

    def take(self, message: Publish | Held | bytes, *, schema: str = "OMM", peer: str = "peer") -> Arrival:
        """Judge and keep one message."""
        return self.take_all([message], schema=schema, peer=peer)[0]

    def take_all(self, messages: list[Any], *, schema: str = "OMM", peer: str = "peer") -> list[Arrival]:
        raws = [
            each if isinstance(each, bytes) else kept(each) if isinstance(each, Held) else encode(each)
            for each in messages
        ]
        names = [getattr(each, "schema", schema) for each in messages]
        arrivals = [
            judge(
                Incoming(
                    protocol="sds", topic=topic_of(NETWORK, name), raw=raw, peer=peer, received_at=self.clock.now()
                ),
                self.context,
            )
            for raw, name in zip(raws, names, strict=True)
        ]
        return [receipt.arrival for receipt in self.journal.append_sync(arrivals)]

    def fill(self, count: int, **fixed: Any) -> list[Publish]:
        """Keep that many OMMs, numbered from 1."""
        messages = [self.message(payload={"NORAD_CAT_ID": number, **fixed}) for number in range(1, count + 1)]
        assert all(arrival.accepted for arrival in self.take_all(messages))
        return messages


class Conversation:
    """`asker` has opened a stream to `answerer`. Frames cross at once; `run` goes on until nobody has more to say."""

    def __init__(
        self,
        asker: Place,
        answerer: Place,
        *,
        quotas: Quotas | None = None,
        schemas: frozenset[str] = frozenset(NAMES),
        query_seconds: float = 10.0,
        greet: bool = True,
    ) -> None:
        self.answerer = answerer
        self.asking = Requester(answerer.key.peer_id, NAMES)
        self.answering = Responder(
            asker.key.peer_id,
            Terms(network=NETWORK, schemas=schemas, query_seconds=query_seconds),
            quotas or Quotas(),
            newest=answerer.journal.newest,
            wall=answerer.clock.now,
        )
        self.crossed: list[Message] = []  # answers, as they went over the wire
        self.crossed_bytes = 0
        self.replies: list[Replied] = []
        self.refusals: list[Refusal] = []
        self.pushes: list[Publish] = []
        self.blamed: list[str] = []
        self.closed: list[str] = []
        self.feeds: dict[str, Scan] = {}
        if greet:
            self.do(self.asking.start())
            self.answered(self.answering.start())

    @property
    def now(self) -> float:
        return self.answerer.clock.monotonic()

    def do(self, actions: list[Action]) -> None:
        """What the asker wants done."""
        for action in actions:
            match action:
                case Send(frame):
                    self.send(frame)
                case Replied():
                    self.replies.append(action)
                case Refused(_, refusal):
                    self.refusals.append(refusal)
                case Pushed(message):
                    self.pushes.append(message)
                case Blame(why):
                    self.blamed.append(why)
                case Close(why):
                    self.closed.append(why)
                case _:
                    raise AssertionError(action)

    def send(self, frame: bytes) -> None:
        """A frame from the asker's side."""
        self.answered(self.answering.receive(frame, self.now))

    def answered(self, actions: list[Action]) -> None:
        """What the answerer wants done."""
        for action in actions:
            match action:
                case Send(frame):
                    self._cross(frame)
                case Store(message, raw):
                    arrival = self.answerer.take(raw, schema=message.schema, peer=self.answering.peer)
                    self.answered(self.answering.stored(message, arrival))
                case Serve(scan) if scan.is_live:
                    self.feeds[scan.request_id] = scan
                    self.news()
                case Serve(scan):
                    self._run(scan)
                    self.answering.served()
                case Unsubscribed(name):
                    del self.feeds[name]
                case Blame(why):
                    self.blamed.append(why)
                case Close(why):
                    self.closed.append(why)
                case _:
                    raise AssertionError(action)

    def news(self) -> None:
        """Let every subscription look for records."""
        for feed in self.feeds.values():
            assert isinstance(feed, Feed)
            quiet = 0
            while quiet < 2:  # the first empty read may be the end of history
                query = feed.wants()
                found = self.answerer.journal.read(query)
                for frame in feed.feed(found, self.now):
                    self._cross(frame)
                quiet = 0 if query.cuts_off(found) else quiet + 1

    def _run(self, scan: Scan) -> None:
        while isinstance(query := scan.wants(), RecordQuery):
            for frame in scan.feed(self.answerer.journal.read(query), self.now):
                self._cross(frame)

    def _cross(self, frame: bytes) -> None:
        self.crossed.append(decode(frame))
        self.crossed_bytes += len(frame)
        self.do(self.asking.receive(frame, self.now))
