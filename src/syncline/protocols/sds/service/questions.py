"""Asking peers: pages of what they hold, and what they receive from now on."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import anyio.to_thread
import msgspec

from syncline.core import limits
from syncline.core.errors import DecodeError, UsageError
from syncline.core.ports import Ground, Receipt
from syncline.core.record import Incoming
from syncline.core.verdict import Verdict
from syncline.networks.host import Host
from syncline.protocols.sds.catalogue import plain_name, standard
from syncline.protocols.sds.filters import Condition, compiled, from_where
from syncline.protocols.sds.rules import PROTOCOL, Context, content, kept, topic_of
from syncline.protocols.sds.service.asking import Asking, Found, asking, refused
from syncline.protocols.sds.service.holdings import Holdings
from syncline.protocols.sds.service.taken import News
from syncline.protocols.sds.session import Pushed, QueryScan
from syncline.protocols.sds.wire import Filter, Held, Query, QueryResponse, Refusal, Subscribe, decode

Where = Mapping[str, Any] | Filter | None


class Questions:
    """Asks peers of one host."""

    def __init__(self, ground: Ground, news: News, holdings: Holdings, context: Context, query_seconds: float) -> None:
        self._ground = ground
        self._news = news
        self._holdings = holdings
        self._context = context
        self._timeout = query_seconds + 5.0  # the peer has that long, and then the way back

    async def query(self, host: Host, peer: str, query: Query) -> list[Found]:
        """Up to `query.limit` records from `query.offset` on, in as many pages as it takes."""
        schemas, clock = self._context.schemas, self._ground.clock
        found: list[Found] = []
        async with asking(host, peer, schemas, clock, timeout=self._timeout) as talk:
            offset = query.offset
            while len(found) < query.limit:
                most = min(query.limit - len(found), limits.SDS_PAGE_RECORDS)
                page = msgspec.structs.replace(query, query_id=uuid4().hex, limit=most, offset=offset)
                answer = await self._page(talk, page)
                found += await self._all_found(query.schema, answer.records[:most])
                if not answer.has_more or answer.next_offset <= offset:
                    break
                offset = answer.next_offset
        return found

    async def _page(self, talk: Asking, page: Query) -> QueryResponse:
        await talk.ask(talk.session.query(page))
        answer = (await talk.reply(page.query_id)).message
        assert isinstance(answer, QueryResponse)
        return answer

    async def find(self, query: Query) -> list[Found]:
        """The same from our own records."""
        found: list[Found] = []
        offset = query.offset
        while len(found) < query.limit:
            page = msgspec.structs.replace(
                query, query_id="own", limit=min(query.limit - len(found), limits.SDS_PAGE_RECORDS), offset=offset
            )
            answer = await self._own_page(page)
            found += await self._all_found(query.schema, answer.records)
            if not answer.has_more:
                break
            offset = answer.next_offset
        return found

    async def _own_page(self, page: Query) -> QueryResponse:
        deadline = self._ground.clock.monotonic() + self._timeout
        try:
            scan = QueryScan(page, network=self._context.network, deadline=deadline, archived=self._holdings.archived())
        except DecodeError as error:
            raise UsageError(str(error)) from None
        frames: list[bytes] = []

        async def keep(sent: Sequence[bytes]) -> None:
            frames.extend(sent)

        await self._holdings.run(scan, keep)
        answer = decode(frames[-1])
        if isinstance(answer, Refusal):
            raise refused(answer, "")
        assert isinstance(answer, QueryResponse)
        return answer

    async def _all_found(self, schema: str, records: Sequence[Held]) -> list[Found]:
        """Verified and read beside the event loop: a page may have a thousand records."""
        return await anyio.to_thread.run_sync(lambda: [self._found(schema, each) for each in records])

    def _found(self, schema: str, held: Held) -> Found:
        """A record with its fields, and whether it proves itself; its age does not matter here."""
        context = msgspec.structs.replace(self._context, memory=None)
        topic = topic_of(self._context.network, schema)
        judged = content(kept(held), topic, self._ground.clock.now(), context)
        if judged.verdict.accepted and judged.payload is not None:
            return Found(held, judged.payload, verified=True)
        try:
            return Found(held, standard(schema).reader.decode(held.data), verified=False)
        except DecodeError:
            return Found(held, {}, verified=False)

    async def keep(self, peer: str, found: Sequence[Found]) -> list[Receipt]:
        """Hand the records that proved themselves to the sink."""
        records = [each.held for each in found if each.verified]
        return await self._store(peer, [(each.schema, kept(each)) for each in records]) if records else []

    @asynccontextmanager
    async def follow(self, host: Host, peer: str, subscribe: Subscribe) -> AsyncIterator[Pushes]:
        """Subscribe at a peer for the length of the block."""
        schemas, clock = self._context.schemas, self._ground.clock
        async with asking(host, peer, schemas, clock, timeout=math.inf) as talk:
            await talk.ask(talk.session.subscribe(subscribe))
            yield Pushes(self, host, talk, subscribe.subscription_id)

    async def take(self, host: Host, pushed: Pushed, peer: str) -> Receipt:
        """Keep what a peer pushed; it answers for what it hands on."""
        [receipt] = await self._store(peer, [(pushed.message.schema, pushed.raw)])
        if Verdict(receipt.arrival.verdict, receipt.arrival.reason).blames_sender:
            host.blame(peer)
        return receipt

    async def _store(self, peer: str, raws: Sequence[tuple[str, bytes]]) -> list[Receipt]:
        now, network = self._ground.clock.now(), self._context.network
        incoming = [
            Incoming(protocol=PROTOCOL, topic=topic_of(network, schema), raw=raw, peer=peer, received_at=now)
            for schema, raw in raws
        ]
        receipts = await self._ground.sink.receive(incoming)
        self._news.tell(receipts)
        return receipts


class Pushes:
    """What a peer pushes, kept before it is handed over; ends with an error when the peer ends it."""

    def __init__(self, questions: Questions, host: Host, talk: Asking, subscription_id: str) -> None:
        self._questions = questions
        self._host = host
        self._talk = talk
        self._name = subscription_id

    def __aiter__(self) -> Pushes:
        return self

    async def __anext__(self) -> Receipt:
        """What became of the next message."""
        pushed = await self._talk.push(self._name)
        return await self._questions.take(self._host, pushed, self._talk.session.peer)


def condition_of(where: Where, schema: str) -> Condition:
    """What a caller's terms mean; a mistake in them is the caller's."""
    try:
        return compiled(from_where(where), standard(schema).schema)
    except DecodeError as error:
        raise UsageError(error.message, about=plain_name(schema)) from None
