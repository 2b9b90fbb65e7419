"""Many members in virtual time: loss, copies, reordering, partitions; they end up with the same publications."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.core.limits import SVS_VECTOR_BYTES
from syncline.formats.ndn import names
from syncline.protocols.svs.session import Options
from syncline.protocols.svs.wire import MappingEntry
from syncline.testing.ndn import Hub, LinkWeather, Member, World

STORM = LinkWeather(drop=0.10, duplicate=0.20, least_delay=0.001, most_delay=0.080)
FOR_EVER = Options(retries=None)


def everything(members: Sequence[Member]) -> set[tuple[str, int, str, int]]:
    """What has been published: node, number, topic, size."""
    found = set()
    for member in members:
        for seq, prepared in member.wiring._shelf[member.node].items():
            size = 10_000 if seq % 5 == 0 else 100
            found.add((names.text(member.node), seq, names.text(prepared.entry.name), size))
    return found


def got(member: Member) -> set[tuple[str, int, str, int]]:
    return {(p.node, p.seq, p.topic, len(p.payload)) for p in member.received}


def agree(members: Sequence[Member]) -> bool:
    """Whether each has exactly what the others published."""
    published = everything(members)
    if any(len(member.received) < len(published) - len(member.wiring._shelf[member.node]) for member in members):
        return False
    return all(got(member) == {each for each in published if each[0] != names.text(member.node)} for member in members)


def publish(member: Member) -> None:
    seq = member.session.last(member.node) + 1
    member.publish(f"/topic/{seq % 3}/{seq}", bytes(10_000 if seq % 5 == 0 else 100))


def once_each(members: Sequence[Member]) -> bool:
    return all(len(member.received) == len(got(member)) for member in members)


def crowd(world: World, count: int, weather: LinkWeather = STORM) -> tuple[Hub, list[Member]]:
    hub = Hub(world)
    members = [Member(hub, "/group", f"/n/{n}", options=FOR_EVER, weather=weather) for n in range(count)]
    for member in members:
        member.subscribe("/topic")
    return hub, members


def test_fifty_members_agree_in_spite_of_loss_copies_and_reordering() -> None:
    world = World(1)
    _, members = crowd(world, 50)
    world.run(1)
    for member in members:
        for _ in range(world.random.randrange(1, 4)):
            world.after(world.random.uniform(0, 3), lambda member=member: publish(member))  # type: ignore[misc]
    world.run(3)
    assert world.run_until(lambda: agree(members), 300)
    assert once_each(members)
    assert sum(len(member.failures) for member in members) == 0
    assert sum(member.to_hub.lost + member.from_hub.lost for member in members) > 1_000


def test_two_halves_agree_after_they_meet_again() -> None:
    world = World(11)
    west, east = Hub(world), Hub(world)
    bridge = west.connect(east, STORM, [names.parse("/group"), names.parse("/n")])
    members = [
        Member(hub, "/group", f"/n/{name}{n}", options=FOR_EVER, weather=STORM)
        for hub, name in ((west, "west"), (east, "east"))
        for n in range(10)
    ]
    for member in members:
        member.subscribe("/topic")
    for link in bridge:
        link.up = False
    for member in members:
        world.after(world.random.uniform(0, 5), lambda member=member: publish(member))  # type: ignore[misc]
    world.run(40)
    assert agree(members[:10])
    assert agree(members[10:])
    assert not agree(members)
    for link in bridge:
        link.up = True
    assert world.run_until(lambda: agree(members), 300)
    assert once_each(members)


def test_a_member_that_was_away_catches_up() -> None:
    world = World(12)
    _, members = crowd(world, 10)
    world.run(1)
    members[0].cut()
    for _ in range(7):
        for member in members[1:]:
            publish(member)
        world.run(1)
    assert members[0].received == []
    members[0].cut(up=True)
    assert world.run_until(lambda: agree(members), 300)


def test_a_late_joiner_gets_the_backlog() -> None:
    world = World(13)
    hub, members = crowd(world, 5)
    world.run(1)
    for _ in range(6):
        for member in members:
            publish(member)
    world.run(10)
    late = Member(hub, "/group", "/n/late", options=FOR_EVER, weather=STORM)
    late.subscribe("/topic")
    assert world.run_until(lambda: agree([*members, late]), 300)


def test_what_is_given_up_is_reported_so_nothing_is_lost_in_silence() -> None:
    world = World(14)
    hub = Hub(world)
    weather = LinkWeather(drop=0.35)
    members = [Member(hub, "/group", f"/n/{n}", options=Options(retries=1), weather=weather) for n in range(8)]
    for member in members:
        member.subscribe("/topic")
    world.run(1)
    for _ in range(5):
        for member in members:
            publish(member)
        world.run(1)
    world.run(200)
    published = everything(members)
    given_up = 0
    for member in members:
        wanted = {each[:2] for each in published if each[0] != names.text(member.node)}
        failed = {(f.node, seq) for f in member.failures if f.final for seq in range(f.low, f.high + 1)}
        assert {each[:2] for each in got(member)} | failed == wanted
        assert {each[:2] for each in got(member)} & failed == set()
        given_up += len(failed)
    assert given_up > 0


def test_a_restarted_publisher_without_memory_does_not_reuse_a_number() -> None:
    world = World(15)
    hub, members = crowd(world, 4, LinkWeather())
    world.run(1)
    for _ in range(3):
        publish(members[0])
    world.run(5)
    members[0].cut()
    hub.forwarder.remove_face(members[0].face)
    again = Member(hub, "/group", "/n/0", options=FOR_EVER, weather=LinkWeather())
    world.run(5)
    assert again.publish("/topic/again") == 4
    world.run(5)
    assert all((again.node, 4) in {(p.publisher, p.seq) for p in member.received} for member in members[1:])


def test_idle_members_are_quiet() -> None:
    world = World(16)
    _, members = crowd(world, 20, LinkWeather())
    world.run(5)
    before = sum(member.asked for member in members)
    world.run(300)
    sent = sum(member.asked for member in members) - before
    assert 5 <= sent <= 40  # about one sync Interest every 30 seconds for all of them together


def test_members_are_quiet_even_if_their_nodes_do_not_fit_an_interest() -> None:
    world = World(17)
    hub = Hub(world)
    members = [Member(hub, "/group", f"/n/{number}") for number in range(4)]
    for number, member in enumerate(members):
        for room in range(60):
            member.session.join(names.parse(f"/organisation/site/building/{number}/{room}"), 1)
    world.run(30)
    assert sum(len(node) + 16 for node in members[0].session.vector) > SVS_VECTOR_BYTES
    before = sum(member.asked for member in members)
    world.run(60)
    assert 1 <= sum(member.asked for member in members) - before <= 20
    members[0].session.published(members[0].node, MappingEntry(1, members[0].node), world.now)
    members[0]._wake()
    world.run(1)
    assert [member.session.vector[members[0].node] for member in members] == [1] * 4
    late = Member(hub, "/group", "/late")
    world.run(2)
    assert len(late.session.vector) > 100


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> str:
        world = World(seed)
        _, members = crowd(world, 8)
        for member in members:
            publish(member)
        world.run(60)
        return world.trace

    assert run(5) == run(5)
    assert run(5) != run(6)
