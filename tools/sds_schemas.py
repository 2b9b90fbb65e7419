"""Writes src/syncline/protocols/sds/schemas/*.fbs anew from an unpacked npm package `spacedatastandards.org`.

Only names, types, numbers and defaults are taken over; upstream comments are not. A test compares the checked-in files
with what this makes of the package the interop tests install.

    python tools/sds_schemas.py tests/interop/node_modules/spacedatastandards.org
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import msgspec

from syncline.formats.flatbuffers import fbs

TARGET = Path(__file__).resolve().parent.parent / "src" / "syncline" / "protocols" / "sds" / "schemas"


def made_from(package: Path) -> dict[str, str]:
    """The text of every schema file, by file name."""
    version = json.loads((package / "package.json").read_text())["version"].partition("+")[0]
    made = {}
    for source in sorted((package / "schema").glob("*/main.fbs")):
        name = source.parent.name
        document = fbs.parse(source.read_text())
        includes = tuple(re.sub(r"^\.\./(\w+)/main\.fbs$", r"\1.fbs", path) for path in document.includes)
        note = (
            f"{name} of the Space Data Standards {version} (Apache-2.0), field list only.\n"
            "Made by tools/sds_schemas.py; do not edit."
        )
        made[f"{name}.fbs"] = fbs.text_of(msgspec.structs.replace(document, includes=includes), note)
    return made


def main() -> None:
    for name, text in made_from(Path(sys.argv[1])).items():
        (TARGET / name).write_text(text)


if __name__ == "__main__":
    main()
