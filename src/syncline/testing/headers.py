"""Invented chains of block headers that link properly, for tests, simulation and the demo."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Final

from syncline.protocols.shrex.wire.header import Header

BEGINNING: Final = datetime(2026, 3, 1, tzinfo=UTC)
BLOCK_SECONDS: Final = 6


def chain(
    count: int, *, first: int = 1, after: Header | None = None, seed: str = "", chain_id: str = "syncline-demo-1"
) -> list[Header]:
    """So many headers, each linked to the one before; `after` continues a chain."""
    first = after.height + 1 if after is not None else first
    rows = [
        (
            height,
            f"{BEGINNING + timedelta(seconds=BLOCK_SECONDS * height):%Y-%m-%dT%H:%M:%SZ}",
            _digest(f"data {seed} {height}"),
        )
        for height in range(first, first + count)
    ]
    return linked(rows, after=after, chain_id=chain_id)


def demo_headers() -> list[Header]:
    """The sixty headers of the demo, from height 7,000,000."""
    text = files("syncline.testing").joinpath("data/block-headers-demo.csv").read_text()
    rows = [
        (int(row["height"]), row["time"], bytes.fromhex(row["data_hash"])) for row in csv.DictReader(text.splitlines())
    ]
    return linked(rows)


def linked(
    rows: Iterable[tuple[int, str, bytes]], *, after: Header | None = None, chain_id: str = "syncline-demo-1"
) -> list[Header]:
    """Headers with these heights, times and data hashes, each naming the hash of the one before."""
    headers: list[Header] = []
    previous = after.hash if after is not None else b""
    for height, time, data_hash in rows:
        header = Header(
            block_version=11,
            app_version=3,
            chain_id=chain_id,
            height=height,
            time=time,
            last_block_hash=previous,
            last_parts_total=1 if previous else 0,
            last_parts_hash=_digest(f"parts {height}") if previous else b"",
            last_commit_hash=_digest(f"commit {height}"),
            data_hash=data_hash,
            validators_hash=_digest("validators"),
            next_validators_hash=_digest("validators"),
            consensus_hash=_digest("consensus"),
            app_hash=_digest(f"app {height}"),
            last_results_hash=_digest(f"results {height}"),
            evidence_hash=hashlib.sha256().digest(),
            proposer_address=_digest("proposer")[:20],
        )
        headers.append(header)
        previous = header.hash
    return headers


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
