"""The section [relay] of the settings: where the relay listens, whom it lets in, what it allows, which servers it knows."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from syncline.core import limits
from syncline.core.errors import DecodeError, SettingsError
from syncline.core.keys import public_of_peer_id
from syncline.protocols.relay.session.quotas import Quotas

LINK_PATH: Final = "/link"


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The relay server: clients connect at `/`, other servers at `/link`."""

    host: Annotated[
        str, Meta(description="address to listen on; beyond loopback needs relay.tls_certificate or relay.plain")
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="port to listen on; 0 takes a free one")] = 7072
    url: Annotated[
        str, Meta(description="address clients use, e.g. wss://relay.example.org; their tokens must name it")
    ] = ""
    audiences: Annotated[list[str], Meta(description="further addresses that tokens may name")] = []
    tls_certificate: Annotated[
        str, Meta(description="file of the certificate chain (PEM); then only wss is spoken")
    ] = ""
    tls_key: Annotated[str, Meta(description="file of the certificate's private key (PEM)")] = ""
    plain: Annotated[
        bool, Meta(description="listen beyond loopback without TLS, because a reverse proxy in front does it")
    ] = False
    forwarded: Annotated[
        bool, Meta(description="believe X-Forwarded-For, which the reverse proxy in front must set")
    ] = False
    origins: Annotated[
        list[str], Meta(description="web origins whose pages may connect; * for all; programs send none")
    ] = []
    project_ids: Annotated[list[str], Meta(description="project ids clients may give; empty: any, or none")] = []
    name: Annotated[str, Meta(max_length=64, description="what other servers see us as in their lists of peers")] = ""
    peers: Annotated[
        list[str], Meta(description="servers to link with, each PEERID@ws://host:7072/link; they may also link to us")
    ] = []
    trusted: Annotated[list[str], Meta(description="PeerIDs of further servers that may link to us")] = []
    link_key: Annotated[
        str, Meta(description="key file for links, relative to the settings file; empty: the node's key")
    ] = ""
    link_key_former: Annotated[
        str, Meta(description="key file that relay.link_key replaces, while other servers still know the old one")
    ] = ""
    message_bytes: Annotated[
        int, Meta(ge=1, le=limits.RELAY_MESSAGE_MAX, description="largest message, in bytes of UTF-8")
    ] = limits.RELAY_MESSAGE_BYTES
    ttl_max: Annotated[
        int, Meta(ge=1, le=limits.RELAY_TTL_MAX, description="longest time a message may be cached, in seconds")
    ] = limits.RELAY_TTL_MAX
    requests_per_second: Annotated[
        float, Meta(gt=0, description="requests of one connection, on average; each message of a batch counts")
    ] = limits.RELAY_REQUESTS_PER_SECOND
    request_burst: Annotated[int, Meta(ge=1, description="requests of one connection at once")] = (
        limits.RELAY_REQUEST_BURST
    )
    topics_per_client: Annotated[int, Meta(ge=1, description="topics one client may be subscribed to")] = (
        limits.RELAY_TOPICS_PER_CLIENT
    )
    connections: Annotated[int, Meta(ge=1, description="connections in all")] = limits.RELAY_CONNECTIONS
    connections_per_address: Annotated[int, Meta(ge=1, description="connections from one IP address")] = (
        limits.RELAY_CONNECTIONS_PER_ADDRESS
    )
    connections_per_client: Annotated[int, Meta(ge=1, description="connections of one client key")] = (
        limits.RELAY_CONNECTIONS_PER_CLIENT
    )
    cached_messages: Annotated[int, Meta(ge=1, description="messages cached in all")] = limits.RELAY_CACHED_MESSAGES
    topic_messages: Annotated[int, Meta(ge=1, description="messages cached on one topic")] = limits.RELAY_TOPIC_MESSAGES
    topic_bytes: Annotated[int, Meta(ge=1, description="bytes cached on one topic")] = limits.RELAY_TOPIC_BYTES
    client_bytes: Annotated[int, Meta(ge=1, description="bytes cached that one client published")] = (
        limits.RELAY_CLIENT_BYTES
    )
    subscription_seconds: Annotated[
        int, Meta(ge=1, description="how long messages are still collected for a client that has gone")
    ] = limits.RELAY_SUBSCRIPTION_SECONDS
    webhook_networks: Annotated[
        list[str], Meta(description="networks, e.g. 10.0.0.0/8, that webhooks may be in although they are not public")
    ] = []
    drain_seconds: Annotated[
        float, Meta(ge=0, le=60, description="time that open requests get to end when the node stops")
    ] = 5.0

    def quotas(self) -> Quotas:
        return Quotas(
            message_bytes=self.message_bytes,
            ttl_max=self.ttl_max,
            requests_per_second=self.requests_per_second,
            request_burst=self.request_burst,
            topics_per_client=self.topics_per_client,
            connections_per_client=self.connections_per_client,
            cached_messages=self.cached_messages,
            topic_messages=self.topic_messages,
            topic_bytes=self.topic_bytes,
            client_bytes=self.client_bytes,
            subscription_seconds=self.subscription_seconds,
        )


class Peer(msgspec.Struct, frozen=True):
    """A server to link with. Several keys are its old and its new one while they change."""

    keys: tuple[str, ...]
    url: str


def peer_of(text: str) -> Peer:
    """The peer that `PEERID@URL` or `PEERID|PEERID@URL` names."""
    names, at, url = text.partition("@")
    if not at or not url.startswith(("ws://", "wss://")):
        raise SettingsError(f"{text!r} names no server", hint="write PEERID@ws://host:7072/link", about="relay.peers")
    return Peer(tuple(server_key(name, "relay.peers") for name in names.split("|")), url)


def server_key(text: str, about: str) -> str:
    """A PeerID, checked."""
    try:
        public_of_peer_id(text.strip())
    except DecodeError as error:
        raise SettingsError(str(error), hint="`syncline keys show` prints a server's PeerID", about=about) from None
    return text.strip()
