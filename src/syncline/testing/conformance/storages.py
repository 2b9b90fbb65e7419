"""What stores for large objects promise (`syncline.protocols.sdsp.plugins.ObjectStorage`). The subject is an opened one."""

from __future__ import annotations

from typing import Final

import anyio

from syncline.core.errors import NotFoundError
from syncline.protocols.sdsp.plugins import ObjectStorage
from syncline.testing.conformance.check import Check, NotConforming, expect

FOREIGN: Final = ("http://127.0.0.1:1/x", "file:///etc/passwd", "memory:a/b", "s3://somebody/else", "")


async def what_was_stored_is_loaded(storage: ObjectStorage) -> None:
    for content in (b'{"alt": 550.5}', b"", bytes(range(256)) * 4_096):
        location = await storage.store(content)
        expect(storage.owns(location.uri), True, "owns what it stored")
        expect(await storage.load(location.uri) == content, True, f"{len(content)} bytes come back as they were")


async def what_was_deleted_is_gone_and_may_be_deleted_again(storage: ObjectStorage) -> None:
    location = await storage.store(b"{}")
    await storage.delete(location.uri)
    await _not_found(storage, location.uri)
    await storage.delete(location.uri)


async def the_same_bytes_stored_twice_are_two_objects(storage: ObjectStorage) -> None:
    one, two = await storage.store(b"{}"), await storage.store(b"{}")
    expect((one.uid != two.uid, one.uri != two.uri), (True, True), "names and addresses differ")
    await storage.delete(one.uri)
    expect(await storage.load(two.uri), b"{}", "what the second holds when the first is deleted")


async def an_address_of_another_storage_is_not_loaded(storage: ObjectStorage) -> None:
    for uri in FOREIGN:
        expect(storage.owns(uri), False, f"owns {uri!r}")
        await _not_found(storage, uri)


async def many_may_store_at_once(storage: ObjectStorage) -> None:
    kept: dict[str, bytes] = {}

    async def one(number: int) -> None:
        kept[(await storage.store(b"%d" % number)).uri] = b"%d" % number

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(one, number)
    expect(len(kept), 20, "addresses given out")
    for uri, content in kept.items():
        expect(await storage.load(uri), content, "content")


async def _not_found(storage: ObjectStorage, uri: str) -> None:
    try:
        found = await storage.load(uri)
    except NotFoundError:
        return
    raise NotConforming(f"loaded {len(found)} bytes of {uri!r}, where NotFoundError belongs")


STORAGE_CHECKS: Final[tuple[Check[ObjectStorage], ...]] = (
    Check(what_was_stored_is_loaded),
    Check(what_was_deleted_is_gone_and_may_be_deleted_again),
    Check(the_same_bytes_stored_twice_are_two_objects),
    Check(an_address_of_another_storage_is_not_loaded),
    Check(many_may_store_at_once),
)
