"""Delta algorithms: how a changed object is told from an unchanged one. One file each, all behind one interface."""

from syncline.protocols.sdsp.deltas.base import Budget, Delta
from syncline.protocols.sdsp.deltas.registry import Deltas

__all__ = ["Budget", "Delta", "Deltas"]
