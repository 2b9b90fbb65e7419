"""A connection to one peer: drives a Yamux session over a secure stream, and gives each stream `receive` and `send`.

Writers wait for the peer's window and for room in the output; a peer that takes nothing for too long is cut. Which
streams are answered, and how, is decided by the host.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

import anyio
from anyio.abc import TaskGroup

from syncline.core.errors import ClosedError, DecodeError, SynclineError, UnreachableError
from syncline.core.keys import peer_id
from syncline.core.limits import (
    CONNECTION_OUTPUT,
    CONNECTION_WRITE,
    KEEPALIVE_SECONDS,
    SLOW_PEER_BYTES,
    SLOW_PEER_SECONDS,
)
from syncline.core.verdict import Reason
from syncline.networks.host import Cut
from syncline.networks.libp2p import yamux
from syncline.networks.libp2p.multiaddr import Address
from syncline.networks.libp2p.multistream import propose, respond
from syncline.networks.libp2p.secure import CHUNK, SecureStream
from syncline.networks.signal import Signal

NEGOTIATE_SECONDS: Final = 10.0
GOODBYE_SECONDS: Final = 3.0  # for sending what is left, and again for the peer to hang up
CLOSE_SECONDS: Final = 30.0  # for the peer to end a stream that we have closed
GRACE_SECONDS: Final = 10.0  # for handlers to read what had arrived when the peer left
UNANSWERED_OUTPUT: Final = 4 * CONNECTION_OUTPUT  # control frames of ours a peer may leave unread


class Channel:
    """One stream of a connection. Sends by one task at a time, receives by one task at a time."""

    def __init__(self, connection: Connection, state: yamux.MuxStream) -> None:
        self.connection = connection
        self.protocol = ""
        self._state = state
        self.changed = Signal()

    @property
    def peer(self) -> str:
        return self.connection.peer

    async def receive(self, most: int = CHUNK) -> bytes:
        """Received bytes, as soon as there are any; b"" when the peer has ended its side."""
        state, connection = self._state, self.connection
        while not state.inbox:
            if state.reset or connection.over:
                raise UnreachableError("the stream was reset", about=self.peer)
            if state.remote_end:
                return b""
            await self.changed.wait()
        data = connection.session.read(state, most)
        connection.output.set()  # there may be a window to announce
        return data

    async def send(self, data: bytes) -> None:
        """Hand bytes over, waiting while the peer has no room. They may still be under way on return."""
        state, connection = self._state, self.connection
        rest = memoryview(data)
        while rest:
            if state.reset or connection.over:
                raise UnreachableError("the stream was reset", about=self.peer)
            if state.local_end:
                raise ClosedError("our side of the stream has ended", about=self.peer)
            if len(connection.session.output) >= CONNECTION_OUTPUT:
                await connection.drained.wait()
            elif taken := connection.session.write(state, rest[:CONNECTION_OUTPUT]):
                rest = rest[taken:]
                connection.output.set()
            else:
                await self.changed.wait()

    def end(self) -> None:
        """Say that nothing more will be sent."""
        self.connection.session.end(self._state)
        self.connection.output.set()

    def reset(self) -> None:
        """End both directions at once."""
        self.connection.session.reset(self._state)
        self.connection.forget(self._state)
        self.changed.set()

    def close(self) -> None:
        """End our side and read no more. The peer gets all that was sent, and some time to end its own side."""
        self.connection.session.abandon(self._state)
        self.connection.leave(self._state)
        self.changed.set()


class Connection:
    """A secured, multiplexed connection. `run` drives it until it is over."""

    def __init__(
        self,
        stream: SecureStream,
        *,
        initiator: bool,
        address: Address,
        on_stream: Callable[[Channel], Awaitable[None]],
        on_over: Callable[[Connection], None],
        slow_seconds: float = SLOW_PEER_SECONDS,
    ) -> None:
        self.peer = peer_id(stream.remote_key)
        self.address = address
        self.direction = "out" if initiator else "in"
        self.since = anyio.current_time()
        self.session = yamux.Session(initiator=initiator)
        self.output = Signal()  # set when there is something to send
        self.drained = Signal()  # set when something was sent
        self.why: Cut | None = None  # why it is over
        self._stream = stream
        self._on_stream = on_stream
        self._on_over = on_over
        self._slow_seconds = slow_seconds
        self._channels: dict[int, Channel] = {}
        self._closing: dict[int, tuple[yamux.MuxStream, float]] = {}  # streams the peer has yet to end
        self._link: anyio.CancelScope | None = None
        self._handlers: TaskGroup | None = None
        self._heard = anyio.current_time()
        self._sent_by: float | None = None  # when what is being sent must have left
        self._has_ended = False  # we have said that nothing more will be sent

    @property
    def over(self) -> bool:
        return self.why is not None

    @property
    def can_open(self) -> bool:
        """Whether new streams can be opened: it has not been cut, and nobody has said goodbye."""
        return not self.over and not self.session.closing

    @property
    def wire_bytes(self) -> tuple[int, int]:
        """Bytes sent and received."""
        return self._stream.sent, self._stream.received

    async def run(self) -> None:
        """Read, write and answer until the peer leaves or is cut. Never raises for what a peer does."""
        async with anyio.create_task_group() as handlers:
            self._handlers = handlers
            try:
                await self._run_link()
            finally:
                self.cut(Cut.CLOSED)
                with anyio.CancelScope(shield=True):
                    await self._stream.close()
                self._on_over(self)
                # What arrived before the peer left is still read; after a cut nobody is interested any more.
                grace = GRACE_SECONDS if self.why in (Cut.DISCONNECTED, Cut.CLOSED) else 0.0
                handlers.cancel_scope.deadline = anyio.current_time() + grace

    async def _run_link(self) -> None:
        async with anyio.create_task_group() as link:
            self._link = link.cancel_scope
            if self.over:  # cut before it ran
                link.cancel_scope.cancel()
            link.start_soon(self._write)
            link.start_soon(self._keep_alive)
            await self._read()

    def cut(self, why: Cut) -> None:
        """End the connection at once; everybody who waits on it is told."""
        if self.why is None:
            self.why = why
        for channel in list(self._channels.values()):
            channel.changed.set()
        self.drained.set()
        if self._link is not None:
            self._link.cancel()

    async def close(self) -> None:
        """Send what is left, say goodbye, let the peer hang up first; then end the connection."""
        with anyio.move_on_after(GOODBYE_SECONDS):
            self.session.go_away()
            self.output.set()
            while (self.session.output or self._sent_by is not None) and not self.over:
                await self.drained.wait()
        self._has_ended = True
        with anyio.move_on_after(GOODBYE_SECONDS):
            await self._stream.end()
            while not self.over:
                await self.drained.wait()
        self.cut(Cut.CLOSED)

    async def open(self, protocols: Sequence[str]) -> Channel:
        """A new stream on which the peer speaks one of `protocols`. The time-out is the caller's."""
        if not self.can_open:
            raise UnreachableError("the connection is closing", about=self.peer)
        channel = self._channel(self.session.open())
        try:
            channel.protocol = await propose(channel, protocols)
        except BaseException:
            channel.reset()
            raise
        return channel

    async def accept(self, channel: Channel, protocols: Collection[str]) -> None:
        """Agree with the peer on what it wants to speak on a stream it has opened."""
        with anyio.fail_after(NEGOTIATE_SECONDS):
            channel.protocol = await respond(channel, protocols)

    def leave(self, state: yamux.MuxStream) -> None:
        """Nobody here uses the stream any more; it is over when the peer has ended it too, or after a while."""
        self.forget(state)
        if not state.remote_end:
            self._closing[state.id] = (state, anyio.current_time())

    def forget(self, state: yamux.MuxStream) -> None:
        self._channels.pop(state.id, None)
        self.output.set()

    def _channel(self, state: yamux.MuxStream) -> Channel:
        channel = self._channels[state.id] = Channel(self, state)
        self.output.set()
        return channel

    async def _read(self) -> None:
        try:
            while chunk := await self._stream.receive():
                self._heard = anyio.current_time()
                for event in self.session.receive(chunk):
                    self._handle(event)
                if self.session.output:
                    self.output.set()
                while len(self.session.output) > UNANSWERED_OUTPUT and not self.over:
                    await self.drained.wait()
            self.cut(Cut.DISCONNECTED)
        except DecodeError as error:
            self.cut(Cut.OVERSIZE if error.reason is Reason.OVERSIZE else Cut.MALFORMED)
        except UnreachableError:
            self.cut(Cut.DISCONNECTED)

    def _handle(self, event: yamux.Event) -> None:
        match event:
            case yamux.Changed(state):
                channel = self._channels.get(state.id)
                if channel is not None:
                    channel.changed.set()
            case yamux.Opened(state):
                assert self._handlers is not None
                self._handlers.start_soon(self._answer, self._channel(state))
            case yamux.GoneAway():
                self.session.closing = True
            case yamux.Pong():
                pass  # that it came was noted

    async def _answer(self, channel: Channel) -> None:
        try:
            await self._on_stream(channel)
        finally:
            channel.close()

    async def _write(self) -> None:
        session = self.session
        try:
            while True:
                while not session.output:
                    await self.output.wait()
                data = session.take(CONNECTION_WRITE)
                if self._has_ended:  # answers to what still comes in: nobody hears them
                    continue
                patience = self._slow_seconds * math.ceil(len(data) / SLOW_PEER_BYTES)
                self._sent_by = anyio.current_time() + patience
                await self._stream.send(data)
                self._sent_by = None
                self.drained.set()
        except SynclineError:
            self.cut(Cut.DISCONNECTED)

    async def _keep_alive(self) -> None:
        """Ping a silent peer, give up on a mute one, and cut one that takes nothing from us."""
        pings, pinged = 0, self._heard
        while True:
            await anyio.sleep(self._slow_seconds / 4)
            now = anyio.current_time()
            self._reset_overdue(now)
            if self._sent_by is not None and now > self._sent_by:
                self.cut(Cut.SLOW_READER)
            elif now - self._heard > 2 * KEEPALIVE_SECONDS:
                self.cut(Cut.DISCONNECTED)
            elif now - max(self._heard, pinged) > KEEPALIVE_SECONDS:
                pings, pinged = pings + 1, now
                self.session.ping(pings)
                self.output.set()

    def _reset_overdue(self, now: float) -> None:
        for state, since in list(self._closing.values()):
            if state.remote_end or now - since > CLOSE_SECONDS:
                del self._closing[state.id]
                self.session.reset(state)
                self.output.set()
