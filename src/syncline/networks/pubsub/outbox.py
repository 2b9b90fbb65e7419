"""What waits to be sent to one neighbour: announcements, control messages and messages, each lane with its own bound.

Announcements are never lost (there are as many as we have topics); messages wait for room, which is how a slow neighbour
slows its publishers down; control messages, best effort by design, are dropped when there are too many, and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from syncline.core.limits import PUBSUB_OUTBOX_BYTES, PUBSUB_OUTBOX_CONTROL
from syncline.formats.framing import encode_varint
from syncline.formats.pubsub import Control, Rpc, Subscribe, encode_rpc, message_field
from syncline.networks.signal import Signal

UNWANTED_TOGETHER: Final = 10  # ids in one IDONTWANT; go-libp2p looks at no more


class Outbox:
    """The queue of one neighbour."""

    def __init__(self, limit: int = PUBSUB_OUTBOX_BYTES) -> None:
        self._limit = limit
        self._topics: dict[str, bool] = {}
        self._control: deque[Control] = deque()
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
        self._control.append(control)
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
        parts += [frame(encode_rpc(Rpc(control=control))) for control in together(self._control)]
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


def together(controls: Iterable[Control]) -> list[Control]:
    """The same in fewer RPCs, since neighbours count them: grafts, prunes or IDONTWANTs in a row become one."""
    found: list[Control] = []
    for control in controls:
        kind = _only(control)
        if kind and found and _only(found[-1]) == kind:
            joined = getattr(found[-1], kind) + getattr(control, kind)
            if kind != "unwanted" or len(joined) <= UNWANTED_TOGETHER:
                found[-1] = Control(**{kind: joined})
                continue
        found.append(control)
    return found


def _only(control: Control) -> str:
    """The one kind of control message in it, if it is one that can be put together."""
    kinds = [name for name in control.__struct_fields__ if getattr(control, name)]
    return kinds[0] if len(kinds) == 1 and kinds[0] in ("graft", "prune", "unwanted") else ""


def frame(rpc: bytes) -> bytes:
    """An RPC as it stands on a pubsub stream."""
    return encode_varint(len(rpc)) + rpc


def message_frame(raw: bytes) -> bytes:
    """An RPC with one message, framed."""
    return frame(message_field(raw))
