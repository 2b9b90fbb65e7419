"""Whom a host lets in, and how much it forgives: limits on connections, rates per address, faults and bans.

Sans-I/O with the time as an argument. Everything remembered is bounded; the longest untouched is forgotten first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

import msgspec

from syncline.core import limits
from syncline.core.buckets import TokenBucket
from syncline.networks.decay import Decaying
from syncline.networks.host import Cut


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many, how fast, and how much is forgiven."""

    connections: int = limits.CONNECTIONS
    per_address: int = limits.CONNECTIONS_PER_ADDRESS
    per_peer: int = limits.CONNECTIONS_PER_PEER
    handshakes: int = limits.HANDSHAKES
    dials_per_second: float = limits.DIALS_PER_ADDRESS
    dials_burst: float = limits.DIALS_PER_ADDRESS_BURST
    faults: float = limits.FAULTS_FORGIVEN
    ban_seconds: float = limits.BAN_SECONDS


class Guard:
    """The doorkeeper of one host."""

    def __init__(self, limits_: Limits) -> None:
        self.limits = limits_
        self.connections = 0
        self.handshakes = 0
        self.refused: Counter[Cut] = Counter()
        self._addresses: Counter[str] = Counter()
        self._peers: Counter[str] = Counter()
        self._rates: OrderedDict[str, TokenBucket] = OrderedDict()
        self._faults = Decaying(60.0, limits.ADDRESSES_WATCHED)
        self._bans: OrderedDict[str, float] = OrderedDict()

    def knock(self, address: str, now: float) -> Cut | None:
        """Somebody connects from an address: None lets it shake hands, otherwise why not."""
        for_strangers = self.limits.connections - self.limits.connections // limits.CONNECTIONS_OURS
        crowded = (
            self.connections + self.handshakes >= for_strangers
            or self.handshakes >= self.limits.handshakes
            or self._addresses[address] >= self.limits.per_address
            or self._rate(address, now).take(now) > 0
        )
        if crowded:
            return self._refuse(Cut.CROWDED)
        self._addresses[address] += 1
        self.handshakes += 1
        return None

    def shaken(self) -> None:
        """A handshake begun by `knock` is over, well or badly."""
        self.handshakes -= 1

    def left(self, address: str) -> None:
        """Whoever knocked from this address has gone."""
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]

    def enter(self, peer: str, now: float) -> Cut | None:
        """A peer has proven who it is: None lets it stay, otherwise why not."""
        if self.banned(peer, now):
            return self._refuse(Cut.BANNED)
        if self._peers[peer] >= self.limits.per_peer or self.connections >= self.limits.connections:
            return self._refuse(Cut.CROWDED)
        self._peers[peer] += 1
        self.connections += 1
        return None

    def exit(self, peer: str) -> None:
        """A connection let in by `enter` is over."""
        self.connections -= 1
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]

    def blame(self, peer: str, weight: float, now: float) -> bool:
        """Count faults of a peer; whether that was more than is forgiven."""
        return self._faults.add(peer, weight, now) > self.limits.faults

    def faults(self, peer: str, now: float) -> float:
        return self._faults.at(peer, now)

    def ban(self, peer: str, seconds: float, now: float) -> None:
        self._bans[peer] = now + seconds
        self._bans.move_to_end(peer)
        if len(self._bans) > limits.ADDRESSES_WATCHED:
            self._bans.popitem(last=False)

    def banned(self, peer: str, now: float) -> bool:
        until = self._bans.get(peer, 0.0)
        if until > now:
            return True
        self._bans.pop(peer, None)
        return False

    def _rate(self, address: str, now: float) -> TokenBucket:
        bucket = self._rates.get(address)
        if bucket is None:
            bucket = self._rates[address] = TokenBucket(self.limits.dials_per_second, self.limits.dials_burst, now)
            if len(self._rates) > limits.ADDRESSES_WATCHED:
                self._rates.popitem(last=False)
        self._rates.move_to_end(address)
        return bucket

    def _refuse(self, why: Cut) -> Cut:
        self.refused[why] += 1
        return why
