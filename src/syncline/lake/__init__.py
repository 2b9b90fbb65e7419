"""The Spark half: sealed segments become Delta tables, exactly once, and SQL answers questions about them.

Names are looked up when asked for, so that a command which needs DuckDB alone does not import Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncline.lake.objects import object_at
    from syncline.lake.pipeline import Pipeline
    from syncline.lake.query import Queries, QueryLimits
    from syncline.lake.roots import Lake
    from syncline.lake.session import SessionOptions, start_session
    from syncline.lake.tables import Table

_HOMES = {
    "Lake": "roots",
    "Pipeline": "pipeline",
    "Queries": "query",
    "QueryLimits": "query",
    "SessionOptions": "session",
    "object_at": "objects",
    "start_session": "session",
}

__all__ = ["Lake", "Pipeline", "Queries", "QueryLimits", "SessionOptions", "every_table", "object_at", "start_session"]


def every_table() -> list[Table]:
    """Every table the lake makes."""
    from syncline.lake.stages import all_tables, built_in_stages

    return list(all_tables(built_in_stages().values()).values())


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"syncline.lake.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
