"""The lake's tables for the page: sizes, and the newest rows of one. Reads snapshots; the pipeline is not touched.

The lake's libraries are an extra; without them the routes say what to install.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from syncline.core.errors import MissingError, NotFoundError, UsageError
from syncline.core.limits import WEB_CELL_CHARACTERS, WEB_CELL_ITEMS
from syncline.core.ports import WebMount
from syncline.core.settings import Settings
from syncline.node.api import json_response

ROWS_MAX: Final = 200
NEWEST_FIRST: Final = ("received_at", "last_at", "opened_at", "seq", "serial", "last_lsn")


class Tables:
    """Answers for one lake, opened when first asked."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def listing(self, request: Request) -> Response:
        return json_response({"tables": await anyio.to_thread.run_sync(self._facts)})

    async def rows(self, request: Request) -> Response:
        text = request.query_params.get("limit", "50")
        if not (text.isascii() and text.isdigit()):
            raise UsageError(f"limit must be a number, not {text[:40]!r}")
        limit = min(int(text[:9]), ROWS_MAX)
        newest = functools.partial(self._newest, request.path_params["name"], limit)
        return json_response(await anyio.to_thread.run_sync(newest))

    def _facts(self) -> list[dict[str, Any]]:
        lake, tables = self._lake()
        from syncline.lake.maintain import table_facts

        return [
            {
                "name": facts.name,
                "rows": facts.rows,
                "files": facts.files,
                "bytes": facts.bytes,
                "version": facts.version,
                "doc": tables[facts.name].doc,
            }
            for facts in table_facts(lake, tables.values())
        ]

    def _newest(self, name: str, limit: int) -> dict[str, Any]:
        lake, tables = self._lake()
        if name not in tables:
            raise NotFoundError(f"there is no table {name[:80]!r}")
        from syncline.lake.maintain import table_facts
        from syncline.lake.query import Queries

        facts = table_facts(lake, [tables[name]])
        if not facts:
            raise NotFoundError(f"nothing has landed in {name} yet", hint="run `syncline lake run`")

        columns = tables[name].schema.names
        newest_by = next((column for column in NEWEST_FIRST if column in columns), None)
        order = f'ORDER BY "{newest_by}" DESC' if newest_by else ""
        with Queries(lake, [tables[name]]) as queries:
            answer = queries.ask(f'SELECT * FROM "{name}" {order} LIMIT {limit}')  # noqa: S608 - a known table's name
        rows = [[_shown(value) for value in row.values()] for row in answer.rows.to_pylist()]
        names = answer.rows.schema.names
        return {
            "table": name,
            "doc": tables[name].doc,
            "total": facts[0].rows,
            "newest_by": newest_by,
            "columns": names,
            "rows": rows,
        }

    def _lake(self) -> tuple[Any, dict[str, Any]]:
        try:
            from syncline.lake.roots import Lake
            from syncline.lake.stages import all_tables, built_in_stages
        except ImportError as error:
            raise MissingError(f"the lake needs a package: {error}", hint="pip install 'syncline[spark]'") from None
        return Lake.of(self._settings), all_tables(built_in_stages().values())


def mount(settings: Settings) -> WebMount:
    tables = Tables(settings)
    router = Router([Route("/", tables.listing), Route("/{name}", tables.rows)], redirect_slashes=False)
    return WebMount(prefix="/api/v1/tables", app=router, is_open=lambda path: False)


def _shown(value: Any) -> Any:
    """A value as a page shows it: bytes as hex, and of what is long only the beginning. A query gives all of it."""
    if isinstance(value, bytes):
        return _cut(value[: WEB_CELL_CHARACTERS // 2].hex(), 2 * len(value))
    if isinstance(value, str):
        return _cut(value[:WEB_CELL_CHARACTERS], len(value))
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value[:WEB_CELL_ITEMS]]
    if isinstance(value, dict):
        return {name: _shown(value[name]) for name in list(value)[:WEB_CELL_ITEMS]}
    return value


def _cut(text: str, whole: int) -> str:
    return text if len(text) == whole else f"{text}… ({whole - len(text)} more)"
