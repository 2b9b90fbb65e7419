"""The package as one archive, so that executors on other machines run exactly the code of the driver.

Third-party packages (pyarrow, msgspec, numpy, …) are the cluster's own business: docs/lake.md says how to give them.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import syncline


def package_archive(folder: Path) -> Path:
    """A zip of the `syncline` package in `folder`, ready for `SparkContext.addPyFile`."""
    source = Path(syncline.__file__).parent
    target = folder / "syncline.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(source.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, Path("syncline") / file.relative_to(source))
    return target
