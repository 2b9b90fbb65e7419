"""How far the lake is behind a node's journal: kept, sealed, landed, and the age of what has not landed."""

from __future__ import annotations

from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from syncline.core.limits import WEB_LAG_RECORDS
from syncline.core.ports import WebMount
from syncline.core.settings import Settings
from syncline.node.api import json_response
from syncline.node.node import Node


class Lag:
    """Compares one journal with the log of the table `records`, which says what it holds of which journal."""

    def __init__(self, node: Node, lake: Settings) -> None:
        self._node, self._lake = node, lake
        # Of each protocol: what had landed when we looked, and the lsn up to which nothing of it was waiting then. So a
        # protocol that has fallen silent is not searched for through the whole journal again.
        self._clear: dict[str, tuple[int, int]] = {}
        self._lock = anyio.Lock()

    async def now(self, request: Request) -> Response:
        async with self._lock:
            return json_response(await anyio.to_thread.run_sync(self._answer))

    def _answer(self) -> dict[str, Any]:
        journal = self._node.journal
        newest, sealed = journal.newest(), journal.sealed()
        landed = self._landed()
        # Each protocol has its own chain of segments, so each is looked at for itself.
        waiting = {name: self._waiting(name, lsn, newest) for name, lsn in {**self._protocols(), **landed}.items()}
        behind = sum(found["records"] for found in waiting.values())
        oldest = min((found["oldest"] for found in waiting.values() if found["oldest"]), default=None)
        return {
            "epoch": journal.epoch,
            "newest": newest,
            "sealed": sealed,
            "unsealed_records": newest - sealed,
            "landed": landed,
            "not_landed": {name: found["records"] for name, found in waiting.items()},
            "not_landed_records": behind,
            "or_more": any(found["records"] >= WEB_LAG_RECORDS for found in waiting.values()),
            "behind_seconds": 0.0 if oldest is None else round((self._node.clock.now() - oldest) / 1e6, 3),
            "has_tables": bool(landed),
        }

    def _protocols(self) -> dict[str, int]:
        return dict.fromkeys(sorted(self._node.services), 0)

    def _waiting(self, protocol: str, landed: int, newest: int) -> dict[str, Any]:
        """Records of a protocol that have not landed (counted up to a cap), and when the oldest of them came."""
        known, clear = self._clear.get(protocol, (0, 0))
        after = max(landed, clear) if landed >= known else landed  # less than before: it is another lake
        count, first, oldest = self._node.journal.count_after(protocol, after, WEB_LAG_RECORDS)
        self._clear[protocol] = landed, newest if first is None else first - 1
        return {"records": count, "oldest": oldest}

    def _landed(self) -> dict[str, int]:
        """The newest lsn of each protocol that the lake holds of this journal."""
        try:
            from syncline.lake.deltas import open_delta
            from syncline.lake.landed import CHAIN_PREFIX, read_transactions
            from syncline.lake.roots import Lake
            from syncline.lake.tables import RECORDS
        except ImportError:
            return {}
        root = Lake.of(self._lake).table(RECORDS.name)
        delta = open_delta(root)
        if delta is None:
            return {}
        ours = f"{CHAIN_PREFIX}{self._node.key.peer_id}/{self._node.journal.epoch}/"
        found = read_transactions(root, delta.version())
        return {name.removeprefix(ours): lsn for name, lsn in found.items() if name.startswith(ours)}


def mount(node: Node, lake: Settings) -> WebMount:
    router = Router([Route("/", Lag(node, lake).now)], redirect_slashes=False)
    return WebMount(prefix="/api/v1/lag", app=router, is_open=lambda path: False)
