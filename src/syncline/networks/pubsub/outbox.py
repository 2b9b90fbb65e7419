"""What waits to be sent to one neighbour: announcements, control messages and messages, each lane with its own bound.

Announcements are never lost (there are as many as we have topics); messages wait for room, which is how a slow neighbour
slows its publishers down; control messages, best effort by design, are dropped when there are too many, and counted.
"""

from __future__ import annotations

from collections import deque

from syncline.core.limits import PUBSUB_OUTBOX_BYTES, PUBSUB_OUTBOX_CONTROL
from syncline.formats.framing import encode_varint
from syncline.formats.pubsub import Control, Rpc, Subscribe, encode_rpc, message_field
from syncline.networks.signal import Signal


class Outbox:
    """The queue of one neighbour."""

    def __init__(self, limit: int = PUBSUB_OUTBOX_BYTES) -> None:
        self._limit = limit
        self._topics: dict[str, bool] = {}
        self._control: deque[bytes] = deque()
        self._messages: deque[bytes] = deque()
        self.bytes = 0  # of messages waiting
        self.leaving = 0  # messages taken to be sent, not yet said to have left
        self.dropped_control = 0
        self.ready = Signal()  # set when there is something to send
        self.room = Signal()  # set when there may be room, or the neighbour has gone

    def __bool__(self) -> bool:
        """Whether something waits to be taken."""
        return bool(self._messages or self._control or self._topics)

    @property
    def messages(self) -> int:
        return len(self._messages)

    def announce(self, topic: str, joins: bool) -> None:
        self._topics[topic] = joins
        self.ready.set()

    def tell(self, control: Control) -> None:
        if len(self._control) >= PUBSUB_OUTBOX_CONTROL:
            self.dropped_control += 1
            return
        self._control.append(frame(encode_rpc(Rpc(control=control))))
        self.ready.set()

    def offer(self, message: bytes) -> bool:
        """Take a framed message, if there is room. One message always fits an empty queue."""
        if self._messages and self.bytes + len(message) > self._limit:
            return False
        self._messages.append(message)
        self.bytes += len(message)
        self.ready.set()
        return True

    def take(self, most: int) -> bytes:
        """Frames to be sent now: announcements, control, then messages up to `most` bytes, but at least one."""
        parts = []
        if self._topics:
            subscriptions = tuple(Subscribe(topic, joins) for topic, joins in self._topics.items())
            parts.append(frame(encode_rpc(Rpc(subscriptions))))
            self._topics.clear()
        parts += self._control
        self._control.clear()
        size = sum(map(len, parts))
        messages = self._messages
        while messages and (not size or size + len(messages[0]) <= most):
            message = messages.popleft()
            size += len(message)
            self.bytes -= len(message)
            self.leaving += 1
            parts.append(message)
        return b"".join(parts)

    def left(self) -> None:
        """What was taken has been handed over."""
        self.leaving = 0
        self.room.set()


def frame(rpc: bytes) -> bytes:
    """An RPC as it stands on a pubsub stream."""
    return encode_varint(len(rpc)) + rpc


def message_frame(raw: bytes) -> bytes:
    """An RPC with one message, framed."""
    return frame(message_field(raw))
