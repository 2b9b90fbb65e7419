"""The client commands use; it lives lower down, because Spark uses it too."""

from syncline.networks.node_client import NodeClient

__all__ = ["NodeClient"]
