"""Segments and blobs in an object store, against a real S3 server (moto)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import obstore
import pytest
from moto.server import ThreadedMotoServer

from syncline.core.errors import CorruptionError, UnavailableError
from syncline.core.ports import RecordQuery
from syncline.core.settings import SegmentSettings
from syncline.formats.segments import check_segment
from syncline.journal import Drainer, Journal, LocalTarget, ObjectBlobs, ObjectTarget, target_of
from syncline.journal.verify import verify
from tests.journal.conftest import arrival, execute

URL = SegmentSettings(url="s3://segments/of/many")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def target(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ObjectTarget:
    """A target in an empty bucket, set up as an operator would: by its address and the environment."""
    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    httpx.post(f"{server}/moto-api/reset")
    assert httpx.put(f"{server}/segments").status_code == 200
    found = target_of(URL, tmp_path / "segments")
    assert isinstance(found, ObjectTarget)
    return found


def test_without_an_address_segments_go_to_the_folder(tmp_path: Path) -> None:
    found = target_of(SegmentSettings(), tmp_path)
    assert isinstance(found, LocalTarget)
    assert found.folder == tmp_path


def test_segments_of_many_nodes_share_a_bucket(
    open_journal: Callable[..., Journal], target: ObjectTarget, tmp_path: Path
) -> None:
    journals = [open_journal(path=tmp_path / f"{node}.db", node=node) for node in ("one", "two")]
    for journal in journals:
        journal.append_sync([arrival(b"1", protocol="a"), arrival(b"2", protocol="b")])
        Drainer(journal, target, URL).drain()
    assert sorted(name.node for name in target.list()) == ["one", "one", "two", "two"]
    for journal in journals:
        found = verify(journal.path, target=target)
        assert (found.problems, found.segments, found.sealed_records) == ([], 2, 2)


def test_a_range_half_of_which_was_put_is_completed(journal: Journal, target: ObjectTarget) -> None:
    journal.append_sync([arrival(b"1", protocol="a"), arrival(b"2", protocol="b")])
    infos = Drainer(journal, target, URL).drain()
    execute(journal, "UPDATE head SET sealed = 0")
    journal._sealed = 0
    obstore.delete(target.store, infos[0].path)
    journal.append_sync([arrival(b"3", protocol="a")])
    again = Drainer(journal, target, URL).drain()
    assert [(info.path, info.hi) for info in again[:2]] == [(info.path, 2) for info in infos]
    assert check_segment(target.read(infos[0].path), infos[0].path).rows == 1
    assert verify(journal.path, target=target).problems == []


def test_a_put_never_overwrites_but_may_be_repeated(target: ObjectTarget) -> None:
    target.publish({"a": b"1"})
    target.publish({"a": b"1"})
    with pytest.raises(CorruptionError, match="already there"):
        target.publish({"a": b"2"})
    assert target.read("a") == b"1"


def test_a_store_that_does_not_answer_is_tried_again_later(journal: Journal, target: ObjectTarget, server: str) -> None:
    journal.append_sync([arrival(b"1")])
    httpx.post(f"{server}/moto-api/reset")  # the bucket is gone
    with pytest.raises(UnavailableError):
        Drainer(journal, target, URL).drain()
    assert journal.sealed() == 0
    httpx.put(f"{server}/segments")
    assert len(Drainer(journal, target, URL).drain()) == 1


def test_a_missing_segment_is_named(target: ObjectTarget) -> None:
    with pytest.raises(CorruptionError, match="gone"):
        target.read("protocol=a/date=2026-03-01/absent.parquet")


def test_large_raw_bytes_go_to_the_object_store(open_journal: Callable[..., Journal], target: ObjectTarget) -> None:
    journal = open_journal(blobs=ObjectBlobs(target.store))
    raw = bytes(2**20 + 1)
    journal.append_sync([arrival(b"1", raw=raw), arrival(b"2", raw=raw)])
    first, second = journal.read(RecordQuery())
    assert journal.raw(first) == journal.raw(second) == raw
    assert verify(journal.path, blobs=journal.blobs).blobs == 2
    obstore.delete(target.store, f"blobs/{first.raw_ref}")
    with pytest.raises(CorruptionError, match="gone"):
        journal.raw(first)
