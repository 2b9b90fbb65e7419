"""What one client, one topic and the whole server may use: the numbers, as a session needs them."""

from __future__ import annotations

import msgspec

from syncline.core import limits


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """Caps of a running relay. Defaults are those of core/limits.py."""

    message_bytes: int = limits.RELAY_MESSAGE_BYTES
    ttl_max: int = limits.RELAY_TTL_MAX
    batch: int = limits.RELAY_BATCH
    requests_per_second: float = limits.RELAY_REQUESTS_PER_SECOND
    request_burst: float = limits.RELAY_REQUEST_BURST
    strikes: int = limits.RELAY_STRIKES
    topics_per_client: int = limits.RELAY_TOPICS_PER_CLIENT
    connections_per_client: int = limits.RELAY_CONNECTIONS_PER_CLIENT
    subscriptions: int = limits.RELAY_SUBSCRIPTIONS
    subscription_seconds: int = limits.RELAY_SUBSCRIPTION_SECONDS
    cached_messages: int = limits.RELAY_CACHED_MESSAGES
    topic_messages: int = limits.RELAY_TOPIC_MESSAGES
    topic_bytes: int = limits.RELAY_TOPIC_BYTES
    client_bytes: int = limits.RELAY_CLIENT_BYTES
    link_bytes: int = limits.RELAY_LINK_BYTES
    window: int = limits.RELAY_WINDOW
    resend_seconds: float = limits.RELAY_RESEND_SECONDS
    resends: int = limits.RELAY_RESENDS
    link_window: int = limits.RELAY_LINK_WINDOW
    servers: int = limits.RELAY_SERVERS
    interest: int = limits.RELAY_INTEREST
