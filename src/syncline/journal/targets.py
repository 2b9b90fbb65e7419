"""Where segments go: a local folder, or an object store that many nodes share.

Once visible, a segment is whole, durable and never touched again. Which rows go into it is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from syncline.core.crash import crash_point
from syncline.core.errors import CorruptionError, UnavailableError, UsageError
from syncline.core.settings import SegmentSettings
from syncline.formats.segments import SegmentName
from syncline.journal.files import Files


class SegmentTarget(Protocol):
    """A place for segments. Paths are relative, as `SegmentName.path` gives them."""

    def publish(self, segments: dict[str, bytes]) -> None:
        """Make segments visible, one after the other; when this returns they are durable. Never overwrites one."""
        ...

    def discard(self, node: str, epoch: str) -> int:
        """Remove what a crash left half-made and invisible; the number of files removed."""
        ...

    def list(self, folder: str = "") -> Iterator[SegmentName]:
        """The visible segments, of one `protocol=…/date=…` folder or of all."""
        ...

    def read(self, path: str) -> bytes:
        """The bytes of a visible segment."""
        ...


class LocalTarget:
    """Segments in a folder. Half-made ones have a dot before their name, so that Spark overlooks them."""

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self.folder = folder
        self._files = files or Files()

    def publish(self, segments: dict[str, bytes]) -> None:
        try:
            self._publish(segments)
        except OSError as error:
            raise UnavailableError(f"segments cannot be written: {error}", about=str(self.folder)) from error

    def _publish(self, segments: dict[str, bytes]) -> None:
        temporary = {}
        for path, data in segments.items():
            final = self.folder / path
            if final.exists():
                raise CorruptionError("a segment of this name is already there", about=str(final))
            temporary[final] = final.with_name(f".{final.name}.tmp")
            self._files.make_folder(final.parent)
            self._files.write(temporary[final], data)
            crash_point("segment.after-write")
        for half_made in temporary.values():
            self._files.sync(half_made)
        crash_point("segment.after-sync")
        for final, half_made in temporary.items():
            self._files.rename(half_made, final)
            crash_point("segment.mid-siblings")
        crash_point("segment.after-rename")
        for folder in sorted({final.parent for final in temporary}):
            self._files.sync_folder(folder)

    def discard(self, node: str, epoch: str) -> int:
        found = list(self.folder.glob(f"protocol=*/date=*/.{node}-{epoch}-*.parquet.tmp"))
        for path in found:
            self._files.remove(path)
        return len(found)

    def list(self, folder: str = "") -> Iterator[SegmentName]:
        for path in sorted(self.folder.glob(f"{folder or 'protocol=*/date=*'}/*.parquet")):
            name = SegmentName.parse(path.relative_to(self.folder).as_posix())
            if name is not None:
                yield name

    def read(self, path: str) -> bytes:
        try:
            return (self.folder / path).read_bytes()
        except FileNotFoundError:
            raise CorruptionError("a segment is gone", about=str(self.folder / path)) from None
        except OSError as error:
            raise UnavailableError(f"a segment cannot be read: {error}", about=str(self.folder / path)) from error


class ObjectTarget:
    """Segments in an object store, where a put is atomic and refuses to overwrite."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def publish(self, segments: dict[str, bytes]) -> None:
        for path, data in segments.items():
            try:
                obstore.put(self.store, path, data, mode="create")
            except AlreadyExistsError:  # an earlier put got through although its answer was lost
                if self.read(path) != data:
                    raise CorruptionError("another segment of this name is already there", about=path) from None
            except (BaseError, OSError) as error:
                raise UnavailableError(f"the object store did not take a segment: {error}", about=path) from error
            crash_point("segment.mid-siblings")
        crash_point("segment.after-rename")

    def discard(self, node: str, epoch: str) -> int:
        return 0

    def list(self, folder: str = "") -> Iterator[SegmentName]:
        try:
            paths = [found["path"] for page in obstore.list(self.store, folder or None) for found in page]
        except (BaseError, OSError) as error:
            raise UnavailableError(f"the object store does not answer: {error}") from error
        for path in sorted(paths):
            name = SegmentName.parse(path)
            if name is not None:
                yield name

    def read(self, path: str) -> bytes:
        try:
            return bytes(obstore.get(self.store, path).bytes())
        except FileNotFoundError:
            raise CorruptionError("a segment is gone", about=path) from None
        except (BaseError, OSError) as error:
            raise UnavailableError(f"the object store does not answer: {error}", about=path) from error


def target_of(settings: SegmentSettings, folder: Path) -> SegmentTarget:
    """The target the settings name; `folder` is where segments go if they name none.

    An object store takes its credentials and endpoint from the environment, as its own tools do.
    """
    if not settings.url:
        return LocalTarget(folder)
    try:
        return ObjectTarget(from_url(settings.url))
    except (BaseError, ValueError) as error:
        raise UsageError(
            f"segments.url names no object store: {error}", hint="write s3://bucket/prefix, or leave it empty"
        ) from None
