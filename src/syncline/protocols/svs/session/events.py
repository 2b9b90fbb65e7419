"""What goes into and comes out of a group's conversation: options, publications, failures and actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from syncline.core.limits import SVS_MAPPING_BATCH, SVS_WINDOW
from syncline.core.retry import Backoff
from syncline.core.verdict import Verdict
from syncline.formats.ndn.names import Name, text
from syncline.protocols.svs.wire.mapping import MappingEntry

Step = Literal["mapping", "outer", "inner", "segments"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a member of a group behaves. Times are seconds."""

    periodic: float = 30.0  # between sync Interests when nothing happens
    jitter: float = 0.1  # share by which that varies
    suppression: float = 0.2  # longest wait before telling somebody who is behind
    decay: float = 10.0  # how strongly short waits are avoided
    hellos: int = 3  # sync Interests sent when joining, while nobody has told us anything
    hello: float = 0.5  # between them
    window: int = SVS_WINDOW
    mapping_batch: int = SVS_MAPPING_BATCH
    lifetime: float = 2.0  # of an Interest for data or mappings
    retries: int | None = 3  # None: for ever
    backoff: Backoff = Backoff(first=0.1, longest=10.0)
    refetches: int = 1  # times a packet that does not verify is asked for again
    backlog: int | None = 1_000  # newest publications of a node fetched when it is first heard of; None: all
    from_now: bool = False  # nothing that was published before we joined
    settle: float = 1.0  # how long after joining a number counts as one from before
    max_age: float | None = None  # publications whose mapping says they are older are not fetched


class Publication(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One publication, whole and validated."""

    group: Name
    publisher: Name
    seq: int
    name: Name
    payload: bytes
    entry: MappingEntry | None = None  # its mapping, where that was fetched

    @property
    def topic(self) -> str:
        """The application name as text."""
        return text(self.name)

    @property
    def node(self) -> str:
        """The publisher's name as text."""
        return text(self.publisher)

    @property
    def published_at(self) -> int | None:
        """Microseconds since 1970, if the publisher said so in the mapping."""
        return None if self.entry is None else self.entry.timestamp


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why publications `low` to `high` of a node did not come, or came with something that was refused.

    `final` is False while another try is under way. `verdict` is None when nobody answered.
    """

    publisher: Name
    low: int
    high: int
    step: Step
    detail: str
    verdict: Verdict | None = None
    final: bool = True

    @property
    def node(self) -> str:
        return text(self.publisher)


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """Publications that are not fetched, because they are older than what was asked for."""

    publisher: Name
    low: int
    high: int
    reason: Literal["backlog", "from_now", "max_age", "no_subscription", "filtered"]


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Send an Interest; answer with `Session.answered(token, …)`."""

    token: int
    name: Name
    can_be_prefix: bool
    must_be_fresh: bool
    lifetime: float


class Judge(msgspec.Struct, frozen=True, gc=False):
    """Judge (and keep) a packet; answer with `Session.judged(token, …)`."""

    token: int
    wire: bytes
    face: int  # where it came from


class Announce(msgspec.Struct, frozen=True, gc=False):
    """Sign and send a sync Interest with these parameters."""

    parameters: bytes


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Hand a publication to these subscriptions; then call `Session.delivered()`."""

    publication: Publication
    subscriptions: tuple[int, ...]


Action = Ask | Judge | Announce | Deliver | Failure | Skipped
Filter = Callable[[MappingEntry], bool]
