"""Stores: what was kept is there, numbers are never used twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.core.errors import ConflictError
from syncline.formats.ndn import names
from syncline.protocols.svs.service.stores import FileStore, MemoryStore, Prepared, Store
from syncline.protocols.svs.wire.mapping import MappingEntry, timestamp_block
from tests.protocols.svs.conftest import ALICE, BOB

pytestmark = pytest.mark.anyio


def prepared(seq: int, *packets: bytes, node: bytes = ALICE) -> Prepared:
    return Prepared(
        node, seq, packets or (b"packet",), MappingEntry(seq, names.parse(f"/x/{seq}"), timestamp_block(seq))
    )


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
    else:
        found = FileStore(tmp_path / "new" / "store.db")
        yield found
        found.close()


async def test_what_was_kept_is_there(store: Store) -> None:
    assert await store.last(ALICE) == 0
    await store.keep([prepared(1), prepared(2, b"one", b"two"), prepared(1, node=BOB)])
    assert (await store.last(ALICE), await store.last(BOB)) == (2, 1)
    assert await store.packet(ALICE, 1, None) == b"packet"
    assert await store.packet(ALICE, 2, None) == b"one"
    assert await store.packet(ALICE, 2, 1) == b"two"
    assert await store.packet(ALICE, 2, 2) is None
    assert await store.packet(ALICE, 3, None) is None
    assert [(each.seq, names.text(each.name), each.timestamp) for each in await store.entries(ALICE, 1, 9)] == [
        (1, "/x/1", 1),
        (2, "/x/2", 2),
    ]


async def test_a_file_remembers_and_refuses_a_number_twice(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store.db")
    await store.keep([prepared(5)])
    store.close()
    store = FileStore(tmp_path / "store.db")
    assert await store.last(ALICE) == 5
    with pytest.raises(ConflictError):
        await store.keep([prepared(6), prepared(5)])
    assert await store.last(ALICE) == 5  # all or nothing
    assert await store.packet(ALICE, 6, None) is None
    store.close()


async def test_memory_keeps_the_newest() -> None:
    store = MemoryStore(bytes_max=100)
    for seq in range(1, 50):
        await store.keep([prepared(seq, bytes(10))])
    assert [await store.packet(ALICE, seq, None) for seq in (39, 40)] == [None, bytes(10)]
    assert await store.last(ALICE) == 49
