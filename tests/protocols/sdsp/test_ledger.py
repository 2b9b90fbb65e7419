"""The publisher's ledger: what is written survives, what was cut short is forgotten, what is damaged is said."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from syncline.core.errors import ConflictError, CorruptionError, UnavailableError
from syncline.protocols.sdsp.ledger import Entry, FileLedger
from syncline.protocols.sdsp.publisher import Publisher
from syncline.protocols.sdsp.session import Policy
from syncline.transports.memory import MemoryHub

pytestmark = pytest.mark.anyio
FULL = Entry("sats", b'{"uid":"a","serial":0,"data":0}')
ONE = Entry("sats", b'{"uid":"a","serial":1,"ver":1,"alg":"X-mp","delta":1}')
TWO = Entry("sats", b'{"uid":"a","serial":2,"dataUri":"memory:x"}', b"2")


async def filled(folder: Path) -> Path:
    """A ledger with a full frame and a delta; the path of its file."""
    ledger = FileLedger(folder)
    assert await ledger.hold("a") == []
    await ledger.write("a", FULL, full=True)
    await ledger.write("a", ONE, full=False)
    await ledger.release("a")
    [path] = folder.glob("*.sdsp")
    return path


async def read(folder: Path) -> list[Entry]:
    ledger = FileLedger(folder)
    entries = await ledger.hold("a")
    await ledger.release("a")
    return entries


async def test_entries_come_back_in_order_and_a_full_frame_starts_anew(tmp_path: Path) -> None:
    await filled(tmp_path)
    assert await read(tmp_path) == [FULL, ONE]
    ledger = FileLedger(tmp_path)
    await ledger.hold("a")
    await ledger.write("a", TWO, full=True)
    await ledger.release("a")
    assert await read(tmp_path) == [TWO]


async def test_objects_do_not_share_a_file(tmp_path: Path) -> None:
    await filled(tmp_path)
    assert await FileLedger(tmp_path).hold("b/../a") == []


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk that is full: the system writes this far and no further."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [0, 5, 40])
async def test_an_entry_that_did_not_fit_on_the_disk_leaves_nothing_behind(tmp_path: Path, room: int) -> None:
    path = await filled(tmp_path)
    before = path.read_bytes()
    ledger = FileLedger(tmp_path)
    await ledger.hold("a")
    with files_of_at_most(len(before) + room), pytest.raises(UnavailableError, match="was not sent"):
        await ledger.write("a", ONE, full=False)
    assert path.read_bytes() == before
    with files_of_at_most(room), pytest.raises(UnavailableError):
        await ledger.write("a", TWO, full=True)
    assert path.read_bytes() == before
    await ledger.write("a", ONE, full=False)
    await ledger.release("a")
    assert await read(tmp_path) == [FULL, ONE, ONE]


async def test_a_publisher_whose_disk_is_full_goes_on_where_it_was(tmp_path: Path) -> None:
    async with Publisher(
        MemoryHub(), state=tmp_path, policy=Policy(delta_ratio=1e9, cumulative_ratio=1e9)
    ) as publisher:
        sat = await publisher.create({"n": 0}, uid="a")
        [path] = tmp_path.glob("*.sdsp")
        with files_of_at_most(path.stat().st_size + 9), pytest.raises(UnavailableError):
            await sat.update({"n": 1})
        assert (sat.serial, sat.value) == (0, {"n": 0})
        assert await sat.update({"n": 2}) == 1
    async with Publisher(publisher.transport, state=tmp_path) as restarted:
        assert (await restarted.open("a")).value == {"n": 2}


async def test_a_cut_at_every_byte_gives_the_entries_before_it(tmp_path: Path) -> None:
    path = await filled(tmp_path)
    whole = path.read_bytes()
    title = whole.index(b"\n") + 1
    first = title + 8 + int.from_bytes(whole[title : title + 4])
    for end in range(title, len(whole)):
        path.write_bytes(whole[:end])
        assert await read(tmp_path) == ([FULL] if end >= first else []), end
        assert path.stat().st_size == (first if end >= first else title)
    path.write_bytes(whole)
    assert await read(tmp_path) == [FULL, ONE]


async def test_a_cut_in_the_title_is_damage(tmp_path: Path) -> None:
    path = await filled(tmp_path)
    path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(CorruptionError, match="it begins wrongly"):
        await read(tmp_path)


async def test_a_flipped_bit_before_the_last_entry_is_damage_and_nothing_is_deleted(tmp_path: Path) -> None:
    path = await filled(tmp_path)
    whole = path.read_bytes()
    title = whole.index(b"\n") + 1
    first = title + 8 + int.from_bytes(whole[title : title + 4])
    damaged = 0
    for position in range(title + 4, first):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(CorruptionError, match="a checksum does not fit"):
            await read(tmp_path)
        assert path.stat().st_size == len(whole)
        damaged += 1
    assert damaged == first - title - 4


async def test_two_publishers_of_one_folder_cannot_hold_the_same_object(tmp_path: Path) -> None:
    one, two = FileLedger(tmp_path), FileLedger(tmp_path)
    await one.hold("a")
    with pytest.raises(ConflictError, match="another publisher here holds this object"):
        await two.hold("a")
    await two.hold("b")
    await one.release("a")
    assert await two.hold("a") == []


async def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    await filled(folder)
    assert oct(folder.stat().st_mode & 0o777) == "0o700"
    assert {oct(file.stat().st_mode & 0o077) for file in folder.glob("*.lock")} == {"0o0"}
