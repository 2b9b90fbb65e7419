"""The driver of a relay server: sockets, disk, clock and webhooks around the session."""

from syncline.protocols.relay.service.service import RelayService

__all__ = ["RelayService"]
