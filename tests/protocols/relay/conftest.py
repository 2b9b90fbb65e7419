"""Running relays."""

from tests.relays import relay

__all__ = ["relay"]
