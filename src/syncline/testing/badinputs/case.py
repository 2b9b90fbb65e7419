"""One named bad input: which requirement it breaks, the bytes, and the one answer it must get."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from syncline.core.record import Arrival
from syncline.core.verdict import Outcome, Reason


class Bad(msgspec.Struct, frozen=True, kw_only=True):
    """`judged` gives the record a node of ours would keep of it; for inputs that never become one, a made-up record."""

    protocol: str
    name: str
    reason: Reason
    judged: Callable[[], Arrival]
    outcome: Outcome = Outcome.REJECT
    raw: bytes | None = None  # None: no bytes are bad by themselves, it is what the node knows that makes them so
