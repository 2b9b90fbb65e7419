"""A libp2p host of our own: TCP, Noise, Yamux, multistream-select, identify and ping, small and bounded everywhere.

Protocol parts are sans-I/O (noise, yamux, multistream, identify, multiaddr); connection and host drive them on anyio.
docs/libp2p.md says which revisions are spoken, what is left out, and why no library is underneath.
"""
