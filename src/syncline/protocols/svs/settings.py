"""The section [svs] of the settings: where the NDN forwarder listens, which groups the node is in, whom it trusts there."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from syncline.core import limits
from syncline.networks.ndn.doors import DoorOptions
from syncline.networks.ndn.forwarder import Limits
from syncline.networks.ndn.hub import HubOptions
from syncline.protocols.svs.session import Options


class SvsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The NDN forwarder, and SVS-PS groups over it."""

    host: Annotated[str, Meta(description="address the forwarder listens on")] = "127.0.0.1"
    tcp_port: Annotated[int, Meta(ge=-1, le=65_535, description="TCP port; 0 takes a free one, -1 none")] = 6363
    udp_port: Annotated[int, Meta(ge=-1, le=65_535, description="UDP port; 0 takes a free one, -1 none")] = 6363
    websocket_port: Annotated[
        int, Meta(ge=-1, le=65_535, description="port for WebSockets; 0 takes a free one, -1 none")
    ] = 9696
    websocket_origins: Annotated[list[str], Meta(description="web origins whose pages may connect")] = []
    websocket_hosts: Annotated[
        list[str], Meta(description="further Host names WebSockets answer to, beside loopback and svs.host")
    ] = []
    unix_socket: Annotated[str, Meta(description="path of a Unix socket to listen on; empty: none")] = ""
    uplinks: Annotated[
        list[str], Meta(description="other forwarders to connect to: tcp://host:6363, udp://, ws://, unix://")
    ] = []
    command_keys: Annotated[
        list[str], Meta(description="keys that may register prefixes from elsewhere, as in svs.keys without group")
    ] = []
    need_command_key: Annotated[bool, Meta(description="ask for such a key from applications on this machine too")] = (
        False
    )
    content_packets: Annotated[int, Meta(ge=0, description="packets the forwarder caches")] = limits.NDN_CONTENT_PACKETS
    pending_per_face: Annotated[int, Meta(ge=1, description="Interests one connection may have pending")] = (
        limits.NDN_PIT_PER_FACE
    )
    interests_per_second: Annotated[int, Meta(ge=1, description="Interests a second taken from one connection")] = (
        limits.NDN_INTERESTS_PER_SECOND
    )
    groups: Annotated[list[str], Meta(description="groups the node takes part in, by their sync prefix")] = []
    nodes: Annotated[
        list[str], Meta(description="node prefixes to publish under; empty: /syncline/<PeerID of the node>")
    ] = []
    subscribe: Annotated[
        list[str],
        Meta(description="topics to fetch, by prefix of the application name; empty: all, unless svs.producers is set"),
    ] = []
    producers: Annotated[list[str], Meta(description="producers to fetch everything of, by node prefix")] = []
    keys: Annotated[
        list[str],
        Meta(
            description="whom to trust, each `GROUP ROLE KEY`: roles sync, outer, inner, mapping joined by + or all; "
            "keys digest, hmac:BASE64, ed25519:HEX, ecdsa:BASE64, with @/prefix for some nodes only; secret"
        ),
    ] = []
    signers: Annotated[
        list[str], Meta(description="what to sign with, each `GROUP ROLE KEY`: digest, hmac:BASE64 or node; secret")
    ] = []
    backlog: Annotated[
        int, Meta(ge=-1, description="newest publications fetched of a node first heard of; -1: all")
    ] = 1_000
    from_now: Annotated[bool, Meta(description="fetch nothing published before the node joined")] = False
    max_age_seconds: Annotated[
        float, Meta(ge=0, description="fetch nothing whose mapping says it is older; 0: any age")
    ] = 0.0
    retries: Annotated[int, Meta(ge=-1, description="times an unanswered request is repeated; -1: for ever")] = 3
    refetches: Annotated[int, Meta(ge=0, description="times a packet that does not verify is asked for again")] = 1
    window: Annotated[int, Meta(ge=1, le=4_096, description="requests of a group under way at once")] = (
        limits.SVS_WINDOW
    )


def hub_options(settings: SvsSettings) -> HubOptions:
    """How the forwarder is to run."""
    return HubOptions(
        doors=DoorOptions(
            host=settings.host,
            tcp_port=_port(settings.tcp_port),
            udp_port=_port(settings.udp_port),
            websocket_port=_port(settings.websocket_port),
            websocket_origins=tuple(settings.websocket_origins),
            websocket_hosts=tuple(settings.websocket_hosts),
            unix_path=settings.unix_socket,
        ),
        uplinks=tuple(settings.uplinks),
        limits=Limits(pending_per_face=settings.pending_per_face, interests_per_second=settings.interests_per_second),
        content_packets=settings.content_packets,
        need_key=settings.need_command_key,
    )


def group_options(settings: SvsSettings) -> Options:
    """How the node behaves in its groups."""
    return Options(
        window=settings.window,
        retries=None if settings.retries < 0 else settings.retries,
        refetches=settings.refetches,
        backlog=None if settings.backlog < 0 else settings.backlog,
        from_now=settings.from_now,
        max_age=settings.max_age_seconds or None,
    )


def _port(value: int) -> int | None:
    return None if value < 0 else value
