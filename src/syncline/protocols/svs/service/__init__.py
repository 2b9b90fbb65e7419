"""Groups on a network: `join` for applications, the plug-in for nodes."""

from syncline.protocols.svs.service.group import Group, Subscription, join
from syncline.protocols.svs.service.stores import FileStore, MemoryStore, Prepared, Store

__all__ = ["FileStore", "Group", "MemoryStore", "Prepared", "Store", "Subscription", "join"]
