"""The state of one subscriber's fetching: a feed for each node, a job for each publication, a question for each Interest."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from typing import Literal, NamedTuple

from syncline.core.limits import SVS_HINTS_PER_NODE
from syncline.formats.ndn.names import Name
from syncline.protocols.svs.wire.mapping import MappingEntry


class Rank(IntEnum):
    """How far a node is trusted to be real, and so which share of the window it has."""

    PROVEN = 0  # something validated came from it
    NEW = 1  # named by few others at once, or with a mapping of its own
    CROWD = 2  # named together with many unknown ones, as a liar would


class Feed:
    """What is known and wanted of one node.

    Numbers below `next`, and those in `ahead`, have been looked at; of them, the ones in `open` are not settled yet.
    """

    __slots__ = (
        "ahead", "doubted_until", "failed", "high", "hints", "jobs", "mappings", "next", "node", "open", "probe",
        "probe_old", "probing", "proven", "rank", "ready", "started",
    )  # fmt: skip

    def __init__(self, node: Name, rank: Rank, settled: int = 0) -> None:
        self.node = node
        self.rank = rank
        self.next = settled + 1
        self.high = settled
        self.ahead: set[int] = set()
        self.open: set[int] = set()
        self.jobs: dict[int, Job] = {}
        self.ready: deque[tuple[int, MappingEntry]] = deque()  # mapped and wanted, not asked for yet
        self.hints: dict[int, MappingEntry] = {}  # mappings that came with sync Interests
        self.mappings = 0  # mapping queries under way
        self.proven = 0  # the highest number something validated was received of
        self.probe: int | None = None  # a claim too far ahead to be believed without proof
        self.probe_old = False  # it was made before we had settled in
        self.probing = False
        self.doubted_until = 0.0
        self.started = settled > 0
        self.failed = False

    @property
    def settled(self) -> int:
        """Up to which number nothing is left to do."""
        return min(self.next, min(self.open, default=self.next)) - 1

    @property
    def busy(self) -> bool:
        return bool(self.next <= self.high or self.ready or (self.probe is not None and not self.probing))

    def hint(self, entry: MappingEntry) -> None:
        """Remember a mapping for when its number's turn comes."""
        if entry.seq >= self.next and entry.seq not in self.ahead:
            self.hints[entry.seq] = entry
            while len(self.hints) > SVS_HINTS_PER_NODE:
                del self.hints[next(iter(self.hints))]

    def pass_over(self) -> None:
        """Go on to the next number that has not been looked at."""
        self.next += 1
        while self.next in self.ahead:
            self.ahead.discard(self.next)
            self.next += 1


class Claim(NamedTuple):
    """A number of a node that a vector claimed and a mapping has proven."""

    feed: Feed
    seq: int
    old: bool


class Job:
    """One publication being fetched."""

    __slots__ = ("asked", "entry", "feed", "final", "hinted", "name", "parts", "seq", "size")

    def __init__(self, feed: Feed, seq: int, entry: MappingEntry | None, *, hinted: bool) -> None:
        self.feed = feed
        self.seq = seq
        self.entry = entry
        self.hinted = hinted  # the entry came with a sync Interest, so whoever has the sync key may have made it up
        self.name: Name | None = None
        self.final: int | None = None
        self.parts: dict[int, bytes] = {}
        self.asked = 0  # segments below this have been asked for
        self.size = 0

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
