"""Object storage, against a real S3 server (moto) and the local kinds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import MemoryStore

from syncline.core.errors import NotFoundError, RefusedError, UnavailableError, UsageError
from syncline.core.limits import SECOND
from syncline.core.verdict import Reason
from syncline.networks.fetch import Fetcher, FetchPolicy
from syncline.protocols.sdsp import storage
from syncline.protocols.sdsp.plugins import ObjectStorage
from syncline.protocols.sdsp.storage import ObstoreStorage, open_obstore

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of an S3 server that has the bucket `objects`."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    assert httpx.put(f"{address}/objects").status_code == 200
    yield address
    server.stop()


def on_s3(address: str, **options: Any) -> ObstoreStorage:
    return open_obstore(
        "s3://objects/big",
        endpoint=address,
        access_key_id="key",
        secret_access_key="secret",
        region="us-east-1",
        client_options={"allow_http": True},
        **options,
    )


@pytest.fixture(params=["s3", "file", "memory"])
def any_storage(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStorage:
    if request.param == "s3":
        return on_s3(request.getfixturevalue("s3"))
    return open_obstore(tmp_path.as_uri() if request.param == "file" else "memory:")


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
async def test_what_was_stored_is_loaded_until_it_is_deleted(any_storage: ObjectStorage, anyio_backend: str) -> None:
    location = await any_storage.store(b'{"alt": 550.5}')
    assert any_storage.owns(location.uri)
    assert await any_storage.load(location.uri) == b'{"alt": 550.5}'
    await any_storage.delete(location.uri)
    with pytest.raises(NotFoundError):
        await any_storage.load(location.uri)
    await any_storage.delete(location.uri)


async def test_the_same_bytes_stored_twice_are_two_objects_with_uuid7_names(any_storage: ObjectStorage) -> None:
    one, two = await any_storage.store(b"{}"), await any_storage.store(b"{}")
    assert one.uid != two.uid
    assert one.uri != two.uri
    assert [UUID(location.uid).version for location in (one, two)] == [7, 7]


@pytest.mark.parametrize("uri", ["http://127.0.0.1:1/x", "file:///etc/passwd", "memory:a/b", "s3://objects/big/x", ""])
async def test_another_storages_address_is_not_loaded(any_storage: ObjectStorage, uri: str) -> None:
    assert not any_storage.owns(uri)
    with pytest.raises(NotFoundError, match="not an address of this storage"):
        await any_storage.load(uri)


async def test_a_path_out_of_the_folder_is_not_an_address(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    inside = open_obstore((tmp_path / "inside").as_uri())
    for trick in ("/../secret", "/%2e%2e%2fsecret", "/..%2fsecret"):
        with pytest.raises(NotFoundError):
            await inside.load((tmp_path / "inside").as_uri() + trick)


async def test_a_presigned_address_needs_no_credentials(s3: str) -> None:
    location = await on_s3(s3).store(b"[1, 2, 3]", media_type="application/json")
    found = await Fetcher(FetchPolicy(allowed=("127.0.0.0/8",))).fetch(location.uri)
    assert (found.content, found.content_type) == (b"[1, 2, 3]", "application/json")
    assert "X-Amz-Signature=" in location.uri
    assert "X-Amz-Expires=604800" in location.uri  # seven days
    assert "secret" not in location.uri


async def test_a_public_base_replaces_presigning(s3: str) -> None:
    public = on_s3(s3, base="https://cdn.example/objects/")
    location = await public.store(b"1")
    assert location.uri == f"https://cdn.example/objects/{location.uid}"
    assert await public.load(location.uri) == b"1"


async def test_the_time_to_live_of_an_address_can_be_chosen(s3: str) -> None:
    signing = on_s3(s3)
    short = ObstoreStorage(signing.backend, ttl=60 * SECOND)
    assert "X-Amz-Expires=60&" in (await short.store(b"1")).uri


async def test_a_store_that_does_not_answer_is_unavailable() -> None:
    nowhere = on_s3("http://127.0.0.1:9", retry_config={"max_retries": 0, "retry_timeout": timedelta(0)})
    with pytest.raises(UnavailableError, match="the store fails"):
        await nowhere.store(b"1")


async def test_a_bucket_that_is_not_there_is_named(s3: str) -> None:
    missing = open_obstore(
        "s3://nobucket", endpoint=s3, access_key_id="key", secret_access_key="secret", region="us-east-1",
        client_options={"allow_http": True},
    )  # fmt: skip
    with pytest.raises(NotFoundError):
        await missing.store(b"1")


async def test_an_object_larger_than_may_be_fetched_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "FETCH_BYTES", 10)
    small = open_obstore("memory:")
    location = await small.store(b"x" * 11)
    with pytest.raises(RefusedError) as refused:
        await small.load(location.uri)
    assert refused.value.reason is Reason.OVERSIZE


def test_a_store_without_addresses_must_be_told_where_its_files_are_served() -> None:
    with pytest.raises(UsageError, match="cannot presign"):
        ObstoreStorage(MemoryStore())


async def test_an_object_in_a_folder_can_be_read_by_any_tool(tmp_path: Path) -> None:
    location = await open_obstore(tmp_path.as_uri()).store(b"{}")
    assert location.uri == (tmp_path / location.uid).as_uri()
    assert (tmp_path / location.uid).read_bytes() == b"{}"
    assert httpx.URL(location.uri).scheme == "file"
