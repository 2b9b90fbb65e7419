"""Pending Interests (PIT) and the nonces of those that are gone, both bounded, with expiry in coarse steps of time.

What to forward and what to answer is decided by the forwarder; here is only who waits for what, and since when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from syncline.core.limits import NDN_DEAD_NONCE_SECONDS, NDN_DEAD_NONCES
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name
from syncline.formats.ndn.packets import Data, Interest

STEP: Final = 0.064  # seconds; entries expire up to this late


class Waiting:
    """A face that wants the Data."""

    __slots__ = ("expires", "interest", "nonce", "token", "wire")

    def __init__(self, interest: Interest, wire: bytes, nonce: bytes, token: bytes | None, expires: float) -> None:
        self.interest = interest
        self.wire = wire  # as it is sent on
        self.nonce = nonce
        self.token = token
        self.expires = expires


class Asked:
    """A face the Interest was sent to."""

    __slots__ = ("at", "nack", "nonce")

    def __init__(self, nonce: bytes, at: float) -> None:
        self.nonce = nonce
        self.at = at
        self.nack: int | None = None


class Pending:
    """One pending Interest: name, selectors and hints, who waits, who was asked."""

    __slots__ = ("asked", "can_be_prefix", "expires", "hints", "must_be_fresh", "name", "step", "waiting")

    def __init__(self, interest: Interest) -> None:
        self.name = interest.name
        self.can_be_prefix = interest.can_be_prefix
        self.must_be_fresh = interest.must_be_fresh
        self.hints = interest.hints
        self.waiting: dict[int, Waiting] = {}
        self.asked: dict[int, Asked] = {}
        self.expires = 0.0
        self.step = -1  # when its expiry is looked at

    def knows_nonce(self, nonce: bytes, face: int) -> bool:
        """Whether this nonce came from, or went to, another face: then the Interest has looped."""
        own = self.waiting.get(face)
        if own is not None and own.nonce == nonce:
            return False  # the same face asks again
        return any(each.nonce == nonce for each in self.waiting.values()) or any(
            each.nonce == nonce for each in self.asked.values()
        )


class PendingTable:
    """All pending Interests."""

    def __init__(self) -> None:
        self._by_name: dict[Name, list[Pending]] = {}
        self._prefix_lengths: Counter[int] = Counter()
        self._steps: dict[int, dict[Pending, None]] = {}  # in the order they were added
        self._digests = 0  # how many of them name an implicit digest
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, interest: Interest) -> Pending | None:
        """The entry of the same Interest, whoever sent it."""
        for entry in self._by_name.get(interest.name, ()):
            if (
                entry.can_be_prefix is interest.can_be_prefix
                and entry.must_be_fresh is interest.must_be_fresh
                and entry.hints == interest.hints
            ):
                return entry
        return None

    def add(self, interest: Interest) -> Pending:
        entry = Pending(interest)
        self._by_name.setdefault(entry.name, []).append(entry)
        self._count += 1
        if entry.can_be_prefix:
            self._prefix_lengths[len(entry.name)] += 1
        self._digests += names_digest(entry.name)
        return entry

    def keep_until(self, entry: Pending, expires: float) -> None:
        """Let the entry live until then, if it does not already."""
        if expires > entry.expires:
            if not entry.expires:
                self._schedule(entry, expires)
            entry.expires = expires  # a later one is noticed when its first step comes

    def remove(self, entry: Pending) -> None:
        self._unschedule(entry)
        same = self._by_name[entry.name]
        same.remove(entry)
        if not same:
            del self._by_name[entry.name]
        self._count -= 1
        if entry.can_be_prefix:
            self._prefix_lengths[len(entry.name)] -= 1
            if not self._prefix_lengths[len(entry.name)]:
                del self._prefix_lengths[len(entry.name)]
        self._digests -= names_digest(entry.name)

    def matches(self, data: Data) -> Iterator[Pending]:
        """The entries that this Data satisfies."""
        name = data.name
        yield from tuple(self._by_name.get(name, ()))
        for length in tuple(self._prefix_lengths):
            if length < len(name):
                for entry in tuple(self._by_name.get(name[:length], ())):
                    if entry.can_be_prefix:
                        yield entry
        if self._digests:
            full = name + bytes((t.IMPLICIT_DIGEST, 32)) + data.implicit_digest
            yield from tuple(self._by_name.get(full, ()))

    def expired(self, now: float) -> list[Pending]:
        """Remove and return the entries whose time has passed."""
        gone: list[Pending] = []
        step_now = int(now / STEP)
        for step in [step for step in self._steps if step < step_now]:
            for entry in tuple(self._steps[step]):
                if entry.expires > now:
                    self._unschedule(entry)
                    self._schedule(entry, entry.expires)
                else:
                    self.remove(entry)
                    gone.append(entry)
        return gone

    def _schedule(self, entry: Pending, expires: float) -> None:
        entry.step = int(expires / STEP)
        self._steps.setdefault(entry.step, {})[entry] = None

    def _unschedule(self, entry: Pending) -> None:
        same = self._steps.get(entry.step)
        if same is not None:
            same.pop(entry, None)
            if not same:
                del self._steps[entry.step]


class DeadNonces:
    """Remembers which (name, nonce) passed recently, so that an Interest that comes round again is noticed.

    Two generations of bounded size: within a generation's time nothing is forgotten unless it overflows.
    """

    def __init__(self) -> None:
        self._new: set[bytes] = set()
        self._old: set[bytes] = set()
        self._turn = 0.0

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    def add(self, name: Name, nonce: bytes, now: float) -> None:
        if now >= self._turn or len(self._new) >= NDN_DEAD_NONCES:
            self._old, self._new = self._new, set()
            self._turn = now + NDN_DEAD_NONCE_SECONDS
        self._new.add(name + nonce)

    def __contains__(self, pair: bytes) -> bool:
        return pair in self._new or pair in self._old


def names_digest(name: Name) -> bool:
    """Whether a name ends with an implicit digest."""
    return len(name) >= 34 and name[-34] == t.IMPLICIT_DIGEST and name[-33] == 32
