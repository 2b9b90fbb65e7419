"""The satellites a node follows: the newest mean elements of each, and where they put it now.

Read from the node's own accepted space data, as it comes in; propagation happens here, so that the page only draws.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from syncline.core.errors import DecodeError, UsageError
from syncline.core.limits import WEB_SATELLITES, WEB_TRACKS
from syncline.core.ports import RecordQuery, WebMount
from syncline.core.record import Record
from syncline.node.api import json_response
from syncline.node.node import Node
from syncline.protocols.sds.orbits import Orbit

PAGE: Final = 2_000
MINUTE: Final = 60_000_000
FRESH: Final = 45 * 24 * 60 * MINUTE  # beyond that SGP4 says little about where something is
TRACK_POINTS: Final = 49


class Followed(msgspec.Struct, frozen=True):
    """One satellite: its newest elements, and the record that says so."""

    number: int
    name: str
    orbit: Orbit
    record: Record


class Satellites:
    """Keeps up with a node's records whenever it is asked."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._followed: OrderedDict[int, Followed] = OrderedDict()
        self._after: int | None = None
        self._lock = anyio.Lock()

    async def now(self, request: Request) -> Response:
        async with self._lock:
            return json_response(await anyio.to_thread.run_sync(self._answer))

    def _answer(self) -> dict[str, Any]:
        self._catch_up()
        now = self._node.clock.now()
        fresh = [each for each in self._followed.values() if abs(now - each.orbit.epoch) <= FRESH]
        placed = [(each, found) for each in fresh if (found := _shown(each, now)) is not None]
        for each, found in placed[-WEB_TRACKS:]:
            found["track"] = _track(each.orbit, now)
        shown = sorted((found for _, found in placed), key=lambda found: (found["name"], found["number"]))
        return {"now": now, "satellites": shown, "too_old": len(self._followed) - len(fresh)}

    def _catch_up(self) -> None:
        """Take in what came since the last look; at the first, the newest that there is."""
        journal = self._node.journal
        query = RecordQuery(protocol="sds", verdict="accept", limit=PAGE)
        if self._after is None:
            newest = journal.newest()
            found = journal.read(msgspec.structs.replace(query, before=newest + 1, descending=True))
            self._take(found[::-1])
            self._after = newest
            return
        while found := journal.read(msgspec.structs.replace(query, after=self._after)):
            self._take(found)
            self._after = found[-1].lsn

    def _take(self, records: list[Record]) -> None:
        for record in records:
            if not record.topic.endswith("/OMM"):
                continue
            elements = self._node.decoded(record).get("data", {})
            number = elements.get("NORAD_CAT_ID")
            try:
                orbit = Orbit(elements)
            except (UsageError, DecodeError):
                continue  # a valid message need not be complete enough to propagate
            known = self._followed.get(number)
            if known is None or orbit.epoch >= known.orbit.epoch:
                self._followed[number] = Followed(number, str(elements.get("OBJECT_NAME") or number), orbit, record)
                self._followed.move_to_end(number)
            if len(self._followed) > WEB_SATELLITES:
                self._followed.popitem(last=False)


def _shown(each: Followed, now: int) -> dict[str, Any] | None:
    ground = each.orbit.ground(now)
    if ground is None:
        return None
    return {
        "number": each.number,
        "name": each.name,
        "epoch": each.orbit.epoch,
        "publisher": each.record.publisher,
        "record": {"epoch": each.record.epoch, "lsn": each.record.lsn},
        "period_minutes": round(each.orbit.period, 2),
        **msgspec.to_builtins(ground),
    }


def _track(orbit: Orbit, now: int) -> list[tuple[float, float]]:
    """Longitude and latitude over the next revolution."""
    step = orbit.period * MINUTE / (TRACK_POINTS - 1)
    points = (orbit.ground(round(now + step * index)) for index in range(TRACK_POINTS))
    return [(round(point.longitude, 2), round(point.latitude, 2)) for point in points if point is not None]


def mount(node: Node) -> WebMount:
    satellites = Satellites(node)
    router = Router([Route("/", satellites.now)], redirect_slashes=False)
    return WebMount(prefix="/api/v1/satellites", app=router, is_open=lambda path: False)
