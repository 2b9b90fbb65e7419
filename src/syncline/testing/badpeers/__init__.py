"""Peers that misbehave on purpose, one plan each, against the listening sockets of any node: ours or yours.

A plan sends until it is cut off or told to stop, and says how much it got rid of before. It uses real connections and real
handshakes; only what it says is wrong. Loopback only: these are weapons. As a program, one plan in a process of its own:

    python -m syncline.testing.badpeers "forged flood" 5 '{"libp2p": "/ip4/127.0.0.1/tcp/…/p2p/…", "topic": "…"}'
"""

from syncline.testing.badpeers.attack import Attack, BadPeer, Target, run
from syncline.testing.badpeers.plans import PLANS

__all__ = ["PLANS", "Attack", "BadPeer", "Target", "run"]
