"""A federation of relay servers in one process with a clock of its own: the real session code on simulated wires and disks.

Deterministic: the same seed and the same calls give the same trace. Wires keep order and have random delays; links can be
cut, servers killed (their disk survives) and started again. For tests, fault campaigns and experiments.
"""

from syncline.testing.relay.client import SimClient
from syncline.testing.relay.disk import MemoryDisk
from syncline.testing.relay.shapes import duplicates, lay_line, lay_random, lay_ring, topic_of
from syncline.testing.relay.world import Parcel, RelayWorld, SimServer

__all__ = [
    "MemoryDisk",
    "Parcel",
    "RelayWorld",
    "SimClient",
    "SimServer",
    "duplicates",
    "lay_line",
    "lay_random",
    "lay_ring",
    "topic_of",
]
