"""What sources of block headers promise (`HeaderSource` of ShrEx, entry points `syncline.shrex.headers`).

The subject is a function that opens a source with given headers, and gives a way to add some: only its author knows how
headers get into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio
import anyio.lowlevel
import msgspec

from syncline.protocols.shrex.service.sources import HeaderSource
from syncline.protocols.shrex.wire.header import HEIGHT_MAX, Header
from syncline.testing.conformance.check import Check, expect
from syncline.testing.headers import chain, linked


class Served(msgspec.Struct, frozen=True):
    """An opened source, and a function that puts one more header, the next one, into it."""

    source: HeaderSource
    add: Callable[[Header], None]


Serving = Callable[[Sequence[Header]], AbstractAsyncContextManager[Served]]


async def a_source_without_headers_has_head_0(serving: Serving) -> None:
    async with serving([]) as served:
        expect(await served.source.head(), 0, "the head of nothing")
        expect(await served.source.by_height(1), None, "the header of height 1")


async def the_head_is_the_newest_height(serving: Serving) -> None:
    async with serving(chain(7, first=100)) as served:
        expect(await served.source.head(), 106, "the head")


async def every_header_comes_back_as_it_was(serving: Serving) -> None:
    for headers in (chain(12), _odd_ones(), _high_ones()):
        async with serving(headers) as served:
            await served.source.head()
            for header in (*headers, *reversed(headers)):
                found = await served.source.by_height(header.height)
                expect(found, header, f"the header of height {header.height}")
                expect(found and found.hash, header.hash, f"the hash of height {header.height}")


async def what_it_does_not_have_is_none(serving: Serving) -> None:
    async with serving(chain(5, first=100)) as served:
        await served.source.head()
        for height in (1, 99, 105, HEIGHT_MAX):
            expect(await served.source.by_height(height), None, f"the header of height {height}")


async def what_is_added_is_found(serving: Serving) -> None:
    headers = chain(6)
    async with serving(headers[:3]) as served:
        expect(await served.source.head(), 3, "the head")
        for header in headers[3:]:
            served.add(header)
            expect(await served.source.head(), header.height, "the head after one was added")
            expect(await served.source.by_height(header.height), header, "the header that was added")
        expect(await served.source.by_height(1), headers[0], "the header of height 1")


async def many_may_ask_at_once(serving: Serving) -> None:
    headers = chain(20)
    found: dict[int, Header | None] = {}
    async with serving(headers) as served, anyio.create_task_group() as tasks:
        await served.source.head()

        async def ask(height: int) -> None:
            found[height] = await served.source.by_height(height)

        for header in headers:
            tasks.start_soon(ask, header.height)
    expect([found[header.height] for header in headers], headers, "the headers")


async def a_cancelled_question_does_no_harm(serving: Serving) -> None:
    headers = chain(5)
    async with serving(headers) as served:
        async with anyio.create_task_group() as tasks:
            for height in (1, 2, 3):
                tasks.start_soon(served.source.by_height, height)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        expect(await served.source.head(), 5, "the head")
        expect(await served.source.by_height(2), headers[1], "the header of height 2")


async def closing_twice_is_no_error(serving: Serving) -> None:
    async with serving(chain(2)) as served:
        await served.source.head()
        await served.source.close()
        await served.source.close()


def _odd_ones() -> list[Header]:
    """A first block without anything before it, an app of version 0, nanoseconds, and empty hashes."""
    first, second = chain(2)
    first = msgspec.structs.replace(first, app_version=0, app_hash=b"", time="2026-03-01T00:00:06.000000001Z")
    second = msgspec.structs.replace(second, last_block_hash=first.hash, time="2026-03-01T00:00:12.5Z")
    return [first, second]


def _high_ones() -> list[Header]:
    rows = [(HEIGHT_MAX - 2 + n, "2026-03-01T00:00:00Z", bytes((n + 1,)) * 32) for n in range(3)]
    return linked(rows)


HEADER_SOURCE_CHECKS: Final[tuple[Check[Serving], ...]] = (
    Check(a_source_without_headers_has_head_0),
    Check(the_head_is_the_newest_height),
    Check(every_header_comes_back_as_it_was),
    Check(what_it_does_not_have_is_none),
    Check(what_is_added_is_found),
    Check(many_may_ask_at_once),
    Check(a_cancelled_question_does_no_harm),
    Check(closing_twice_is_no_error),
)
