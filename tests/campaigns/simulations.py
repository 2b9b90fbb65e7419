"""Twenty nodes of each protocol in virtual time: loss, copies, disorder, delay, a partition that heals.

Each function runs one seed, asserts that everybody ends with the same and that memory stayed within its caps, and
returns a digest of all that moved together with what the weather did.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from syncline.core.limits import (
    HOUR,
    PUBSUB_SEEN,
    SDSP_REORDER_FRAMES,
    SHREX_HELD,
    SVS_NODES,
)
from syncline.core.ports import RecordQuery
from syncline.core.record import Arrival, Incoming, Record
from syncline.core.verdict import Reason, Verdict, ignore
from syncline.formats.ndn import names
from syncline.networks.pubsub.router import Router
from syncline.protocols.sds.bloom import Bloom
from syncline.protocols.sds.catalogue import standard
from syncline.protocols.sds.rules import Context, judge, kept, signed_publish, topic_of
from syncline.protocols.sds.session.sync import SyncScan
from syncline.protocols.sds.wire import Sync, SyncResponse, decode, encode
from syncline.protocols.sdsp import wire as sdsp_wire
from syncline.protocols.sdsp.rebuild import Status
from syncline.protocols.sdsp.session import (
    AskHistory,
    Event,
    FrameReceived,
    HistoryAnswered,
    HistoryFailed,
    SubscriberSession,
    TimerFired,
)
from syncline.protocols.shrex.session.peers import PeerLimits, PeerManager
from syncline.protocols.shrex.session.session import Session, Settle
from syncline.protocols.shrex.wire import notification as shrex
from syncline.testing.ndn import WALL, Hub, Link, LinkWeather, Member, World
from syncline.testing.pubsub import Heard, PubSubNode, mesh, partition
from syncline.testing.relay import RelayWorld, duplicates, lay_random
from syncline.testing.relay import topic_of as relay_topic
from tests.protocols.sdsp.kit import DELTAS, Published
from tests.protocols.svs.test_simulation import FOR_EVER, agree, once_each, publish

NODES = 20
STORM = LinkWeather(drop=0.10, duplicate=0.20, least_delay=0.001, most_delay=0.200)


class Ran(msgspec.Struct, frozen=True):
    """One seed of one protocol."""

    trace: str
    lost: int
    copies: int
    cut: int  # lines that the partition cut
    virtual_seconds: float
    largest: int  # the fullest bounded collection that was seen


def svs(seed: int) -> Ran:
    """Two hubs with ten members each; the bridge between them goes down while everybody publishes."""
    world = World(seed)
    west, east = Hub(world), Hub(world)
    bridge = west.connect(east, STORM, [names.parse("/group"), names.parse("/n")])
    hubs = [west] * (NODES // 2) + [east] * (NODES // 2)
    members = [
        Member(hub, "/group", f"/n/{number}", options=FOR_EVER, weather=STORM) for number, hub in enumerate(hubs)
    ]
    for member in members:
        member.subscribe("/topic")
        world.after(world.random.uniform(0, 20), lambda member=member: publish(member))  # type: ignore[misc]
    for up, at in ((False, 5), (True, 25)):
        world.after(at, lambda up=up: _bridge(bridge, up))  # type: ignore[misc]
    world.run(40)
    assert world.run_until(lambda: agree(members), 600), f"svs, seed {seed}: the members differ"
    assert once_each(members), f"svs, seed {seed}: something came twice"
    largest = int(max(member.session.statistics()["nodes"] for member in members))
    assert largest <= SVS_NODES
    links = [*bridge, *(link for member in members for link in (member.to_hub, member.from_hub))]
    lost, carried = (sum(getattr(link, name) for link in links) for name in ("lost", "carried"))
    return Ran(world.trace, lost, carried // 6, 2, world.now, largest)


def _bridge(links: tuple[Link, Link], up: bool) -> None:
    for link in links:
        link.up = up


class Store:
    """The accepted records of one simulated node, as its journal would answer for them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.records: dict[bytes, Record] = {}

    def keep(self, arrival: Arrival) -> Verdict:
        if arrival.accepted and arrival.id in self.records:
            return ignore(Reason.DUPLICATE)
        if arrival.accepted:
            fields = msgspec.structs.asdict(arrival)
            self.records[arrival.id] = Record(node=self._name, epoch="0" * 16, lsn=len(self.records) + 1, **fields)
        return Verdict(arrival.verdict, arrival.reason)

    def read(self, query: RecordQuery) -> list[Record]:
        found = (
            record
            for record in self.records.values()
            if record.lsn > query.after
            and (query.topic is None or record.topic == query.topic)
            and (query.received_from is None or record.received_at >= query.received_from)
        )
        return list(found)[: query.limit]


def sds(seed: int) -> Ran:
    """Gossip in the storm; what it did not bring, catching up with neighbours does."""
    world = World(seed)
    topic, context = topic_of("testnet", "OMM"), Context(network="testnet", memory=24 * HOUR)
    stores: dict[str, Store] = {}
    writer = standard("OMM").writer

    def judged(raw: bytes, peer: str) -> Arrival:
        now = WALL + round(world.now * 1e6)
        return judge(Incoming(protocol="sds", topic=topic, raw=raw, peer=peer, received_at=now), context)

    def decide(node: PubSubNode, heard: Heard) -> Verdict:
        return stores[node.name].keep(judged(heard.data, heard.forwarder))

    nodes = mesh(world, NODES, degree=5, weather=STORM, decide=decide)
    for node in nodes:
        stores[node.name] = Store(node.name)
        node.join(topic)

    def say(node: PubSubNode, number: int) -> None:
        payload = writer.encode({"NORAD_CAT_ID": number, "OBJECT_NAME": f"OBJECT {number}"})
        message = signed_publish(
            node.key, schema="OMM", payload=payload, message_id=str(number), now=WALL + round(world.now * 1e6)
        )
        raw = encode(message)
        stores[node.name].keep(judged(raw, node.name))
        node.publish(topic, raw)

    broken = [0]

    def catch_up(node: PubSubNode, round_: int) -> None:
        """Ask a random neighbour; one stream in ten breaks before its answer is complete."""
        neighbours = [other for other in node.nodes.values() if node.links[other.name].up]
        if neighbours:
            other = world.random.choice(neighbours)
            bloom = Bloom.of(list(stores[node.name].records), round_)
            request = Sync(sync_id="s", schemas=("OMM",), bloom_filter=bloom.bits, bloom_hash_count=bloom.hashes)
            asked = decode(encode(request))
            assert isinstance(asked, Sync)
            scan = SyncScan(asked, network="testnet", schemas={"OMM"})
            while (query := scan.wants()) is not None:
                for frame in scan.feed(stores[other.name].read(query), world.now):
                    if world.random.random() < STORM.drop:
                        broken[0] += 1
                        break
                    world.note(frame)
                    answer = decode(frame)
                    assert isinstance(answer, SyncResponse)
                    for held in answer.records:
                        stores[node.name].keep(judged(kept(held), other.name))
        world.after(world.random.uniform(5, 15), lambda: catch_up(node, round_ + 1))

    for node in nodes:
        for number in range(3):
            world.after(
                world.random.uniform(2, 25),
                lambda node=node, number=number: say(node, node.number * 10 + number),  # type: ignore[misc]
            )
        world.after(world.random.uniform(5, 15), lambda node=node: catch_up(node, 1))  # type: ignore[misc]
    cut = _partitioned(world, nodes)
    world.run(40)
    wanted = 3 * NODES
    assert world.run_until(lambda: all(len(store.records) == wanted for store in stores.values()), 600), (
        f"sds, seed {seed}: not all hold {wanted}"
    )
    assert len({frozenset(store.records) for store in stores.values()}) == 1
    largest = max(node.remembered for node in nodes)
    assert largest <= PUBSUB_SEEN
    return _pubsub_ran(world, nodes, cut, largest, broken[0])


def sdsp(seed: int) -> Ran:
    """Four publishers and sixteen followers of all four; frames and histories go through the storm."""
    world = World(seed)
    publishers = [Published(uid=f"object-{number}") for number in range(4)]
    values = [{"n": 0, "notes": ["a"], "text": "x" * 50} for _ in publishers]
    followers = [_SdspFollower(world, published) for published in publishers for _ in range(NODES - 4)]

    def edit(number: int) -> None:
        value = {**values[number], "n": world.random.randrange(1_000), f"k{world.random.randrange(5)}": world.now}
        values[number] = value
        published = publishers[number]
        frame = published.update(value) if published.frames else published.create(value)
        if frame is not None:
            for follower in followers:
                if follower.published is published:
                    follower.link.carry([sdsp_wire.encode(frame)])

    for number in range(4):
        for at in sorted(world.random.uniform(0, 30) for _ in range(25)):
            world.after(at, lambda number=number: edit(number))  # type: ignore[misc]
    away = world.random.sample(followers, len(followers) // 2)
    for up, at in ((False, 8.0), (True, 20.0)):
        for follower in away:
            world.after(at, lambda follower=follower, up=up: follower.cut(up))  # type: ignore[misc]
    world.run(40)

    def agreed() -> bool:
        return all(
            each.session.status is Status.SYNCED
            and each.session.state is not None
            and each.session.state.value == values[publishers.index(each.published)]
            for each in followers
        )

    assert world.run_until(agreed, 600), f"sdsp, seed {seed}: {[str(each.session.status) for each in followers]}"
    largest = max(each.most_waiting for each in followers)
    assert largest <= SDSP_REORDER_FRAMES
    lost, carried = (sum(getattr(each.link, name) for each in followers) for name in ("lost", "carried"))
    return Ran(world.trace, lost, carried // 6, len(away), world.now, largest)


class _SdspFollower:
    """A subscriber's session on a lossy link. It is shown the newest frame now and then, as a new subscription would."""

    def __init__(self, world: World, published: Published) -> None:
        self.world, self.published = world, published
        self.session = SubscriberSession(published.session.uid, DELTAS, random=world.random.random)
        self.link = Link(world, STORM, self._arrived)
        self.most_waiting = 0
        world.after(world.random.uniform(5, 10), self._show_newest)

    def cut(self, up: bool) -> None:
        self.link.up = up

    def _show_newest(self) -> None:
        if self.published.frames:
            self.link.carry([sdsp_wire.encode(self.published.frames[-1])])
        self.world.after(self.world.random.uniform(5, 10), self._show_newest)

    def _arrived(self, packets: list[bytes]) -> None:
        for packet in packets:
            self._tell(FrameReceived(sdsp_wire.decode(packet), len(packet)))

    def _tell(self, event: Event) -> None:
        for action in self.session.receive(event, self.world.now):
            if isinstance(action, AskHistory):
                self.world.after(self.world.random.uniform(0.05, 2.0), lambda ask=action: self._answer(ask))  # type: ignore[misc]
        self.most_waiting = max(self.most_waiting, int(self.session.statistics()["waiting"]))
        if (due := self.session.deadline) is not None:
            self.world.after(max(due - self.world.now, 0.0), lambda: self._ring(due))

    def _ring(self, due: float) -> None:
        if self.session.deadline == due:
            self._tell(TimerFired())

    def _answer(self, ask: AskHistory) -> None:
        if not self.link.up or self.world.random.random() < STORM.drop:
            self._tell(HistoryFailed(ask.ask, "lost"))
            return
        frames = [frame for frame in self.published.frames for _ in range(1 + (self.world.random.random() < 0.2))]
        self.world.random.shuffle(frames)
        self._tell(HistoryAnswered(ask.ask, [sdsp_wire.decode(sdsp_wire.encode(frame)) for frame in frames]))


def shrex_sub(seed: int) -> Ran:
    """Six bridges, one of which lies, and fourteen light nodes; headers come late. Everybody hears of every block."""
    world = World(seed)
    heights, bridges, liar = 12, 6, 5
    sessions: dict[str, Session] = {}
    heard: dict[str, set[int]] = {}
    most = [0]

    def decide(node: PubSubNode, said: Heard) -> Verdict:
        found = shrex.decode(said.data)
        decided: list[Verdict] = []
        session = sessions[node.name]
        for action in session.arrived((said.author, found), said.author, found, world.now):
            if isinstance(action, Settle):
                decided.append(action.verdict)
        most[0] = max(most[0], session.held)
        settle(node, session, found, said.author, decided)
        return decided[0] if decided else ignore(Reason.HEADER_UNKNOWN)  # waits for its header; not passed on meanwhile

    def settle(
        node: PubSubNode, session: Session, found: shrex.Notification, peer: str, verdicts: list[Verdict]
    ) -> None:
        for verdict in verdicts:
            session.settled(peer, found, verdict)
            if verdict.accepted:
                heard[node.name].add(found.height)

    def flood() -> Router:
        return Router()

    nodes = mesh(world, NODES, degree=8, weather=STORM, router=flood, decide=decide)
    for node in nodes:
        sessions[node.name] = Session(PeerManager(PeerLimits()))
        heard[node.name] = set()
        node.join(shrex.TOPIC)

    def root(height: int) -> bytes:
        return hashlib.sha256(b"root %d" % height).digest()

    def header(node: PubSubNode, height: int) -> None:
        session = sessions[node.name]
        for action in session.header(height, root(height), world.now):
            if isinstance(action, Settle):
                author, found = action.ticket
                settle(node, session, found, author, [action.verdict])

    def announce(node: PubSubNode, height: int) -> None:
        hash_ = world.random.randbytes(32) if node.number == liar else root(height)
        node.publish(shrex.TOPIC, shrex.encode(shrex.Notification(height, hash_)))
        heard[node.name].add(height)

    def again() -> None:
        """Subscriptions may be lost, on these lines; real ones are told with every connection."""
        for node in nodes:
            for name in node.links:
                node._introduce(name)
        world.after(5.0, again)

    again()
    for height in range(1, heights + 1):
        for node in nodes:
            world.after(height * 6.0 + world.random.uniform(0, 4), lambda n=node, h=height: header(n, h))  # type: ignore[misc]
        for bridge in nodes[:bridges]:
            for repeat in range(3):  # a bridge tells again of what it has: who was cut off hears it later
                at = height * 6.0 + world.random.uniform(0, 3) + repeat * 25.0
                world.after(at, lambda b=bridge, h=height: announce(b, h))  # type: ignore[misc]
    cut = _partitioned(world, nodes, end=40.0)
    world.run(heights * 6.0 + 60.0)
    everything = set(range(1, heights + 1))
    honest = [node for node in nodes if node.number != liar]
    assert all(heard[node.name] == everything for node in honest), f"shrex, seed {seed}: some blocks were not heard of"
    liars = nodes[liar].name
    for node in nodes[bridges:]:
        pooled = {peer for pool in sessions[node.name].manager.pools(world.now) for peer in pool["peers"]}  # type: ignore[attr-defined]
        assert liars not in pooled, f"shrex, seed {seed}: the liar is in a pool"
    assert most[0] <= SHREX_HELD
    return _pubsub_ran(world, nodes, cut, max(most[0], max(node.remembered for node in nodes)))


def relay(seed: int) -> Ran:
    """Twenty servers in a random federation; wires break, servers die and come back, senders repeat themselves."""
    world = RelayWorld(seed, delay=0.2)
    names_ = [f"s{number}" for number in range(NODES)]
    for name in names_:
        world.add_server(name)
    lay_random(world, names_, NODES)
    clients = [world.add_client(f"c{number}", names_[number]) for number in range(NODES)]
    topics = [relay_topic(f"topic {number}") for number in range(5)]
    for number, client in enumerate(clients):
        client.subscribe(topics[number % 5], topics[(number + 1) % 5])
    world.run(3)
    random, repeated, broken = world.random, 0, 0
    for step in range(40):
        for client in random.sample(clients, 4):
            if not client.is_connected:
                continue
            topic = random.choice(topics)
            client.publish(topic, f"{client.name} {step}")
            if random.random() < STORM.duplicate:  # the sender did not hear the answer, and tries again
                client.publish(topic, f"{client.name} {step}")
                repeated += 1
        for one, other in (sorted(edge) for edge in random.sample(sorted(world.edges, key=sorted), 2)):
            if random.random() < STORM.drop and world.edges[frozenset((one, other))]:
                world.cut(one, other)
                broken += 1
                world.later(random.uniform(1, 8), lambda one=one, other=other: world.mend(one, other))  # type: ignore[misc]
        world.run(0.5)
        if step == 15:
            cut = [edge for edge in world.edges if _across(edge)]
            for edge in cut:
                world.cut(*sorted(edge))
        if step == 25:
            for edge in cut:
                world.mend(*sorted(edge))
        if step == 30:
            victim = random.randrange(NODES)
            world.servers[names_[victim]].kill()
            world.run(1)
            world.servers[names_[victim]].start()
            clients[victim].connect(names_[victim])
    world.run(40)
    published = {each for client in clients for each in client.published}
    for client in clients:
        wanted = {each for each in published if each[0] in client.topics} - set(client.published)
        missing = wanted - set(client.received)
        assert not missing, f"relay, seed {seed}: {client.name} lacks {len(missing)} of {len(wanted)}"
        if client is not clients[victim]:  # an acknowledgement that died with its server is not remembered
            assert not duplicates(client.received), f"relay, seed {seed}: {client.name} got something twice"
    largest = max(len(server.running.cache) for server in world.servers.values())
    trace = hashlib.sha256(
        repr([(client.name, client.received) for client in clients]).encode() + repr(world.parcels).encode()
    ).hexdigest()
    return Ran(trace, broken, repeated, len(cut), world.clock.monotonic(), largest)


def _across(edge: frozenset[str]) -> bool:
    """Whether a link crosses between the first and the second half of the servers."""
    one, other = (int(name[1:]) < NODES // 2 for name in edge)
    return one != other


def _partitioned(world: World, nodes: list[PubSubNode], *, begin: float = 10.0, end: float = 25.0) -> int:
    """Half of the nodes are cut off for a while; bridges (the first six) are on both sides."""
    one = {node.number for node in nodes if node.number % 2}
    lines = sum(node.number in one and other.number not in one for node in nodes for other in node.nodes.values())
    for up, at in ((False, begin), (True, end)):
        world.after(at, lambda up=up: partition(nodes, one, up=up))  # type: ignore[misc]
    return lines


def _pubsub_ran(world: World, nodes: list[PubSubNode], cut: int, largest: int, broken: int = 0) -> Ran:
    lost = sum(link.lost for node in nodes for link in node.links.values()) + broken
    return Ran(world.trace, lost, sum(node.counts["repeats"] for node in nodes), cut, world.now, largest)


SIMULATIONS: dict[str, Callable[[int], Ran]] = {
    "relay": relay, "sds": sds, "sdsp": sdsp, "shrex": shrex_sub, "svs": svs,
}  # fmt: skip
