"""multistream, multiaddr, identify and the guard."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError, RefusedError, UsageError
from syncline.core.keys import NodeKey
from syncline.networks.host import Cut
from syncline.networks.libp2p import identify
from syncline.networks.libp2p.guard import Guard, Limits
from syncline.networks.libp2p.host import _place
from syncline.networks.libp2p.multiaddr import Address, from_bytes, parse
from syncline.networks.libp2p.multistream import propose, respond

PEER = NodeKey(bytes(32)).peer_id


class Lines:
    """A stream that answers what it was given, and keeps what is sent."""

    def __init__(self, answers: bytes) -> None:
        self.answers, self.sent = answers, b""

    async def receive(self, most: int) -> bytes:
        data, self.answers = self.answers[:most], self.answers[most:]
        return data

    async def send(self, data: bytes) -> None:
        self.sent += data


HELLO = b"\x13/multistream/1.0.0\n"


@pytest.mark.anyio
async def test_the_first_common_protocol_is_chosen_and_nothing_after_it_is_read() -> None:
    stream = Lines(HELLO + b"\x03na\n" + b"\x03/b\n" + b"the rest")
    assert await propose(stream, ["/a", "/b"]) == "/b"
    assert stream.sent == HELLO + b"\x03/a\n" + b"\x03/b\n"
    assert stream.answers == b"the rest"
    other = Lines(HELLO + b"\x03/x\n" + b"\x03/b\n" + b"the rest")
    assert await respond(other, {"/b", "/c"}) == "/b"
    assert other.sent == HELLO + b"\x03na\n" + b"\x03/b\n"
    assert other.answers == b"the rest"


@pytest.mark.anyio
async def test_no_common_protocol_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match="/a"):
        await propose(Lines(HELLO + b"\x03na\n"), ["/a"])


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answers",
    [
        b"",
        HELLO[:-3],
        b"\x05wrong",
        b"\x05wron\n",
        b"\x00",
        b"\xff\xff\xff\x7f",
        b"\x81\x10" + b"a" * 2_049,
        HELLO + b"\x05/odd\n",
        HELLO + b"\x03\xff\xff\n",
    ],
)
async def test_a_peer_that_does_not_speak_multistream_is_refused(answers: bytes) -> None:
    with pytest.raises(DecodeError):
        await propose(Lines(answers), ["/a"])
    if not answers.startswith(HELLO):
        with pytest.raises(DecodeError):
            await respond(Lines(answers), ["/a"])


@pytest.mark.anyio
async def test_endless_proposals_are_cut_short() -> None:
    with pytest.raises(DecodeError, match="too many"):
        await respond(Lines(HELLO + b"\x03/x\n" * 1_000), ["/a"])


@pytest.mark.parametrize(
    "text",
    [
        f"/ip4/127.0.0.1/tcp/7071/p2p/{PEER}",
        "/ip4/10.0.0.1/tcp/0",
        f"/ip6/::1/tcp/65535/p2p/{PEER}",
        f"/dns4/node.example.org/tcp/443/p2p/{PEER}",
        f"/memory/here/p2p/{PEER}",
    ],
)
def test_an_address_reads_and_writes_alike(text: str) -> None:
    address = parse(text)
    assert str(address) == text
    assert from_bytes(address.to_bytes()) == address.with_peer("")


def test_the_binary_form_is_that_of_others() -> None:
    assert parse("/ip4/127.0.0.1/tcp/7071").to_bytes().hex() == "047f000001061b9f"
    peer = bytes.fromhex("a50326002408011220") + NodeKey(bytes(32)).public
    assert from_bytes(bytes.fromhex("047f000001061b9f") + peer) == Address("ip4", "127.0.0.1", 7071, PEER)
    assert from_bytes(bytes.fromhex("047f0000019102")) is None  # udp


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:7071",
        "/ip4/127.0.0.1",
        "/ip4/300.0.0.1/tcp/1",
        "/ip4/127.0.0.1/tcp/65536",
        "/ip4/127.0.0.1/tcp/-1",
        "/ip4/127.0.0.1/udp/1/quic-v1",
        "/ip4/127.0.0.1/tcp/1/p2p/QmNotEd25519",
        "/ip4/127.0.0.1/tcp/1/ws",
        f"/ip4/127.0.0.1/tcp/1/p2p/{PEER}/p2p-circuit",
        "/onion3/x/tcp/1",
        "/dns4//tcp/1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


@given(st.binary(max_size=100))
def test_any_bytes_are_an_address_or_none(data: bytes) -> None:
    found = from_bytes(data)
    assert found is None or from_bytes(found.to_bytes()) == found.with_peer("")


def test_an_identity_reads_back_and_is_bounded() -> None:
    said = identify.Identity(
        public_key=b"key",
        addresses=(b"\x04",),
        protocols=("/a", "/b"),
        observed=b"\x06",
        protocol_version="v",
        agent="who",
    )
    assert identify.decode(identify.encode(said)) == said
    many = identify.Identity(protocols=tuple(f"/{number}" for number in range(1_000)), agent="x" * 10_000)
    found = identify.decode(identify.encode(many))
    assert (len(found.protocols), len(found.agent)) == (identify.PROTOCOLS_MAX, identify.TEXT_MAX)


def test_connections_are_limited_in_all_and_per_address() -> None:
    guard = Guard(Limits(connections=4, per_address=2, handshakes=3))
    assert [guard.knock("a", 0.0) for _ in range(3)] == [None, None, Cut.CROWDED]
    assert [guard.knock("b", 0.0), guard.knock("c", 0.0)] == [None, Cut.CROWDED]  # three handshakes under way
    guard.shaken()
    assert guard.enter("p1", 0.0) is None
    assert guard.knock("c", 0.0) is None
    assert guard.knock("d", 0.0) is Cut.CROWDED
    guard.left("a")
    guard.shaken()
    assert guard.knock("a", 0.0) is None
    assert guard.refused == {Cut.CROWDED: 3}


def test_strangers_leave_room_for_those_we_dial() -> None:
    guard = Guard(Limits(connections=16, per_address=1))
    for number in range(20):
        if guard.knock(f"address {number}", 0.0) is None:
            guard.shaken()
            assert guard.enter(f"stranger {number}", 0.0) is None
    assert guard.connections == 14
    assert [guard.enter(f"friend {number}", 0.0) for number in range(3)] == [None, None, Cut.CROWDED]


def test_an_address_may_not_knock_too_fast() -> None:
    guard = Guard(Limits(dials_per_second=2.0, dials_burst=5.0))
    taken = 0
    for _ in range(50):
        if guard.knock("a", 0.0) is None:
            taken += 1
            guard.shaken()
            guard.left("a")
    assert taken == 5
    assert guard.knock("a", 0.6) is None
    assert guard.knock("b", 0.0) is None


def test_a_peer_has_two_connections_at_most_and_none_while_banned() -> None:
    guard = Guard(Limits())
    assert [guard.enter("p", 0.0) for _ in range(3)] == [None, None, Cut.CROWDED]
    guard.exit("p")
    assert guard.enter("p", 0.0) is None
    guard.ban("q", 10.0, 0.0)
    assert guard.enter("q", 9.9) is Cut.BANNED
    assert guard.enter("q", 10.1) is None
    assert guard.connections == 3


def test_faults_are_forgiven_up_to_a_number_and_forgotten_with_time() -> None:
    guard = Guard(Limits(faults=16.0))
    assert [guard.blame("p", 1.0, 0.0) for _ in range(17)] == [False] * 16 + [True]
    assert guard.faults("p", 60.0) == pytest.approx(8.5)
    assert guard.blame("p", 1.0, 60.0) is False


def test_what_is_remembered_of_strangers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.core.limits.ADDRESSES_WATCHED", 100)
    guard = Guard(Limits(connections=10**9, handshakes=10**9))
    for number in range(1_000):
        guard.knock(str(number), 0.0)
        guard.shaken()
        guard.left(str(number))
        guard.ban(str(number), 1e9, 0.0)
        guard.blame(str(number), 1.0, 0.0)
    assert (len(guard._rates), len(guard._bans), len(guard._faults), len(guard._addresses)) == (100, 100, 100, 0)


def test_one_customer_is_one_address() -> None:
    assert _place(Address("ip6", "2001:db8::1", 1)) == _place(Address("ip6", "2001:db8::ffff:1", 2))
    assert _place(Address("ip6", "2001:db8::1", 1)) != _place(Address("ip6", "2001:db8:0:1::1", 1))
    assert _place(Address("ip6", "::ffff:10.0.0.1", 1)) == _place(Address("ip4", "10.0.0.1", 9))


@pytest.mark.anyio
async def test_the_signal_wakes_those_who_wait_and_nobody_later() -> None:
    from syncline.networks.signal import Signal

    signal = Signal()
    signal.set()
    woken = []

    async def wait(name: str) -> None:
        await signal.wait()
        woken.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, "a")
        tasks.start_soon(wait, "b")
        await anyio.wait_all_tasks_blocked()
        assert woken == []
        signal.set()
    assert sorted(woken) == ["a", "b"]
