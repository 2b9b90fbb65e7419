"""Seeded traffic of all five protocols with its truth: good messages, forgeries, repeats, disorder and gaps, as two nodes
would hear them, and the rows every table must then have. The truth is written down where a message is made, never read back
from what decodes it.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from syncline.core.keys import NodeKey
from syncline.core.ports import StateReader
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import Outcome, Reason, reject
from syncline.formats.ndn import names
from syncline.formats.ndn.signing import Digest
from syncline.formats.pubsub import compose
from syncline.formats.records import iso_time
from syncline.protocols.relay.rules.messages import RelayJudge
from syncline.protocols.relay.wire import messages as relay
from syncline.protocols.sds import rules as sds
from syncline.protocols.sds import wire as sds_wire
from syncline.protocols.sds.catalogue import standard
from syncline.protocols.sdsp import rules as sdsp
from syncline.protocols.sdsp.wire import Frame
from syncline.protocols.shrex.rules.headers import Kept
from syncline.protocols.shrex.rules.judge import (
    CHAIN_SPACE,
    HEADERS_SPACE,
    HEADERS_TOPIC,
    RANGE,
    RESULTS_TOPIC,
    ShrexJudge,
    height_key,
)
from syncline.protocols.shrex.wire import header as headers
from syncline.protocols.shrex.wire import result as results
from syncline.protocols.shrex.wire.notification import TOPIC, Notification
from syncline.protocols.shrex.wire.notification import encode as encode_notification
from syncline.protocols.svs import rules as svs
from syncline.protocols.svs import wire as svs_wire
from syncline.testing.headers import chain
from syncline.testing.segments import DAY_ZERO
from syncline.testing.traffic import GARBAGE, Traffic

START: Final = DAY_ZERO + 86_400_000_000 - 20_000_000  # soon before a midnight, so that segments of two days are made
STEP: Final = 2_000  # µs between arrivals
GROUP: Final = names.parse("/room")
FORGED: Final = 0.05
REPEATED: Final = 0.10
LATE: Final = 0.02
LOST: Final = 0.005
TURNED_AWAY: Final = 0.01
WINDOW: Final = 60  # messages that may overtake one another
LATE_BY: Final = 2_000
SHARES: Final = {"relay": 5, "sds": 4, "sdsp": 6, "svs": 3, "shrex": 3}


class Message(msgspec.Struct, frozen=True):
    """One message, and whether every honest judge accepts it. `tables`: what its rows are there, by what they say."""

    protocol: str
    topic: str
    raw: bytes
    good: bool = True
    tables: Mapping[str, tuple[Any, ...]] = {}
    series: tuple[str, str] | None = None  # protocol and name of what it is numbered in
    number: int = 0
    once: bool = False  # every arrival of it is a message of its own


class Truth:
    """What journals and tables must hold. Rows are kept as digests of what they say."""

    def __init__(self) -> None:
        self.arrivals: Counter[tuple[str, str]] = Counter()  # node and verdict
        self.raws: dict[str, set[int]] = defaultdict(set)  # node → arrivals with their bytes
        self.rows: dict[str, set[int]] = defaultdict(set)
        self.rejected = 0
        self.numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
        self.peers: Counter[str] = Counter()


def digest(*values: Any) -> int:
    """What a row says, in 8 bytes."""
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=8).digest(), "big")


class Oracle:
    """Makes messages, delivers them to two nodes, and knows what must come of it."""

    def __init__(self, seed: int, *, objects: int = 40) -> None:
        self._random = random.Random(seed)
        self._now = START
        self._made = 0
        self._keys = [NodeKey(hashlib.sha256(f"oracle {seed} {n}".encode()).digest()) for n in range(4)]
        self._sequences: Counter[str] = Counter()
        self.traffic = Traffic(seed, objects=objects)
        self._chain = chain(2)
        self._judges: dict[str, Callable[[Incoming], Arrival]] = {
            "relay": RelayJudge(),
            "sds": lambda incoming: sds.judge(incoming, sds.Context()),
            "sdsp": lambda incoming: sdsp.judge(incoming, lambda frame: sdsp.NOTHING_KNOWN),
            "svs": self._judge_svs,
            "shrex": ShrexJudge(_Headers(self._chain), trusted=None, refused_roots=frozenset()),
        }
        self._makers = {name: getattr(self, f"_{name}") for name in SHARES}
        self._accepted: dict[str, set[bytes]] = defaultdict(set)
        self._waiting: list[tuple[float, str, Message]] = []
        self.truth = Truth()
        self.frames: list[Frame] = []  # of SDSP, as they arrived first anywhere

    def deliver(self, count: int, *, last: bool = False) -> Iterator[tuple[str, list[Arrival]]]:
        """Make `count` messages and hand out arrivals, in parts, by node. What is late waits for the next call, unless it
        is the last one.
        """
        for message in self._messages(count):
            self._plan(message)
        self._waiting.sort(key=lambda each: each[0])
        due = len(self._waiting) if last else sum(at <= self._made for at, _, _ in self._waiting)
        ready, self._waiting = self._waiting[:due], self._waiting[due:]
        parts: dict[str, list[Arrival]] = {"a": [], "b": []}
        for _, node, message in ready:
            parts[node].append(self._arrive(node, message))
            if len(parts[node]) == 500:
                yield node, parts[node]
                parts[node] = []
        yield from ((node, part) for node, part in parts.items() if part)

    @property
    def now(self) -> int:
        return self._now

    def expected_objects(self) -> dict[str, tuple[int, Any]]:
        """Serial and value of every SDSP object: a delta counts if all before it, up to a full frame, arrived."""
        found: dict[str, tuple[int, Any]] = {}
        for (uid, serial), published in sorted(self.traffic.truth.published.items()):
            if serial not in self.truth.numbers.get(("sdsp", uid), ()):
                continue
            if published.frame.ver == 0 or (uid in found and found[uid][0] == serial - 1):
                found[uid] = serial, published.value
        return found

    def missing(self) -> dict[tuple[str, str], int]:
        """How many numbers of each series are missing between the first and the last that arrived."""
        spans = {series: max(seen) - min(seen) + 1 - len(seen) for series, seen in self.truth.numbers.items()}
        return {series: count for series, count in spans.items() if count}

    def _messages(self, count: int) -> Iterator[Message]:
        kinds, weights = list(SHARES), list(SHARES.values())
        for _ in range(count):
            self._made += 1
            yield from self._makers[self._random.choices(kinds, weights)[0]]()

    def _plan(self, message: Message) -> None:
        """When the message reaches which node: in about its order, twice, late, or never."""
        if message.series is not None and self._random.random() < LOST:
            return
        nodes = self._random.choices(("ab", "a", "b"), (3, 1, 1))[0]
        for node in nodes:
            times = 1 if message.once else 1 + (self._random.random() < REPEATED)
            for _ in range(times):  # each by itself, so that copies land in different batches
                late = LATE_BY if self._random.random() < LATE else 0
                self._waiting.append((self._made + late + self._random.uniform(-WINDOW, 0), node, message))

    def _arrive(self, node: str, message: Message) -> Arrival:
        self._now += STEP
        incoming = Incoming(
            protocol=message.protocol, topic=message.topic, raw=message.raw, peer="neighbour", received_at=self._now
        )
        arrival = self._judges[message.protocol](incoming)
        expected = "accept" if message.good else "reject"
        if arrival.verdict != expected:
            raise AssertionError(f"{message.protocol}: {arrival.verdict} {arrival.reason}, not {expected}")
        if message.good and message.protocol in ("relay", "sds") and self._random.random() < TURNED_AWAY:
            arrival = arrival.judged(reject(Reason.RATE_LIMITED))  # good content, and yet not taken
        self._note(node, message, arrival)
        return arrival

    def _note(self, node: str, message: Message, arrival: Arrival) -> None:
        truth = self.truth
        repeated = arrival.accepted and arrival.id in self._accepted[node]
        verdict = Outcome.IGNORE if repeated else arrival.verdict
        truth.arrivals[node, verdict.value] += 1
        truth.raws[node].add(digest(arrival.received_at, verdict.value, None if repeated else message.raw))
        if not arrival.accepted:
            truth.rejected += 1
            return
        self._accepted[node].add(arrival.id)
        if repeated:
            return
        if message.once:
            truth.peers[message.tables["shrex_results"][0]] += 1
            truth.rows["shrex_results"].add(digest(*message.tables["shrex_results"], arrival.received_at))
            return
        for table, row in message.tables.items():
            truth.rows[table].add(digest(*row))
        if message.series is not None:
            seen = truth.numbers[message.series]
            if message.protocol == "sdsp" and message.number not in seen:
                self.frames.append(self.traffic.truth.published[message.series[1], message.number].frame)
            seen.add(message.number)

    # Messages of each protocol ------------------------------------------------------------------------------------

    def _relay(self) -> Iterator[Message]:
        topic = hashlib.sha256(b"topic %d" % self._random.randrange(20)).hexdigest()
        text = f"message {self._made} {self._random.random()} é😀".encode()
        fields: dict[str, Any] = {
            "tag": self._random.choice((7, 1_108)), "prompt": self._random.random() < 0.5, "ttl": 80_000,
            "timestamp": self._now // 1_000, "message": text,
        }  # fmt: skip
        if self._random.random() < FORGED:
            wrong = self._random.choice(({"ttl": 86_401}, {"timestamp": fields["timestamp"] + 10**9}))
            raw = self._random.choice((b"rubbish", relay.encode(relay.NetworkMessage(**{**fields, **wrong}))))
            yield Message("relay", topic, raw, good=False)
            return
        row = (topic, text.decode(), fields["tag"], fields["prompt"], 80_000, fields["timestamp"] * 1_000)
        yield Message("relay", topic, relay.encode(relay.NetworkMessage(**fields)), tables={"relay_messages": row})

    def _sds(self) -> Iterator[Message]:
        schema = self._random.choice(("OMM", "OMM", "OMM", "CDM", "EPM"))
        key, name = self._random.choice(self._keys), f"{schema}-{self._made}"
        epoch = iso_time(self._now)
        value: dict[str, Any]
        match schema:
            case "OMM":
                satellite = self._random.randrange(1, 2_000)
                value = {"NORAD_CAT_ID": satellite, "EPOCH": epoch, "MEAN_MOTION": self._random.uniform(1, 16)}
                row: tuple[Any, ...] = (key.peer_id, str(satellite), value["MEAN_MOTION"], self._now)
            case "CDM":
                value = {"MESSAGE_ID": name, "TCA": epoch, "MISS_DISTANCE": self._random.uniform(1, 1e5)}
                row = (key.peer_id, name, value["MISS_DISTANCE"], self._now)
            case _:
                value = {"DN": name, "LEGAL_NAME": f"Körper {self._made}"}
                row = (key.peer_id, name, value["LEGAL_NAME"], None)
        payload = standard(schema).writer.encode(value)
        message = sds.signed_publish(key, schema=schema, payload=payload, message_id=name, now=self._now)
        topic = sds.topic_of("mainnet", schema)
        if self._random.random() < FORGED:
            yield self._forged_sds(message, topic)
            return
        raw = sds_wire.encode(message)
        known = hashlib.sha256(sds_wire.signed_bytes(message)).hexdigest()
        tables = {f"sds_{schema.lower()}": (known, *row), "sds_messages": (known, schema, key.peer_id, name)}
        if self._random.random() < 0.2:  # as QUERY and SYNC hand it on: the same record in another frame
            raw = sds_wire.encode(sds.held(message, self._now))
        yield Message("sds", topic, raw, tables=tables)

    def _forged_sds(self, message: sds_wire.Publish, topic: str) -> Message:
        kind = self._random.randrange(3)
        if kind == 0:
            message = msgspec.structs.replace(message, signature=bytes(64))
        elif kind == 1:
            message = msgspec.structs.replace(message, publisher_id=self._random.choice(self._keys).peer_id + "x")
        else:
            topic = sds.topic_of("mainnet", "TDM")
        return Message("sds", topic, sds_wire.encode(message), good=False)

    def _sdsp(self) -> Iterator[Message]:
        if self._random.random() < FORGED:
            yield Message("sdsp", "objects", self._random.choice(GARBAGE), good=False)
            return
        [sent] = self.traffic.publish(1)
        frame = sent.frame
        row = (frame.uid, frame.serial, frame.ver, sent.raw.decode())
        yield Message(
            "sdsp", "objects", sent.raw, tables={"sdsp_frames": row}, series=("sdsp", frame.uid), number=frame.serial
        )

    def _svs(self) -> Iterator[Message]:
        node = f"/alice/{self._random.randrange(3)}"
        self._sequences[node] += 1
        seq, payload = self._sequences[node], self._random.randbytes(self._random.choice((20, 500, 20_000)))
        name = f"/chat/{self._made}"
        packets = svs_wire.encapsulate(
            names.parse(node), GROUP, seq, names.parse(name), payload, inner=Digest(), outer=Digest()
        )
        whole = hashlib.sha256(payload).hexdigest()
        row = ("/room", node, seq, name, whole)
        series = ("svs", f"/room {node}")
        for index, raw in enumerate(packets):
            if self._random.random() < FORGED:
                yield Message("svs", "/room", raw[:-1] + bytes((raw[-1] ^ 1,)), good=False)
            segment = index if len(packets) > 1 else None
            tables = {"svs_packets": (node, seq, segment), "svs_publications": row}
            # packets of a large publication are never lost, so that it is whole in the end
            yield Message("svs", "/room", raw, tables=tables, series=series if segment is None else None, number=seq)
        if len(packets) > 1:
            self.truth.numbers[series].add(seq)

    def _shrex(self) -> Iterator[Message]:
        key, kind = self._random.choice(self._keys), self._random.randrange(4)
        if kind == 0:
            self._chain += chain(1, after=self._chain[-1])
            header = self._chain[-1]
            row = (header.chain_id, header.height, header.hash.hex(), header.data_hash.hex())
            series = ("shrex", header.chain_id)
            yield Message(
                "shrex", HEADERS_TOPIC, headers.encode(header), tables={"headers": row}, series=series,
                number=header.height,
            )  # fmt: skip
            return
        block = self._random.choice(self._chain[1:])
        if kind == 1:
            outcome = self._random.choice(list(results.Outcome))
            peer = self._random.choice(self._keys).peer_id
            found = results.PeerResult(
                peer=peer, height=block.height, data_hash=block.data_hash.hex(), result=outcome, source="pool"
            )
            tables = {"shrex_results": (peer, block.height, outcome.value)}
            yield Message("shrex", RESULTS_TOPIC, results.encode(found), tables=tables, once=True)
            return
        data = encode_notification(Notification(block.height, block.data_hash))
        raw = compose(key, TOPIC, data, self._made)
        if self._random.random() < 2 * FORGED:
            yield Message("shrex", TOPIC, raw[:60] + bytes((raw[60] ^ 1,)) + raw[61:], good=False)
            return
        told = (key.peer_id, block.height, block.data_hash.hex(), self._made)
        yield Message("shrex", TOPIC, raw, tables={"shrex_notifications": told})

    def _judge_svs(self, incoming: Incoming) -> Arrival:
        return svs.judge_arrival(incoming, GROUP, svs.examine(incoming.raw, GROUP, svs.Trust()))


class _Headers(StateReader):
    """What a node that follows the chain knows of it: every header made so far."""

    def __init__(self, known: list[headers.Header]) -> None:
        self._known = known

    def get_state(self, space: str, key: bytes) -> bytes | None:
        first, last = self._known[0].height, self._known[-1].height
        if space == CHAIN_SPACE and key == RANGE:
            return height_key(first) + height_key(last)
        height = int.from_bytes(key, "big")
        if space == HEADERS_SPACE and first <= height <= last:
            header = self._known[height - first]
            return Kept(header.hash, header.data_hash).to_bytes()
        return None

    def scan_state(self, space: str, prefix: bytes = b"", limit: int = 10_000) -> list[tuple[bytes, bytes]]:
        return []
