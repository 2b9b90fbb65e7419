"""Routes and what follows from them: which faces an Interest for a name may leave by (RIB and FIB), and by which strategy.

A longest-prefix match needs no component parsing: names are bytes in canonical form, so it is a few slices and look-ups,
one for each length a route has.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Generic, Literal, TypeVar

import msgspec

from syncline.core.errors import OverloadedError
from syncline.core.limits import NDN_ROUTES, NDN_ROUTES_PER_FACE, NDN_STRATEGIES
from syncline.formats.ndn.names import Name

CHILD_INHERIT: Final = 1
CAPTURE: Final = 2
Strategy = Literal["best-route", "multicast"]
V = TypeVar("V")


class Route(msgspec.Struct, frozen=True):
    """One way to a prefix, as `rib/register` made it."""

    face: int
    origin: int = 0
    cost: int = 0
    flags: int = CHILD_INHERIT
    expires: float | None = None


class Hop(msgspec.Struct, frozen=True, order=True):
    """A face to forward by; the cheapest comes first."""

    cost: int
    face: int


class Prefixes(Generic[V]):
    """Values by prefix, found by the longest one that a name starts with."""

    def __init__(self) -> None:
        self._values: dict[Name, V] = {}
        self._counts: Counter[int] = Counter()
        self._lengths: list[int] = []  # those in use, longest first

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> list[tuple[Name, V]]:
        return sorted(self._values.items(), key=lambda pair: pair[0])

    def get(self, prefix: Name) -> V | None:
        return self._values.get(prefix)

    def put(self, prefix: Name, value: V) -> None:
        if prefix not in self._values:
            self._counts[len(prefix)] += 1
            if self._counts[len(prefix)] == 1:
                self._lengths = sorted((*self._lengths, len(prefix)), reverse=True)
        self._values[prefix] = value

    def remove(self, prefix: Name) -> None:
        if self._values.pop(prefix, None) is not None:
            self._counts[len(prefix)] -= 1
            if not self._counts[len(prefix)]:
                del self._counts[len(prefix)]
                self._lengths.remove(len(prefix))

    def find(self, name: Name) -> V | None:
        """The value of the longest prefix of `name`."""
        for length in self._lengths:
            if length <= len(name):
                found = self._values.get(name[:length])
                if found is not None:
                    return found
        return None

    def above(self, name: Name) -> Iterator[V]:
        """The values of all shorter prefixes of `name`, longest first."""
        for length in self._lengths:
            if length < len(name) and (found := self._values.get(name[:length])) is not None:
                yield found

    def below(self, prefix: Name) -> list[Name]:
        """The prefixes that start with `prefix`, itself included."""
        return [each for each in self._values if each.startswith(prefix)]


class Routes:
    """All routes, and the next hops that follow from them."""

    def __init__(self) -> None:
        self._routes: Prefixes[dict[tuple[int, int], Route]] = Prefixes()
        self._hops: Prefixes[tuple[Hop, ...]] = Prefixes()
        self._per_face: Counter[int] = Counter()
        self._count = 0
        self._next_expiry = math.inf  # no route expires before

    def __len__(self) -> int:
        return self._count

    def hops(self, name: Name) -> tuple[Hop, ...]:
        """Where to forward an Interest for `name`, cheapest first."""
        return self._hops.find(name) or ()

    def entries(self) -> list[tuple[Name, list[Route]]]:
        return [(prefix, list(routes.values())) for prefix, routes in self._routes.items()]

    def of(self, prefix: Name) -> list[Route]:
        """The routes of exactly this prefix."""
        return list((self._routes.get(prefix) or {}).values())

    def forwarding(self) -> list[tuple[Name, tuple[Hop, ...]]]:
        return self._hops.items()

    def add(self, prefix: Name, route: Route) -> None:
        """Add or renew a route."""
        routes = self._routes.get(prefix) or {}
        key = (route.face, route.origin)
        if key not in routes:
            if self._count >= NDN_ROUTES or self._per_face[route.face] >= NDN_ROUTES_PER_FACE:
                raise OverloadedError("no room for another route")
            self._count += 1
            self._per_face[route.face] += 1
        routes[key] = route
        if route.expires is not None:
            self._next_expiry = min(self._next_expiry, route.expires)
        self._routes.put(prefix, routes)
        self._refresh(prefix)

    def remove(self, prefix: Name, face: int, origin: int) -> bool:
        """Remove a route; whether there was one."""
        routes = self._routes.get(prefix) or {}
        if routes.pop((face, origin), None) is None:
            return False
        self._count -= 1
        self._per_face[face] -= 1
        if not routes:
            self._routes.remove(prefix)
        self._refresh(prefix)
        return True

    def remove_face(self, face: int) -> list[Name]:
        """Remove every route of a face; the prefixes it had."""
        gone = [(prefix, origin) for prefix, routes in self._routes.items() for (by, origin) in routes if by == face]
        for prefix, origin in gone:
            self.remove(prefix, face, origin)
        self._per_face.pop(face, None)
        return [prefix for prefix, _ in gone]

    def expire(self, now: float) -> list[Name]:
        """Remove routes whose time has passed; their prefixes."""
        if now < self._next_expiry:
            return []
        gone, next_expiry = [], math.inf
        for prefix, routes in self._routes.items():
            for route in routes.values():
                if route.expires is None:
                    continue
                if route.expires <= now:
                    gone.append((prefix, route))
                else:
                    next_expiry = min(next_expiry, route.expires)
        self._next_expiry = next_expiry
        for prefix, route in gone:
            self.remove(prefix, route.face, route.origin)
        return [prefix for prefix, _ in gone]

    def _refresh(self, prefix: Name) -> None:
        """Work out anew what follows for `prefix` and for the prefixes below it, which may inherit from it."""
        for below in self._routes.below(prefix):
            self._hops.put(below, self._hops_of(below))
        if self._routes.get(prefix) is None:
            self._hops.remove(prefix)

    def _hops_of(self, prefix: Name) -> tuple[Hop, ...]:
        """Of each face its cheapest route at the nearest prefix that has one."""
        own = self.of(prefix)
        costs = _cheapest(own)
        if not any(route.flags & CAPTURE for route in own):
            for routes in self._routes.above(prefix):
                inherited = [route for route in routes.values() if route.flags & CHILD_INHERIT]
                costs = _cheapest(inherited) | costs
                if any(route.flags & CAPTURE for route in routes.values()):
                    break
        return tuple(sorted(Hop(cost, face) for face, cost in costs.items()))


def _cheapest(routes: Iterable[Route]) -> dict[int, int]:
    """The lowest cost by face."""
    costs: dict[int, int] = {}
    for route in routes:
        costs[route.face] = min(route.cost, costs.get(route.face, route.cost))
    return costs


class Strategies:
    """Which strategy forwards Interests below a prefix. Without a choice it is up to the forwarder."""

    def __init__(self) -> None:
        self._chosen: Prefixes[Strategy] = Prefixes()

    def find(self, name: Name) -> Strategy | None:
        return self._chosen.find(name)

    def choose(self, prefix: Name, strategy: Strategy) -> None:
        if self._chosen.get(prefix) is None and len(self._chosen) >= NDN_STRATEGIES:
            raise OverloadedError("no room for another strategy choice")
        self._chosen.put(prefix, strategy)

    def unchoose(self, prefix: Name) -> None:
        self._chosen.remove(prefix)

    def entries(self) -> list[tuple[Name, Strategy]]:
        return self._chosen.items()
