"""Lets Spark find `format("syncline")` by itself: it looks for packages of such names. All else is in syncline.lake."""

from syncline.lake.source import SynclineSource as DefaultSource

__all__ = ["DefaultSource"]
