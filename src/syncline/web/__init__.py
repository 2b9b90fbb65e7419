"""The dashboard: static files without a build step, and the routes only a page needs. Data comes from the node's API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.core.ports import WebMount

if TYPE_CHECKING:
    from syncline.core.settings import Settings
    from syncline.node.node import Node


def mounts(node: Node, lake: Settings | None = None) -> list[WebMount]:
    """All that the dashboard adds to a node's HTTP server. The lake shown is the node's own, unless another is named."""
    from syncline.web import lag, openapi, pages, satellites, tables

    place = lake or node.settings
    return [
        tables.mount(place),
        lag.mount(node, place),
        satellites.mount(node),
        pages.mount({openapi.PATH: openapi.document(), openapi.REASONS: openapi.reasons()}),
    ]
