"""What commands share: where settings come from, and the options every command has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from syncline.core.errors import UsageError

if TYPE_CHECKING:
    from syncline.core.settings import Settings

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs; logs stay on stderr")]
NodeUrl = Annotated[
    str | None, typer.Option("--node", metavar="URL", help="A running node's API (default: the one of the settings)")
]


class Invocation(msgspec.Struct, frozen=True):
    """How this run of the program was called."""

    config: Path | None = None
    overrides: tuple[str, ...] = ()

    def settings(self, *, need_file: bool = False, flags: dict[str, Any] | None = None) -> Settings:
        """The settings in force; without a file, the defaults, unless the command needs a node's folder."""
        from syncline.core.settings import FILE_NAME
        from syncline.node.plugins import load_settings

        file = self.config or Path(FILE_NAME)
        found = file if (self.config or need_file or file.exists()) else None
        pairs = dict(pair(text) for text in self.overrides)
        return load_settings(found, flags={**pairs, **(flags or {})})


def invocation(context: typer.Context) -> Invocation:
    found = context.find_object(Invocation)
    return found if found is not None else Invocation()


def pair(text: str, option: str = "--set") -> tuple[str, str]:
    """KEY=VALUE in two."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{option} takes KEY=VALUE, not {text!r}", hint="for example --set api.port=0")
    return name.strip(), value.strip()


def need_lake() -> None:
    """Say in one line what to install, instead of failing at some import."""
    from importlib.util import find_spec

    from syncline.core.errors import MissingError

    if missing := [name for name in ("deltalake", "duckdb", "pyspark") if find_spec(name) is None]:
        raise MissingError(f"the lake needs {', '.join(missing)}", hint="run `pip install 'syncline[spark]'`")
