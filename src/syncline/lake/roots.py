"""Where the lake's things are: segments, tables and checkpoints, each a URL, and the file system that reaches it.

The one seam for object storage: everything else asks a `Root` and never joins paths by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow.fs as pafs

from syncline.core.errors import UsageError
from syncline.core.settings import Settings

QUARANTINE: Final = ".quarantine"
EXCHANGE: Final = "_exchange"


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
        store, path = pafs.FileSystem.from_uri(self.url)
        return pafs.SubTreeFileSystem(path, store)


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
        return cls(root.below("segments"), root.below("lake"), root.below("checkpoints"), root.below("blobs"))

    @classmethod
    def of(cls, settings: Settings) -> Lake:
        """The places the settings name."""
        segments = Root.at(settings.segments.url or settings.segments_folder)
        return cls(
            segments,
            Root.at(settings.lake.url or settings.lake_folder),
            Root.at(settings.lake.checkpoints or settings.checkpoints_folder),
            Root.at(settings.data / "blobs") if segments.is_local else segments.below("blobs"),
        )

    def table(self, name: str) -> Root:
        return self.tables.below(name)
