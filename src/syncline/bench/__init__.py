"""Benchmarks: each scenario is a module with `run(scale) -> dict`, a ratio against a named peer measured in one run."""

from typing import Final

SCENARIOS: Final = (
    "decode",
    "decode-frames",
    "journal",
    "flood",
    "gossip",
    "land",
    "ndn",
    "query",
    "rebuild",
    "relay",
    "sdsp",
    "startup",
    "svs",
    "verify",
)
