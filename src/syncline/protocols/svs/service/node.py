"""SVS-PS in a node: one NDN forwarder, and the node's membership in each group of its settings."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import SystemRandom
from typing import Any

import anyio

from syncline.core.errors import ClosedError, SettingsError, UsageError
from syncline.core.ports import Ground, StateChange, WebMount
from syncline.formats.ndn.names import Name, parse, text
from syncline.formats.ndn.packets import Data, encode_data, encode_interest
from syncline.formats.ndn.signing import Ed25519Signer
from syncline.networks.ndn.hub import Hub, running
from syncline.protocols.svs.rules.judge import examine, judge_sync
from syncline.protocols.svs.rules.trust import Signers, Trust, read_line, signers_of, trusted_key
from syncline.protocols.svs.service.group import Group
from syncline.protocols.svs.service.journal import SinkIntake, SinkStore, SvsJudge
from syncline.protocols.svs.session import Publication
from syncline.protocols.svs.settings import SvsSettings, group_options, hub_options
from syncline.protocols.svs.wire.mapping import encode_mapping
from syncline.protocols.svs.wire.naming import mapping_name, sync_name
from syncline.protocols.svs.wire.publication import encapsulate
from syncline.protocols.svs.wire.vector import encode_vector


class SvsService:
    """Implements `core.ports.Service`."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._settings: SvsSettings = ground.settings
        self._judge = SvsJudge(ground.settings)
        self.hub: Hub | None = None
        self.groups: dict[str, Group] = {}
        self._delivered = 0
        self._known: list[tuple[Name, Trust]] = []  # groups whose packets we can judge

    async def run(self, *, started: Callable[[], None]) -> None:
        settings = self._settings
        topics = {*map(parse, settings.groups), *(read_line(line).group for line in settings.keys)}
        self._known = [self._judge.group(text(topic)) for topic in sorted(topics)]
        parts: dict[str, Any] = {
            "admit": self._admit,
            "command_keys": [trusted_key(key).verifier for key in settings.command_keys],
            "command_signer": Ed25519Signer(self._ground.key) if settings.uplinks else None,
        }
        async with running(hub_options(settings), self._ground.clock, **parts) as hub:
            self.hub = hub
            async with anyio.create_task_group() as tasks:
                for topic in settings.groups:
                    group = await self._join(hub, parse(topic))
                    self.groups[text(group.name)] = group
                    tasks.start_soon(group.run)
                started()
                await anyio.sleep_forever()

    async def _join(self, hub: Hub, name: Name) -> Group:
        settings, ground = self._settings, self._ground
        intake = SinkIntake(ground, self._judge, name)
        signers, trust = signers_of(name, settings.signers, ground.key), self._judge.group(text(name))[1]
        nodes = settings.nodes or [f"/syncline/{ground.key.peer_id}"]
        for node in nodes:
            _check_agreement(name, parse(node), signers, trust)
        group = Group(
            name,
            hub.attach(),
            signers=signers,
            trust=trust,
            options=group_options(settings),
            store=SinkStore(ground, name),
            intake=intake,
            clock=ground.clock,
            random=SystemRandom(),
        )
        group.resume(intake.resume())
        for node in nodes:
            await group.add_node(node)
        for prefix in settings.subscribe or ([] if settings.producers else ["/"]):
            group.subscribe(prefix, self._note)
        for prefix in settings.producers:
            group.subscribe_to_producer(prefix, self._note)
        intake.settled = group.settled
        await group.enter()
        return group

    def _note(self, publication: Publication) -> None:
        """The journal has it already; whoever wants it follows the records."""
        self._delivered += 1

    def _admit(self, data: Data) -> bool | None:
        """The forwarder caches nothing of our groups that our own keys refuse."""
        for group, trust in self._known:
            if group in data.name:
                judged = examine(data.wire, group, trust)
                if judged.named is not None:  # else it is not a name of the group
                    return judged.verdict.accepted
        return None

    async def publish(self, request: Mapping[str, Any], state: Sequence[StateChange] = ()) -> Mapping[str, Any]:
        """Fields: `name`, `content` (text) or `content_base64`; `group` and `node` where there are several."""
        unknown = set(request) - {"name", "content", "content_base64", "group", "node"}
        if unknown:
            raise UsageError(f"unknown field {min(unknown)!r}", hint="name, content or content_base64, group, node")
        group, name = self._group(request.get("group")), request.get("name")
        if not isinstance(name, str):
            raise UsageError("publishing takes a name", hint="for example /chat/hello", about="name")
        node = request.get("node")
        if node is not None and not isinstance(node, str):
            raise UsageError("a node is a name", about="node")
        seq = await group.publish(name, _content(request), node=node, state=state)
        return {"group": text(group.name), "node": node or group.nodes[0], "seq": str(seq), "name": name}

    def _group(self, topic: Any) -> Group:
        if not self.groups:
            if self._settings.groups:
                raise ClosedError("the node has not joined its groups yet")
            raise UsageError("this node is in no group", hint="set svs.groups")
        if topic is None and len(self.groups) == 1:
            return next(iter(self.groups.values()))
        found = self.groups.get(text(parse(topic))) if isinstance(topic, str) else None
        if found is None:
            raise UsageError("which group?", hint=f"this node is in {', '.join(self.groups)}", about="group")
        return found

    def peers(self) -> list[Mapping[str, Any]]:
        if self.hub is None:
            return []
        return [
            {
                "peer": face.uri,
                "face": face.id,
                "local": face.local,
                "interests": face.counters.in_interests,
                "data": face.counters.in_data,
                "malformed": face.counters.malformed,
            }
            for face in self.hub.forwarder.faces.values()
        ]

    def statistics(self) -> Mapping[str, int | float]:
        if self.hub is None:
            return {}
        forwarder = self.hub.forwarder
        sums: Counter[str] = Counter()
        for group in self.groups.values():
            sums.update(group.statistics())
        return {
            "faces": len(forwarder.faces),
            "routes": len(forwarder.routes),
            "pending_interests": len(forwarder.pending),
            "cached_packets": len(forwarder.content),
            "cache_hits": forwarder.content.hits,
            "cache_refused": forwarder.content.refused,
            "loops": forwarder.loops,
            "over_quota": forwarder.over_quota,
            "groups": len(self.groups),
            "delivered": self._delivered,
            **sums,
        }

    def web(self) -> WebMount | None:
        return None


def _check_agreement(group: Name, node: Name, signers: Signers, trust: Trust) -> None:
    """Refuse to start with keys by which we would not believe ourselves."""
    [outer] = encapsulate(node, group, 1, node, b"", inner=signers.inner, outer=signers.outer)
    mapping = encode_data(mapping_name(node, group, 1, 1), encode_mapping(node, []), signers.mapping)
    sync = encode_interest(sync_name(group), nonce=bytes(4), parameters=encode_vector({}), signer=signers.sync)
    refused = [
        judged.about for judged in (examine(packet, group, trust) for packet in (outer, mapping)) if judged.about
    ]
    refused += [] if judge_sync(sync, group, trust).verdict.accepted else ["sync"]
    if refused:
        raise SettingsError(
            f"the keys of the group refuse our own {refused[0]} packets",
            hint="svs.signers and svs.keys must agree",
            about=text(group),
        )


def _content(request: Mapping[str, Any]) -> bytes:
    plain, encoded = request.get("content"), request.get("content_base64")
    if isinstance(plain, str) and encoded is None:
        return plain.encode()
    if isinstance(encoded, str) and plain is None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (ValueError, binascii.Error):
            raise UsageError("content_base64 is not base64", about="content_base64") from None
    raise UsageError("publishing takes content (text) or content_base64", about="content")
