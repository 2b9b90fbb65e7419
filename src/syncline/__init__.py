"""Syncline lands decentralised pub/sub networks in Spark, with proof.

The names below are the front door; each is imported when first used, so that `import syncline` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from syncline.core.errors import SynclineError
    from syncline.core.keys import NodeKey
    from syncline.core.record import Record
    from syncline.core.verdict import Reason, Verdict
    from syncline.node.node import Node, running
    from syncline.node.plugins import load_settings
    from syncline.protocols.relay.client import RelayClient
    from syncline.protocols.sdsp.publisher import Publisher
    from syncline.protocols.sdsp.subscriber import follow

_HOMES: Final = {
    "Node": "syncline.node.node",
    "NodeKey": "syncline.core.keys",
    "Publisher": "syncline.protocols.sdsp.publisher",
    "Reason": "syncline.core.verdict",
    "Record": "syncline.core.record",
    "RelayClient": "syncline.protocols.relay.client",
    "SynclineError": "syncline.core.errors",
    "Verdict": "syncline.core.verdict",
    "follow": "syncline.protocols.sdsp.subscriber",
    "load_settings": "syncline.node.plugins",
    "running": "syncline.node.node",
}

__all__ = [
    "Node",
    "NodeKey",
    "Publisher",
    "Reason",
    "Record",
    "RelayClient",
    "SynclineError",
    "Verdict",
    "follow",
    "load_settings",
    "running",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("syncline")
    if name not in _HOMES:
        raise AttributeError(f"module 'syncline' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
