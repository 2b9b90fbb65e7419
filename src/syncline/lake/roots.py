"""Where the lake's things are: segments, tables and checkpoints, each a URL, and the file system that reaches it.

The one seam for object storage: everything else asks a `Root` and never joins paths by itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import pyarrow.fs as pafs

from syncline.core import limits
from syncline.core.errors import UsageError
from syncline.core.settings import Settings

QUARANTINE: Final = ".quarantine"
EXCHANGE: Final = "_exchange"
BLOBS: Final = "blobs"  # in a bucket they are below the segments


class Root(msgspec.Struct, frozen=True):
    """A folder by URL (or plain path), with what its store needs to be reached."""

    url: str
    options: Mapping[str, str] = {}

    @classmethod
    def at(cls, place: str | Path) -> Root:
        """A local folder or a URL."""
        text = str(place)
        return cls(text.rstrip("/") if "://" in text else str(Path(text).absolute()))

    @property
    def is_local(self) -> bool:
        return "://" not in self.url

    @property
    def path(self) -> Path:
        """The local folder. Raises UsageError for object storage."""
        if not self.is_local:
            raise UsageError("this needs a local or shared path", about=self.url)
        return Path(self.url)

    def below(self, *parts: str) -> Root:
        return Root("/".join((self.url, *parts)), self.options)

    def filesystem(self) -> Any:
        """A pyarrow file system whose paths are relative to this folder."""
        if self.is_local:
            self.path.mkdir(parents=True, exist_ok=True)
            return pafs.SubTreeFileSystem(self.url, pafs.LocalFileSystem())
        store, path = _object_store(self.url)
        return pafs.SubTreeFileSystem(path, store)


def make_folder(filesystem: Any, path: str) -> None:
    """Make a folder where there are folders: object stores have only names, and would keep an empty object."""
    if isinstance(filesystem.base_fs, pafs.LocalFileSystem):
        filesystem.create_dir(path, recursive=True)


def _object_store(url: str) -> tuple[Any, str]:
    """The store a URL names and the path in it. Its endpoint and credentials are the environment's (docs/lake.md)."""
    if not url.startswith("s3://"):
        found: tuple[Any, str] = pafs.FileSystem.from_uri(url)
        return found
    variables = os.environ
    endpoint = variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL", "")
    region = variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION", "us-east-1")
    return _s3(endpoint, region), url.removeprefix("s3://")


@lru_cache(limits.LAKE_STORES)
def _s3(endpoint: str, region: str) -> Any:
    place = urlsplit(endpoint)
    where = {"endpoint_override": place.netloc, "scheme": place.scheme} if endpoint else {}
    return pafs.S3FileSystem(region=region, allow_bucket_creation=False, **where)


class Lake(msgspec.Struct, frozen=True):
    """The places one pipeline works with."""

    segments: Root
    tables: Root
    checkpoints: Root
    blobs: Root

    @classmethod
    def below(cls, data: str | Path) -> Lake:
        """The usual places below a data folder."""
        root = Root.at(data)
        return cls(root.below("segments"), root.below("lake"), root.below("checkpoints"), root.below(BLOBS))

    @classmethod
    def of(cls, settings: Settings) -> Lake:
        """The places the settings name."""
        segments = Root.at(settings.segments.url or settings.segments_folder)
        return cls(
            segments,
            Root.at(settings.lake.url or settings.lake_folder),
            Root.at(settings.lake.checkpoints or settings.checkpoints_folder),
            Root.at(settings.data / BLOBS) if segments.is_local else segments.below(BLOBS),
        )

    def table(self, name: str) -> Root:
        return self.tables.below(name)
