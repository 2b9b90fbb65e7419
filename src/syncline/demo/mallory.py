"""The peer that misbehaves: forged, oversized and replayed messages on every network, by nobody's leave.

What it sends is refused with a reason and kept as proof; when a node has had enough and cuts it off, it comes back under
another name. A tiny bare peer: it uses the networks, never a node.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any, Final

import anyio
import msgspec

from syncline.core.clock import SystemClock
from syncline.core.errors import SynclineError
from syncline.core.keys import NodeKey
from syncline.core.limits import RELAY_MESSAGE_BYTES, SDS_MESSAGE_BYTES
from syncline.core.ports import RecordQuery
from syncline.demo.talk import ROOMS, topic_of
from syncline.demo.world import GROUP, NETWORK, World
from syncline.formats.ndn.signing import Hmac
from syncline.networks.libp2p.host import HostSettings, Libp2pHost, running_host
from syncline.protocols.relay.client import RelayClient
from syncline.protocols.sds.catalogue import standard
from syncline.protocols.sds.rules import signed_publish
from syncline.protocols.sds.rules import topic_of as sds_topic
from syncline.protocols.sds.wire import encode
from syncline.protocols.shrex.settings import ShrexSettings
from syncline.protocols.shrex.wire import notification as notifications
from syncline.protocols.shrex.wire.notification import Notification
from syncline.protocols.svs.rules.trust import Signers
from syncline.protocols.svs.service.group import Group, join
from syncline.testing.samples import bad_frames

PATIENCE: Final = 12  # misdeeds under one name; the networks forgive sixteen
JOIN_SECONDS: Final = 10.0
OMM_TOPIC: Final = sds_topic(NETWORK, "OMM")


class Mallory:
    """One misdeed after the other."""

    def __init__(self, world: World, relay: RelayClient, group: Group) -> None:
        self._world, self._relay, self._group = world, relay, group
        self._chance = world.chance("mallory")
        self._victim = world.members[0]
        self._clock = SystemClock()
        self._frames = bad_frames(world.seed)
        self._host: Libp2pHost | None = None
        self._key = NodeKey.generate()
        self._named, self._worn = anyio.Event(), anyio.Event()
        self._done = 0
        self._deeds: cycle[Callable[[], Awaitable[None]]] = cycle(
            (self.forge, self.garble, self.replay, self.lie, self.misspell, self.impersonate, self.flood, self.swell)
        )

    async def step(self) -> None:
        try:
            await next(self._deeds)()
        except SynclineError:
            pass  # refused to its face, which is what it is for

    async def forge(self) -> None:
        """Space data in the name of somebody else."""
        own = signed_publish(
            NodeKey.generate(), schema="OMM", payload=self._payload(), message_id=self._id(), now=self._clock.now()
        )
        forged = msgspec.structs.replace(own, publisher_id=self._victim.node.key.peer_id)
        await (await self._libp2p()).gossip.publish(OMM_TOPIC, encode(forged))

    async def garble(self) -> None:
        """Rightly signed, but what it holds is no orbit."""
        payload = bytearray(self._payload())
        payload[4:8] = self._chance.randbytes(4)
        await self._gossip(bytes(payload))

    async def swell(self) -> None:
        """More bytes than a message may have."""
        await self._gossip(self._payload() + bytes(SDS_MESSAGE_BYTES))

    async def replay(self) -> None:
        """What an honest publisher said some time ago, once more."""
        query = RecordQuery(protocol="sds", verdict="accept", descending=True, limit=20)
        old = self._victim.node.journal.read(query)
        if old and (chosen := self._chance.choice(old)).raw is not None:
            await (await self._libp2p()).gossip.publish(chosen.topic, chosen.raw)

    async def lie(self) -> None:
        """A block announced with a hash it does not have."""
        height = int(self._victim.service("shrex").pools()["head"])
        topic = self._victim.node.settings.section("shrex", ShrexSettings).topic
        lie = notifications.encode(Notification(max(height, 1), self._chance.randbytes(32)))
        await (await self._libp2p()).flood.publish(topic, lie)

    async def misspell(self) -> None:
        """A frame of an object that no publisher could have made."""
        await self._world.members[1].service("sdsp").publish({"topic": "documents", "frame": next(self._frames)})

    async def impersonate(self) -> None:
        """A publication without the group's key."""
        await self._group.publish(f"/{self._victim.name}/wind", b'{"value": 999}')

    async def flood(self) -> None:
        """A relay message that is too long."""
        await self._relay.publish(topic_of(ROOMS[0]), "x" * (RELAY_MESSAGE_BYTES + 1), timeout=10.0)

    async def _gossip(self, payload: bytes) -> None:
        host = await self._libp2p()
        message = signed_publish(self._key, schema="OMM", payload=payload, message_id=self._id(), now=self._clock.now())
        await host.gossip.publish(OMM_TOPIC, encode(message))

    async def _libp2p(self) -> Libp2pHost:
        """A host under a name that is still let in."""
        self._done += 1
        if self._done % PATIENCE == 0 or (self._host is not None and not self._host.peers()):
            self._host, self._named = None, anyio.Event()
            self._worn.set()
        await self._named.wait()
        assert self._host is not None
        return self._host

    async def keep_a_name(self) -> None:
        """Be somebody until that name is worn out, then somebody else."""
        while True:
            self._key, self._worn = NodeKey.generate(), anyio.Event()
            async with running_host(self._key, HostSettings()) as host:
                try:
                    await host.connect(self._victim.node.networks.addresses()[0])
                except SynclineError:
                    await anyio.sleep(1.0)
                    continue
                with anyio.move_on_after(JOIN_SECONDS):
                    await host.gossip.wait_for_neighbours(OMM_TOPIC)
                self._host = host
                self._named.set()
                await self._worn.wait()

    def _payload(self) -> bytes:
        fields: dict[str, Any] = {"OBJECT_NAME": "GHOST", "NORAD_CAT_ID": 666, "MEAN_MOTION": 15.0}
        return standard("OMM").writer.encode(fields)

    def _id(self) -> str:
        return f"{self._chance.getrandbits(128):032x}"


@asynccontextmanager
async def misbehaving(world: World) -> AsyncIterator[Mallory]:
    """The bad peer, connected where it needs to be, for the length of the block."""
    # It has the group's key for syncing, say from a former member, and guesses the one for packets.
    leaked, guess = Hmac(base64.b64decode(world.secret)), Hmac(b"a guess")
    signers = Signers(sync=leaked, outer=guess, inner=guess, mapping=guess)
    forwarder = world.members[0].service("svs").hub.addresses["tcp"]
    relay = world.speakers("relay")[0].service("relay").url
    async with RelayClient(relay) as client:
        async with join(GROUP, node="/station/mallory", forwarder=forwarder, signers=signers) as group:
            mallory = Mallory(world, client, group)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(mallory.keep_a_name)
                yield mallory
                tasks.cancel_scope.cancel()
