"""The driver of ShrEx/Sub: network, disk, clock and header source around the session."""

from syncline.protocols.shrex.service.service import ShrexService

__all__ = ["ShrexService"]
