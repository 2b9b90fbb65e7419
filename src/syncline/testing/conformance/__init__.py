"""Conformance checks: what every implementation of an interface promises, tried on one of yours.

Each tuple below belongs to one kind of subject, and each check of it is one promise: an async function that returns if it
is kept and raises `NotConforming`, an AssertionError, if it is not. With pytest they are parameters; without, `examine`
runs them all and tells which failed. Our own transports, header sources and nodes pass the very same checks in our tests.

What subjects look like: `Transport` and `ObjectStorage` of `syncline.protocols.sdsp.plugins`; `Serving`, a function that
opens a header source with given headers; `ShrexPeer`, the address of a running peer and the headers it follows.
"""

from syncline.testing.conformance.check import Check, NotConforming, Result, examine
from syncline.testing.conformance.shrex_peers import SHREX_PEER_CHECKS, ShrexPeer
from syncline.testing.conformance.sources import HEADER_SOURCE_CHECKS, Served, Serving
from syncline.testing.conformance.storages import STORAGE_CHECKS
from syncline.testing.conformance.transports import TRANSPORT_CHECKS

__all__ = [
    "HEADER_SOURCE_CHECKS",
    "SHREX_PEER_CHECKS",
    "STORAGE_CHECKS",
    "TRANSPORT_CHECKS",
    "Check",
    "NotConforming",
    "Result",
    "Served",
    "Serving",
    "ShrexPeer",
    "examine",
]
