"""The two tables of a subscriber: topics (prefixes of application names) and producers (prefixes of node names)."""

from __future__ import annotations

from itertools import count

import msgspec

from syncline.core.errors import OverloadedError
from syncline.core.limits import SVS_SUBSCRIPTIONS
from syncline.formats.ndn.names import Name
from syncline.protocols.svs.session.events import Filter
from syncline.protocols.svs.wire.mapping import MappingEntry


class Topic(msgspec.Struct, frozen=True):
    """What one subscription wants. `filter` sees the mapping entry before anything is fetched."""

    prefix: Name
    filter: Filter | None = None


class Subscriptions:
    """Who wants what."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._topics: dict[int, Topic] = {}
        self._producers: dict[int, Topic] = {}

    def __len__(self) -> int:
        return len(self._topics) + len(self._producers)

    @property
    def any_topic(self) -> bool:
        return bool(self._topics)

    def add_topic(self, topic: Topic) -> int:
        """SVS-PS: `subscribe` adds the topic prefix to the table of Subscriptions."""
        return self._add(self._topics, topic)

    def add_producer(self, topic: Topic) -> int:
        """SVS-PS: `subscribeToProducer` adds the producer's prefix to a separate table."""
        return self._add(self._producers, topic)

    def remove(self, number: int) -> None:
        self._topics.pop(number, None)
        self._producers.pop(number, None)

    def wants_producer(self, node: Name) -> bool:
        return any(node.startswith(topic.prefix) for topic in self._producers.values())

    def filters(self, node: Name) -> bool:
        """Whether some subscription that may get what this producer publishes must see the mapping first."""
        return any(topic.filter is not None for topic in self._topics.values()) or any(
            topic.filter is not None and node.startswith(topic.prefix) for topic in self._producers.values()
        )

    def matching(self, node: Name, name: Name, entry: MappingEntry | None) -> tuple[int, ...]:
        """The subscriptions that get a publication of `node` named `name`."""
        found = [number for number, topic in self._topics.items() if name.startswith(topic.prefix)]
        found += [number for number, topic in self._producers.items() if node.startswith(topic.prefix)]
        if entry is None:
            return tuple(found)
        return tuple(number for number in found if self._passes(number, entry))

    def _passes(self, number: int, entry: MappingEntry) -> bool:
        wanted = self._topics.get(number) or self._producers[number]
        return wanted.filter is None or wanted.filter(entry)

    def _add(self, table: dict[int, Topic], topic: Topic) -> int:
        if len(self) >= SVS_SUBSCRIPTIONS:
            raise OverloadedError(f"a group may have {SVS_SUBSCRIPTIONS} subscriptions")
        number = next(self._numbers)
        table[number] = topic
        return number
