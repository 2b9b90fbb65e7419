"""The peer manager: which peers have announced a block's data truly, and whom to ask for it next.

Sans-I/O with the time as an argument. The peer credited is the one that forwarded a notification to us, not its author:
it is the one we are connected to. Waiting for a peer, and disconnecting one, are the service's.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal

import msgspec

from syncline.core.limits import (
    SHREX_BLACKLISTED_HASHES,
    SHREX_BLACKLISTED_PEERS,
    SHREX_COOLDOWN_SECONDS,
    SHREX_GC_SECONDS,
    SHREX_NODES,
    SHREX_POOL_PEERS,
    SHREX_POOLS,
)
from syncline.protocols.shrex.session.pool import Pool
from syncline.protocols.shrex.wire.result import Outcome

Source = Literal["pool", "nodes"]
AHEAD_POOLS: Final = 100  # pools that requests may open above the newest header


class PeerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How the manager treats peers."""

    cooldown_seconds: float = SHREX_COOLDOWN_SECONDS
    window: int = SHREX_POOLS  # heights below the newest header whose pools are kept
    gc_seconds: float = SHREX_GC_SECONDS
    blacklist_peers: bool = False


class Offer(msgspec.Struct, frozen=True):
    """A peer to ask for a block's data, and where it was found. To be answered with `done`."""

    peer: str
    data_hash: bytes
    height: int
    source: Source


class _HashPool:
    """Who announced one data hash."""

    def __init__(self, height: int) -> None:
        self.height = height
        self.peers = Pool(SHREX_POOL_PEERS)


class PeerManager:
    """Pools by data hash, the pool of all that ever announced truly, and blacklists."""

    def __init__(self, limits: PeerLimits | None = None) -> None:
        self.limits = limits or PeerLimits()
        self.nodes = Pool(SHREX_NODES)
        self._pools: dict[bytes, _HashPool] = {}
        self._bad_hashes: OrderedDict[bytes, None] = OrderedDict()
        self._bad_peers: OrderedDict[str, None] = OrderedDict()
        self._newest = 0
        self._next_gc = 0.0

    # what happens

    def header(self, height: int, data_hash: bytes, now: float) -> None:
        """A header was verified: its pool exists from now on, old ones go."""
        self._newest = max(self._newest, height)
        if height >= self.store_from:
            self._pool(data_hash, height)
        if len(self._pools) > 2 * (self.limits.window + AHEAD_POOLS):  # many headers at once, as after a restart
            self.collect(now)
        self.tick(now)

    def tick(self, now: float) -> None:
        """Clean up if it is time, also while no headers come."""
        if now >= self._next_gc:
            self.collect(now)

    def credit(self, peer: str, data_hash: bytes, height: int) -> None:
        """The peer brought a notification that was verified."""
        if height < self.store_from or self.is_blacklisted(peer):
            return  # a late announcer must not bring back a pool that is gone
        self._pool(data_hash, height).peers.add(peer)
        self.nodes.add(peer)

    def _pool(self, data_hash: bytes, height: int) -> _HashPool:
        """The pool of a hash. Blocks with the same data share one, which lives as long as the newest of them."""
        pool = self._pools.setdefault(data_hash, _HashPool(height))
        pool.height = max(pool.height, height)
        return pool

    def mismatch(self, peer: str, data_hash: bytes) -> bool:
        """The peer announced a hash that is not on our chain; whether it is blacklisted for that."""
        self._bad_hashes[data_hash] = None
        self._bad_hashes.move_to_end(data_hash)
        if len(self._bad_hashes) > SHREX_BLACKLISTED_HASHES:
            self._bad_hashes.popitem(last=False)
        return self._blacklist(peer)

    def discovered(self, peer: str) -> None:
        """Discovery found a node that serves data."""
        if not self.is_blacklisted(peer):
            self.nodes.add(peer)

    def left(self, peer: str) -> None:
        """The peer disconnected, or discovery lost it: it is asked no more, from no pool, until it comes back."""
        self.nodes.remove(peer)

    # asking

    def offer(self, data_hash: bytes, height: int, now: float) -> Offer | None:
        """Whom to ask for the data of a block: who announced it, in turn, else who announced other blocks."""
        pool = self._pool_to_ask(data_hash, height)
        while pool is not None and (peer := pool.peers.take(now)) is not None:
            if peer in self.nodes and not self.is_blacklisted(peer):
                return Offer(peer, data_hash, height, "pool")
            pool.peers.remove(peer)  # gone meanwhile
        node = self.nodes.take(now)
        return Offer(node, data_hash, height, "nodes") if node is not None else None

    def _pool_to_ask(self, data_hash: bytes, height: int) -> _HashPool | None:
        pool = self._pools.get(data_hash)
        near = self.store_from <= height and (not self._newest or height <= self._newest + AHEAD_POOLS)
        if pool is None and near and len(self._pools) < self.limits.window + AHEAD_POOLS:
            pool = self._pool(data_hash, height)
        return pool

    def next_change(self, data_hash: bytes, now: float) -> float | None:
        """When a peer that rests now can be asked for this block; None if nobody rests."""
        pool = self._pools.get(data_hash)
        times = [self.nodes.next_rested(now), pool.peers.next_rested(now) if pool is not None else None]
        return min((time for time in times if time is not None), default=None)

    def done(self, offer: Offer, result: Outcome, now: float) -> bool:
        """What became of asking; whether the peer is blacklisted for it."""
        if result is Outcome.COOLDOWN:
            until = now + self.limits.cooldown_seconds
            pool = self._pools.get(offer.data_hash)
            if offer.source == "nodes":
                self.nodes.rest(offer.peer, until)
            elif pool is not None:
                pool.peers.rest(offer.peer, until)
        return result is Outcome.BLACKLIST and self._blacklist(offer.peer)

    # cleaning up

    def collect(self, now: float) -> None:
        """Remove pools that are out of the window."""
        self._next_gc = now + self.limits.gc_seconds
        for data_hash in [each for each, pool in self._pools.items() if pool.height < self.store_from]:
            del self._pools[data_hash]

    def _blacklist(self, peer: str) -> bool:
        if not self.limits.blacklist_peers:
            return False
        self.nodes.remove(peer)
        for pool in self._pools.values():
            pool.peers.remove(peer)
        self._bad_peers[peer] = None
        self._bad_peers.move_to_end(peer)
        if len(self._bad_peers) > SHREX_BLACKLISTED_PEERS:
            self._bad_peers.popitem(last=False)
        return True

    # looking in

    @property
    def store_from(self) -> int:
        """The lowest height whose pool is kept."""
        return max(0, self._newest - self.limits.window)

    def is_blacklisted(self, peer: str) -> bool:
        return peer in self._bad_peers

    def is_bad_hash(self, data_hash: bytes) -> bool:
        return data_hash in self._bad_hashes

    def pools(self, now: float) -> list[dict[str, object]]:
        """Every pool, newest first, as people read it."""
        ordered = sorted(self._pools.items(), key=lambda item: (-item[1].height, item[0]))
        return [
            {
                "height": str(pool.height),
                "data_hash": data_hash.hex(),
                "peers": pool.peers.peers,
                "resting": pool.peers.resting(now),
            }
            for data_hash, pool in ordered
        ]

    def pool_peers(self, data_hash: bytes) -> list[str]:
        pool = self._pools.get(data_hash)
        return pool.peers.peers if pool is not None else []

    def statistics(self, now: float) -> dict[str, int | float]:
        return {
            "pools": len(self._pools),
            "pooled_peers": sum(len(pool.peers) for pool in self._pools.values()),
            "nodes": len(self.nodes),
            "nodes_resting": len(self.nodes.resting(now)),
            "blacklisted_hashes": len(self._bad_hashes),
            "blacklisted_peers": len(self._bad_peers),
        }
