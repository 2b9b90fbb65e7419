"""What a bad peer is: where it attacks, what it counts, and how a plan is run for a while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import anyio
import msgspec

from syncline.core.errors import SynclineError, UsageError

GONE: Final = (
    SynclineError,
    OSError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    TimeoutError,
)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node listens. What is empty is not attacked."""

    libp2p: str = ""  # a multiaddr with its PeerID
    topic: str = ""  # a GossipSub topic it takes part in
    relay: str = ""  # ws://…
    ndn: str = ""  # tcp://…
    group: str = ""  # an SVS-PS group it takes part in
    api: str = ""  # http://…


class Attack:
    """One running plan: what it has sent, and whether the node has cut it off."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.sent = 0
        self.refused = 0  # answers that said no
        self.cut_after: int | None = None  # what had been sent when the node hung up
        self.stopping = False

    def going(self) -> bool:
        return not self.stopping

    def cut(self) -> None:
        if self.cut_after is None:
            self.cut_after = self.sent


def is_loopback(address: str) -> bool:
    """Whether a multiaddr or a URL names this machine by number: a name could be anybody's."""
    parts = address.split("/")
    try:
        host = parts[2] if address.startswith(("/ip4/", "/ip6/")) else urlsplit(address).hostname
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


Plan = Callable[[Attack], Awaitable[None]]


class BadPeer(msgspec.Struct, frozen=True):
    """A plan with its name, what it attacks and how a good node answers."""

    name: str
    surface: str
    answer: str
    plan: Plan
    is_cut: bool  # whether a good node hangs up on it
    cut_within: int = 0  # after at most so many messages


async def run(peer: BadPeer, target: Target, seconds: float) -> Attack:
    """Let one bad peer do its worst for so long."""
    for address in filter(None, (target.libp2p, target.relay, target.ndn, target.api)):
        if not is_loopback(address):
            raise UsageError("bad peers attack this machine only", hint="give loopback addresses", about=address)
    attack = Attack(target)
    with anyio.move_on_after(seconds + 5):
        async with anyio.create_task_group() as tasks:

            async def act() -> None:
                try:
                    await peer.plan(attack)
                except* GONE:
                    attack.cut()

            tasks.start_soon(act)
            await anyio.sleep(seconds)
            attack.stopping = True
            await anyio.sleep(0.2)
            tasks.cancel_scope.cancel()
    return attack


class shrug:  # noqa: N801
    """Bears that the other side has gone; hosts and sockets may say so in groups."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, BaseExceptionGroup):
            return error.split(GONE)[1] is None
        return isinstance(error, GONE)
