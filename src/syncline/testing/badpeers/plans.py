"""All bad peers: the plan, what it attacks, how a good node answers, and after how much it hangs up."""

from __future__ import annotations

from typing import Final

from syncline.testing.badpeers import libp2p, ndn, relay, sds, web
from syncline.testing.badpeers.attack import BadPeer

PLANS: Final = (
    BadPeer("unsigned flood", "libp2p", "each rejected; cut and banned after 16 forgiven faults", libp2p.unsigned, True, 200),
    BadPeer("forged flood", "libp2p", "each rejected; cut and banned after 16 forgiven faults", libp2p.forged, True, 200),
    BadPeer("signed garbage", "libp2p", "each rejected; cut and banned after 16 forgiven faults", libp2p.garbage_payloads, True, 500),
    BadPeer("replayed flood", "libp2p", "recognised before anything is spent; not punished", libp2p.replayed, False),
    BadPeer("giant length prefix", "libp2p", "cut at the prefix", libp2p.giant_length, True, 1),
    BadPeer("IHAVE and IWANT spam", "libp2p", "5,000 ids a heartbeat heard, then scored down and cut", libp2p.gossip_spam, True, 5_000),
    BadPeer("subscription spam", "libp2p", "256 topics a peer; more are faults; cut", libp2p.subscription_spam, True, 50),
    BadPeer("many connections", "libp2p", "16 an address; 5 new ones a second; unfinished handshakes end in 10 s", libp2p.many_connections, False),
    BadPeer("twenty sybils", "libp2p", "each cut as one forger is", libp2p.sybils, True, 4_000),
    BadPeer("wrong data hashes", "ShrEx", "rejected against the verified header; cut after 16", libp2p.wrong_hashes, True, 500),
    BadPeer("future heights", "ShrEx", "ignored, at most 16 of a peer wait", libp2p.future_heights, False),
    BadPeer("query bomb", "SDS streams", "100 queries a second of a peer; more are refused by name", sds.query_bomb, False),
    BadPeer("all-ones bloom filter", "SDS streams", "refused; counted as queries are", sds.all_ones_bloom, False),
    BadPeer("forged tokens", "relay", "closed with code 3000 and the reason", relay.forged_tokens, False),
    BadPeer("request flood", "relay", "200 requests a second; ended with code 3001 after 1,000 refusals", relay.relay_flood, True, 20_000),
    BadPeer("giant WebSocket frame", "relay", "closed at the header", relay.giant_websocket_frame, True, 50),
    BadPeer("state vectors that lie", "NDN", "256 nodes more than known believed, backlog of 1,000 asked for", ndn.lying_vectors, False),
    BadPeer("Interest flood", "NDN", "8,192 pending of a face; the rest dropped", ndn.interest_flood, False),
    BadPeer("broken packets", "NDN", "counted and dropped; the face ends after some", ndn.broken_packets, True, 500),
    BadPeer("giant packet", "NDN", "closed at the header", ndn.giant_packet, True, 500),
    BadPeer("SSRF addresses", "SDSP", "never fetched", web.ssrf_frames, False),
    BadPeer("foreign Host and Origin", "HTTP", "403 before the route", web.foreign_origins, False),
)  # fmt: skip
