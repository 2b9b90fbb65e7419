"""The dashboard: static files without a build step, and the routes only a page needs. Data comes from the node's API."""

from __future__ import annotations

from syncline.core.ports import WebMount
from syncline.core.settings import Settings


def mounts(settings: Settings) -> list[WebMount]:
    """All that the dashboard adds to a node's HTTP server."""
    from syncline.web import pages, tables

    return [tables.mount(settings), pages.mount()]
