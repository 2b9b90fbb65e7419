"""libp2p pubsub, GossipSub 1.2 and FloodSub: routers decide who gets what, the overlay moves it without silent loss.

Routers are sans-I/O and know no sockets; the overlay runs on any streams a host opens for it.
"""
