"""The state of one subscriber's fetching: a feed for each node, a job for each publication, a question for each Interest."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Literal

from syncline.core.limits import SVS_HINTS_PER_NODE
from syncline.formats.ndn.names import Name
from syncline.protocols.svs.wire.mapping import MappingEntry


class Feed:
    """What is known and wanted of one node.

    Numbers below `next` have been looked at; of those, the ones in `open` are not settled yet.
    """

    __slots__ = (
        "doubted_until", "failed", "high", "hints", "jobs", "mappings", "next", "node", "open", "probe", "probing",
        "proven", "queued", "ready", "started",
    )  # fmt: skip

    def __init__(self, node: Name, settled: int = 0) -> None:
        self.node = node
        self.next = settled + 1
        self.high = settled
        self.open: set[int] = set()
        self.jobs: dict[int, Job] = {}
        self.ready: deque[tuple[int, MappingEntry]] = deque()  # mapped and wanted, not asked for yet
        self.hints: dict[int, MappingEntry] = {}  # mappings that came with sync Interests
        self.mappings = 0  # mapping queries under way
        self.proven = 0  # the highest number something validated was received of
        self.probe: int | None = None  # a claim too far ahead to be believed without proof
        self.probing = False
        self.doubted_until = 0.0
        self.started = settled > 0
        self.failed = False
        self.queued = False  # whether it stands in a queue for its turn

    @property
    def settled(self) -> int:
        """Up to which number nothing is left to do."""
        return min(self.open, default=self.next) - 1

    @property
    def busy(self) -> bool:
        return bool(self.next <= self.high or self.ready or (self.probe is not None and not self.probing))

    def hint(self, entry: MappingEntry) -> None:
        """Remember a mapping for when its number's turn comes."""
        if entry.seq >= self.next:
            self.hints[entry.seq] = entry
            while len(self.hints) > SVS_HINTS_PER_NODE:
                del self.hints[next(iter(self.hints))]


class Job:
    """One publication being fetched."""

    __slots__ = ("asked", "entry", "feed", "final", "name", "parts", "refetches", "seq", "size")

    def __init__(self, feed: Feed, seq: int, entry: MappingEntry | None) -> None:
        self.feed = feed
        self.seq = seq
        self.entry = entry
        self.name: Name | None = None
        self.final: int | None = None
        self.parts: dict[int, bytes] = {}
        self.asked = 0  # segments below this have been asked for
        self.size = 0
        self.refetches = 0

    @property
    def complete(self) -> bool:
        return self.final is not None and len(self.parts) == self.final + 1

    @property
    def payload(self) -> bytes:
        """SVS-PS: segments are put together in the order of their numbers."""
        return b"".join(self.parts[index] for index in sorted(self.parts))


class Question:
    """One Interest, from its first sending until it is settled."""

    __slots__ = ("feed", "high", "job", "kind", "low", "refused", "segment", "spans", "token", "tries")

    def __init__(
        self,
        token: int,
        kind: Literal["mapping", "probe", "outer"],
        feed: Feed,
        low: int,
        high: int,
        job: Job | None = None,
        segment: int | None = None,
    ) -> None:
        self.token = token
        self.kind = kind
        self.feed = feed
        self.low = low
        self.high = high
        self.job = job
        self.segment = segment
        self.tries = 0  # times nobody answered
        self.refused = 0  # times an answer did not validate
        self.spans: Iterator[float] | None = None
