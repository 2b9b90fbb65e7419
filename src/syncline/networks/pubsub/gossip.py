"""GossipSub 1.2: a mesh of a few neighbours per topic that get messages at once; the others hear of them and may ask.

Sans-I/O; randomness is an argument. Our own messages are flooded to every subscriber that behaves, so there is no fanout
state. Left out: peer exchange (a PRUNE's peers are not dialled, ours name none) and direct peers.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Container, Iterable
from random import Random
from typing import ClassVar, Final

from syncline.core.limits import PUBSUB_BACKOFFS, PUBSUB_CONTROL_PER_HEARTBEAT, PUBSUB_IDS_PER_HEARTBEAT
from syncline.formats.pubsub import Control, Have, Prune
from syncline.networks.pubsub import score
from syncline.networks.pubsub.cache import MessageCache
from syncline.networks.pubsub.router import Router, Send

V10, V11, V12 = "/meshsub/1.0.0", "/meshsub/1.1.0", "/meshsub/1.2.0"

DEGREE: Final = 6
DEGREE_LOW: Final = 5
DEGREE_HIGH: Final = 12
DEGREE_SCORE: Final = 4  # kept for their score when a mesh is too large
DEGREE_OUT: Final = 2  # and at least so many that we dialled: an attacker cannot choose those
LAZY: Final = 6  # neighbours outside the mesh that hear of new messages
LAZY_SHARE: Final = 0.25  # or this share of them, if that is more
BACKOFF: Final = 60.0  # seconds a pruned peer stays out
BACKOFF_UNSUBSCRIBE: Final = 10.0
BACKOFF_SLACK: Final = 1.0
BACKOFF_MOST: Final = 3_600.0  # more is not believed
UNWANTED_SIZE: Final = 1_024  # bytes from which on others are told not to send a copy
UNWANTED_KEPT: Final = 1_024  # ids a peer may ask not to be sent
ID_BYTES: Final = 64  # no message that we take in has a longer id
SPAM: Final = 4  # times what is heard; an honest peer whose heartbeats bunch up does not get so far
PROMISE_SECONDS: Final = 3.0  # an announced message must come in this time
OPPORTUNISTIC_EVERY: Final = 60  # heartbeats
OPPORTUNISTIC_SCORE: Final = 1.0  # a mesh whose median is below takes in better peers


class GossipRouter(Router):
    """One node's view of the meshes."""

    protocols: ClassVar[tuple[str, ...]] = (V12, V11, V10)
    heartbeat_seconds: ClassVar[float | None] = 1.0

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.mesh: dict[str, set[str]] = {}
        self.scores = score.Scores()
        self.cache = MessageCache()
        self._random = random
        self._outbound: set[str] = set()
        self._backoff: dict[tuple[str, str], float] = {}  # (topic, peer) → until
        self._unwanted: dict[str, OrderedDict[bytes, None]] = {}
        self._promises: dict[str, tuple[bytes, float]] = {}  # peer → (an id it announced, due)
        self._heard: Counter[str] = Counter()  # control RPCs per peer since the last heartbeat
        self._ids: Counter[str] = Counter()  # message ids in them
        self._beats = 0
        self.spam = 0  # control messages not heard because there were too many

    def add_peer(self, peer: str, protocol: str, *, outbound: bool) -> None:
        super().add_peer(peer, protocol, outbound=outbound)
        if outbound:
            self._outbound.add(peer)

    def remove_peer(self, peer: str, now: float) -> None:
        super().remove_peer(peer, now)
        self._outbound.discard(peer)
        for kept in (self._unwanted, self._promises, self._heard, self._ids):
            kept.pop(peer, None)

    def subscribed(self, peer: str, topic: str, joins: bool, now: float) -> list[Send]:
        super().subscribed(peer, topic, joins, now)
        if not joins:
            self._leave_mesh(peer, topic)
        elif topic in self.mesh and len(self.mesh[topic]) < DEGREE_LOW:
            return self._graft(topic, self._candidates(topic, now), 1, now)
        return []

    def join(self, topic: str, now: float) -> list[Send]:
        super().join(topic, now)
        self.mesh[topic] = set()
        return self._graft(topic, self._candidates(topic, now), DEGREE, now)

    def leave(self, topic: str, now: float) -> list[Send]:
        super().leave(topic, now)
        gone = self.mesh.pop(topic, set())
        sends = []
        for peer in sorted(gone):
            self.scores.pruned(peer, topic)
            self._stay_away(topic, peer, now + BACKOFF_UNSUBSCRIBE)
            sends.append(self._prune(peer, topic, BACKOFF_UNSUBSCRIBE))
        return sends

    def targets_of_ours(self, topic: str, now: float) -> set[str]:
        return {peer for peer in self.neighbours(topic) if self.scores.of(peer, now) >= score.PUBLISH}

    def targets_to_forward(self, topic: str, id: bytes, without: Iterable[str]) -> set[str]:
        mesh = self.mesh.get(topic, set()).difference(without)
        return {peer for peer in mesh if peer in self.peers and id not in self._unwanted.get(peer, ())}

    def hears(self, peer: str, now: float) -> bool:
        return self.scores.of(peer, now) >= score.GRAYLIST

    def excuse(self, peer: str) -> None:
        self._promises.pop(peer, None)

    def arrived(self, peer: str, topic: str, id: bytes, size: int, now: float) -> list[Send]:
        for promiser, (promised, _) in list(self._promises.items()):
            if promised == id:
                del self._promises[promiser]
        if size < UNWANTED_SIZE:
            return []
        told = Control(unwanted=(id,))
        others = sorted(self.mesh.get(topic, set()) - {peer})
        return [Send(other, told) for other in others if self.peers.get(other) == V12]

    def accepted(self, peer: str | None, topic: str, id: bytes, raw: bytes, now: float) -> None:
        self.cache.put(id, topic, raw)
        if peer is not None:
            self.scores.delivered_first(peer, now)

    def rejected(self, peer: str, topic: str, id: bytes, now: float) -> None:
        self.scores.invalid(peer, now)

    def score(self, peer: str, now: float) -> float:
        return self.scores.of(peer, now)

    # control messages

    def control(self, peer: str, control: Control, seen: Container[bytes], now: float) -> list[Send]:
        self._note_unwanted(peer, control.unwanted)
        if not (control.have or control.want or control.graft or control.prune):
            return []  # IDONTWANT comes with every large message, so it is no measure of spam
        self._heard[peer] += 1
        if self._heard[peer] > PUBSUB_CONTROL_PER_HEARTBEAT:
            self.spam += 1
            self.scores.misbehaved(peer, now, 0.1)
            return []
        wanted: list[bytes] = []
        given: list[bytes] = []
        pruned = [refusal for topic in control.graft if (refusal := self._grafted(peer, topic, now)) is not None]
        for prune in control.prune:
            self._pruned(peer, prune, now)
        have = [Have(each.topic, self._within(peer, each.ids, now)) for each in control.have]
        want = self._within(peer, control.want, now)  # counted in any case, so that a spammer sinks further
        if self.scores.of(peer, now) >= score.GOSSIP:
            wanted = self._wanted(peer, have, seen, now)
            given = [raw for id in want if (raw := self.cache.ask(id, peer)) is not None]
        answer = Control(want=tuple(wanted), prune=tuple(pruned))
        return [Send(peer, answer or None, tuple(given))] if answer or given else []

    def _within(self, peer: str, ids: tuple[bytes, ...], now: float) -> tuple[bytes, ...]:
        """As many ids as the peer may still name before the next heartbeat."""
        left = max(0, PUBSUB_IDS_PER_HEARTBEAT - self._ids[peer])
        self._ids[peer] += len(ids)
        if ids and self._ids[peer] > SPAM * PUBSUB_IDS_PER_HEARTBEAT:
            self.spam += 1
            self.scores.misbehaved(peer, now)
        return ids[:left]

    def _wanted(self, peer: str, have: Iterable[Have], seen: Container[bytes], now: float) -> list[bytes]:
        ids = [
            id for each in have if each.topic in self.mesh for id in each.ids if len(id) <= ID_BYTES and id not in seen
        ]
        if ids and peer not in self._promises:
            self._promises[peer] = (self._random.choice(ids), now + PROMISE_SECONDS)
        return list(dict.fromkeys(ids))

    def _note_unwanted(self, peer: str, ids: tuple[bytes, ...]) -> None:
        if not ids:
            return
        kept = self._unwanted.setdefault(peer, OrderedDict())
        for id in ids[-UNWANTED_KEPT:]:
            if len(id) <= ID_BYTES:
                kept[id] = None
        while len(kept) > UNWANTED_KEPT:
            kept.popitem(last=False)

    def _grafted(self, peer: str, topic: str, now: float) -> Prune | None:
        """The peer wants us in its mesh; a PRUNE if we do not want it in ours. Unknown topics get no answer."""
        if topic not in self.mesh or peer in self.mesh[topic]:
            return None
        if peer not in self.subscribers.get(topic, ()):
            super().subscribed(peer, topic, True, now)  # a GRAFT says as much
        until = self._backoff.get((topic, peer), 0.0)
        if until > now:
            self.scores.misbehaved(peer, now)
            self._stay_away(topic, peer, now + BACKOFF)
            return Prune(topic, int(BACKOFF))
        full = len(self.mesh[topic]) >= DEGREE_HIGH and peer not in self._outbound
        if self.scores.of(peer, now) < 0 or full:
            self._stay_away(topic, peer, now + BACKOFF)
            return Prune(topic, int(BACKOFF))
        self._enter_mesh(peer, topic, now)
        return None

    def _pruned(self, peer: str, prune: Prune, now: float) -> None:
        if prune.topic in self.mesh:
            self._leave_mesh(peer, prune.topic)
            self._stay_away(prune.topic, peer, now + min(prune.backoff or BACKOFF, BACKOFF_MOST))

    def _stay_away(self, topic: str, peer: str, until: float) -> None:
        """Neither of the two takes the other into its mesh before then. Outlives a connection, so it is bounded here."""
        self._backoff.pop((topic, peer), None)
        self._backoff[topic, peer] = until
        if len(self._backoff) > PUBSUB_BACKOFFS:
            del self._backoff[next(iter(self._backoff))]

    # the mesh

    def _candidates(self, topic: str, now: float) -> list[str]:
        """Subscribers outside the mesh that may be taken in, in random order."""
        found = [
            peer
            for peer in sorted(self.neighbours(topic) - self.mesh[topic])
            if self._backoff.get((topic, peer), -BACKOFF_SLACK) + BACKOFF_SLACK <= now
            and self.scores.of(peer, now) >= 0
        ]
        self._random.shuffle(found)
        return found

    def _graft(self, topic: str, candidates: list[str], count: int, now: float) -> list[Send]:
        for peer in candidates[:count]:
            self._enter_mesh(peer, topic, now)
        return [Send(peer, Control(graft=(topic,))) for peer in candidates[:count]]

    def _prune(self, peer: str, topic: str, backoff: float) -> Send:
        return Send(peer, Control(prune=(Prune(topic, int(backoff)),)))

    def _enter_mesh(self, peer: str, topic: str, now: float) -> None:
        self.mesh[topic].add(peer)
        self.scores.grafted(peer, topic, now)

    def _leave_mesh(self, peer: str, topic: str) -> None:
        self.mesh.get(topic, set()).discard(peer)
        self.scores.pruned(peer, topic)

    # the heartbeat

    def heartbeat(self, now: float) -> list[Send]:
        self._beats += 1
        self._heard.clear()
        self._ids.clear()
        self._backoff = {key: until for key, until in self._backoff.items() if until + BACKOFF_SLACK > now}
        for peer, (_, due) in list(self._promises.items()):
            if due <= now:
                del self._promises[peer]
                self.scores.misbehaved(peer, now)
        sends: list[Send] = []
        for topic in sorted(self.mesh):
            sends += self._keep_mesh(topic, now)
            sends += self._gossip(topic, now)
        self.cache.shift()
        if self._beats % 3 == 0:
            self._unwanted.clear()
        return sends

    def _keep_mesh(self, topic: str, now: float) -> list[Send]:
        mesh, sends = self.mesh[topic], []
        for peer in [peer for peer in sorted(mesh) if self.scores.of(peer, now) < 0]:
            sends.append(self._drop(peer, topic, now))
        if len(mesh) < DEGREE_LOW:
            sends += self._graft(topic, self._candidates(topic, now), DEGREE - len(mesh), now)
        elif len(mesh) > DEGREE_HIGH:
            keep = self._best(topic, now)
            sends += [self._drop(peer, topic, now) for peer in sorted(mesh - keep)]
        missing = DEGREE_OUT - len(mesh & self._outbound)
        if len(mesh) >= DEGREE_LOW and missing > 0:
            dialled = [peer for peer in self._candidates(topic, now) if peer in self._outbound]
            sends += self._graft(topic, dialled, missing, now)
        if self._beats % OPPORTUNISTIC_EVERY == 0 and mesh:
            ranked = sorted(self.scores.of(peer, now) for peer in mesh)
            if (median := ranked[len(ranked) // 2]) < OPPORTUNISTIC_SCORE:
                better = [peer for peer in self._candidates(topic, now) if self.scores.of(peer, now) > median]
                sends += self._graft(topic, better, 2, now)
        return sends

    def _drop(self, peer: str, topic: str, now: float) -> Send:
        self._leave_mesh(peer, topic)
        self._stay_away(topic, peer, now + BACKOFF)
        return self._prune(peer, topic, BACKOFF)

    def _best(self, topic: str, now: float) -> set[str]:
        """Who stays in a mesh that has grown too large."""
        ranked = sorted(self.mesh[topic])
        self._random.shuffle(ranked)
        ranked.sort(key=lambda peer: -self.scores.of(peer, now))
        rest = ranked[DEGREE_SCORE:]
        self._random.shuffle(rest)
        keep = ranked[:DEGREE_SCORE]
        dialled = [peer for peer in rest if peer in self._outbound]
        keep += dialled[: max(0, DEGREE_OUT - sum(peer in self._outbound for peer in keep))]
        keep += [peer for peer in rest if peer not in keep][: DEGREE - len(keep)]
        return set(keep)

    def _gossip(self, topic: str, now: float) -> list[Send]:
        ids = self.cache.announced(topic)
        if not ids:
            return []
        self._random.shuffle(ids)
        told = Control(have=(Have(topic, tuple(ids[:PUBSUB_IDS_PER_HEARTBEAT])),))
        others = [
            peer
            for peer in sorted(self.neighbours(topic) - self.mesh[topic])
            if self.scores.of(peer, now) >= score.GOSSIP
        ]
        self._random.shuffle(others)
        return [Send(peer, told) for peer in others[: max(LAZY, int(len(others) * LAZY_SHARE))]]

    def statistics(self) -> dict[str, int | float]:
        return {
            **super().statistics(),
            "mesh": sum(map(len, self.mesh.values())),
            "cached_bytes": self.cache.bytes,
            "control_spam": self.spam,
        }
