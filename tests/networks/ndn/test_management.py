"""Commands and datasets of the forwarder: who may give them, what they do, what they answer."""

from __future__ import annotations

import hashlib

import pytest
from ndn.app_support import nfd_mgmt
from ndn.encoding import Name as PyName
from ndn.encoding import parse_data

from syncline.core.keys import NodeKey
from syncline.core.limits import NDN_COMMAND_SIGNERS, NDN_ROUTES_PER_FACE
from syncline.formats.ndn import names
from syncline.formats.ndn import types as t
from syncline.formats.ndn.packets import decode_data, encode_interest
from syncline.formats.ndn.signing import Digest, Ed25519Signer, Ed25519Verifier, Hmac, Signer
from syncline.formats.tlv import encode, integer_element
from syncline.networks.ndn.commands import SAME_TIME, CommandGate
from syncline.networks.ndn.control import (
    ControlParameters,
    ControlResponse,
    decode_parameters,
    decode_response,
    encode_parameters,
    encode_response,
)
from tests.networks.ndn.conftest import Bench, data, interest, seen

KEY = NodeKey(bytes(range(32)))
A = ControlParameters(name=names.parse("/a"))


def test_a_registered_prefix_gets_interests(bench: Bench) -> None:
    app, consumer = bench.face(), bench.face()
    answer = bench.order(app, bench.command("rib/register", A))
    assert (answer.code, answer.text) == (200, "OK")
    assert answer.parameters == ControlParameters(name=names.parse("/a"), face=app.id, origin=0, cost=0, flags=1)
    assert bench.changed == ["/a"]
    bench.send(consumer, interest("/a/b", b"0001"))
    assert seen(app.take()) == ["I /a/b"]
    assert bench.order(app, bench.command("rib/unregister", A)).code == 200
    bench.send(consumer, interest("/a/c", b"0002"))
    assert seen(consumer.take()) == ["N /a/c 150"]


def test_a_route_expires(bench: Bench) -> None:
    app, consumer = bench.face(), bench.face()
    bench.order(app, bench.command("rib/register", ControlParameters(name=names.parse("/a"), expiration=1_000)))
    bench.order(app, bench.command("rib/register", ControlParameters(name=names.parse("/b"), expiration=2_000)))
    bench.advance(0.9)
    assert len(bench.forwarder.routes) == 2
    assert bench.forwarder.tick(1.1) == [names.parse("/a")]  # for whoever announced it elsewhere
    assert (len(bench.forwarder.routes), consumer.take()) == (1, [])
    assert bench.forwarder.tick(2.1) == [names.parse("/b")]


def test_a_command_in_the_older_form_is_understood(bench: Bench) -> None:
    app = bench.face()
    parts = nfd_mgmt.make_command("rib", "register", name="/old")
    name = b"".join(bytes(part) for part in parts)
    wall = int.from_bytes(bytes(parts[-4])[2:], "big")
    bench.wall = wall * 1_000
    answer = bench.order(app, encode_interest(name, nonce=b"0001"))
    assert answer.code == 200
    assert [names.text(prefix) for prefix, _ in bench.forwarder.routes.entries()] == ["/old"]
    forged = name[:-1] + bytes((name[-1] ^ 1,))
    assert bench.order(app, encode_interest(forged, nonce=b"0002")).text.startswith("invalid_signature")
    assert bench.order(app, encode_interest(name, nonce=b"0003")).text.startswith("duplicate")


def order_code(bench: Bench, wire: bytes, *, local: bool = True) -> tuple[int, str]:
    answer = bench.order(bench.face(local=local), wire)
    return answer.code, answer.text.partition(":")[0]


def test_an_unsigned_command_is_refused(bench: Bench) -> None:
    name = names.parse("/localhost/nfd/rib/register") + names.generic(encode_parameters(A))
    assert order_code(bench, encode_interest(name, nonce=b"0001")) == (403, "invalid_signature")


def test_a_forged_command_is_refused(bench: Bench) -> None:
    wire = bench.command("rib/register", A)
    forged = wire[:-1] + bytes((wire[-1] ^ 1,))
    tail = forged[forged.index(b"\x24\x00") :]
    start = forged.index(b"\x02\x20") + 2
    forged = forged[:start] + hashlib.sha256(tail).digest() + forged[start + 32 :]
    assert order_code(bench, forged) == (403, "invalid_signature")
    assert len(bench.forwarder.routes) == 0


def test_a_command_whose_parameters_digest_is_wrong_is_malformed(bench: Bench) -> None:
    face = bench.face()
    wire = bench.command("rib/register", A)
    at = wire.index(b"\x02\x20") + 2
    bench.send(face, wire[:at] + bytes(32) + wire[at + 32 :])
    assert (face.take(), face.counters.malformed) == ([], 1)


def test_a_replayed_command_is_refused(bench: Bench) -> None:
    app = bench.face()
    register = bench.command("rib/register", A)
    assert bench.order(app, register).code == 200
    assert bench.order(app, bench.command("rib/unregister", A)).code == 200
    again = bench.order(app, register)
    assert (again.code, again.text.partition(":")[0]) == (403, "duplicate")
    assert len(bench.forwarder.routes) == 0


def test_commands_of_one_millisecond_differ_by_their_nonce(bench: Bench) -> None:
    app = bench.face()
    now = bench.wall // 1_000

    def at_once(nonce: bytes) -> int:
        name = names.parse("/localhost/nfd/rib/register") + names.generic(encode_parameters(A))
        extra = encode(t.SIGNATURE_NONCE, nonce) + integer_element(t.SIGNATURE_TIME, now)
        wire = encode_interest(name, nonce=bench.nonce(), parameters=b"", signer=Digest(), signature_extra=extra)
        return bench.order(app, wire).code

    assert [at_once(nonce) for nonce in (b"1", b"2", b"1", b"2", b"3")] == [200, 200, 403, 403, 200]
    assert [at_once(b"n%d" % number) for number in range(SAME_TIME)].count(200) == SAME_TIME - 3


@pytest.mark.parametrize("seconds", [-121, 121])
def test_a_command_from_another_time_is_refused(bench: Bench, seconds: int) -> None:
    wire = bench.command("rib/register", A, time=bench.wall // 1_000 + seconds * 1_000)
    assert order_code(bench, wire) == (403, "too_old")


def test_a_command_without_a_time_is_refused(bench: Bench) -> None:
    name = names.parse("/localhost/nfd/rib/register") + names.generic(encode_parameters(A))
    wire = encode_interest(name, nonce=b"0001", parameters=b"", signer=Digest())
    assert order_code(bench, wire) == (403, "invalid_field")


def keyed(bench: Bench, signer: Signer, scope: str = "localhop") -> bytes:
    bench.wall += 1_000
    name = names.parse(f"/{scope}/nfd/rib/register") + names.generic(encode_parameters(A))
    extra = integer_element(t.SIGNATURE_TIME, bench.wall // 1_000)
    return encode_interest(name, nonce=bench.nonce(), parameters=b"", signer=signer, signature_extra=extra)


def test_from_afar_only_known_keys_may_command_below_localhop() -> None:
    bench = Bench(gate=CommandGate([Ed25519Verifier(KEY.public)]))
    assert order_code(bench, keyed(bench, Digest()), local=False) == (403, "unauthorised")
    assert order_code(bench, keyed(bench, Hmac(b"x")), local=False) == (403, "invalid_signature")
    assert order_code(bench, keyed(bench, Ed25519Signer(NodeKey(bytes(32)))), local=False) == (403, "invalid_signature")
    good = keyed(bench, Ed25519Signer(KEY))
    assert order_code(bench, good, local=False) == (200, "OK")
    assert order_code(bench, good, local=False) == (403, "duplicate")  # replayed over another face
    far = bench.face(local=False)
    bench.send(far, keyed(bench, Ed25519Signer(KEY), "localhost"))
    assert (far.take(), bench.forwarder.out_of_scope) == ([], 1)


def test_a_node_may_ask_for_keys_from_its_own_machine_too() -> None:
    bench = Bench(gate=CommandGate([Hmac(b"k")], need_key=True))
    assert order_code(bench, bench.command("rib/register", A)) == (403, "unauthorised")
    assert order_code(bench, keyed(bench, Hmac(b"k"), "localhost")) == (200, "OK")


def test_the_memory_for_replays_is_bounded() -> None:
    gate = CommandGate()
    bench = Bench(gate=gate)
    faces = []
    for _ in range(NDN_COMMAND_SIGNERS):
        faces.append(bench.face())
        assert bench.order(faces[-1], bench.command("rib/unregister", A)).code == 200
    bench.forwarder.remove_face(faces[0])
    assert bench.order(bench.face(), bench.command("rib/unregister", A)).code == 200
    assert len(gate._newest) == NDN_COMMAND_SIGNERS
    bench.management.face_gone(faces[5])
    assert len(gate._newest) == NDN_COMMAND_SIGNERS - 1


@pytest.mark.parametrize(
    ("verb", "parameters", "code"),
    [
        ("rib/register", ControlParameters(), 400),
        ("rib/register", ControlParameters(name=names.parse("/a"), face=99), 410),
        ("rib/register", ControlParameters(name=names.parse("/localhost/nfd/rib")), 403),
        ("rib/fly", A, 501),
        ("faces/create", A, 501),
        ("strategy-choice/set", A, 400),
        ("strategy-choice/set", ControlParameters(name=b"", strategy=names.parse("/x")), 404),
        ("strategy-choice/unset", ControlParameters(), 400),
        ("cs/erase", ControlParameters(), 400),
    ],
)
def test_a_command_that_cannot_be_done_says_so(
    bench: Bench, verb: str, parameters: ControlParameters, code: int
) -> None:
    assert order_code(bench, bench.command(verb, parameters))[0] == code
    assert len(bench.forwarder.routes) == 0


def test_a_far_face_speaks_only_for_itself() -> None:
    bench = Bench(gate=CommandGate([Hmac(b"k")]))
    victim, far = bench.face(), bench.face(local=False)
    name = names.parse("/localhop/nfd/rib/register")
    name += names.generic(encode_parameters(ControlParameters(name=names.parse("/a"), face=victim.id)))
    extra = integer_element(t.SIGNATURE_TIME, bench.wall // 1_000)
    wire = encode_interest(name, nonce=b"0001", parameters=b"", signer=Hmac(b"k"), signature_extra=extra)
    assert bench.order(far, wire).code == 410


def test_from_afar_even_a_known_key_may_only_register() -> None:
    bench = Bench(gate=CommandGate([Hmac(b"k")]))
    far = bench.face(local=False)
    name = names.parse("/localhop/nfd/cs/erase") + names.generic(encode_parameters(A))
    extra = integer_element(t.SIGNATURE_TIME, bench.wall // 1_000)
    wire = encode_interest(name, nonce=b"0001", parameters=b"", signer=Hmac(b"k"), signature_extra=extra)
    assert bench.order(far, wire).code == 403


def test_routes_of_one_face_are_bounded(bench: Bench) -> None:
    app, other = bench.face(), bench.face()
    for number in range(NDN_ROUTES_PER_FACE):
        bench.route(f"/flood/{number}", app)
    assert bench.order(app, bench.command("rib/register", A)).code == 503
    assert bench.order(app, bench.command("rib/register", ControlParameters(name=names.parse("/flood/1")))).code == 200
    assert bench.order(other, bench.command("rib/register", A)).code == 200


def test_strategies_are_chosen_and_unchosen(bench: Bench) -> None:
    app = bench.face()
    strategy = names.parse("/localhost/nfd/strategy/multicast/v=5")
    assert (
        bench.order(app, bench.command("strategy-choice/set", ControlParameters(name=b"", strategy=strategy))).code
        == 200
    )
    assert bench.forwarder.strategies.find(names.parse("/x")) == "multicast"
    assert bench.order(app, bench.command("strategy-choice/unset", ControlParameters(name=b""))).code == 200
    assert bench.forwarder.strategies.find(names.parse("/x")) is None


def test_cached_content_is_erased_on_command(bench: Bench) -> None:
    app = bench.face()
    bench.forwarder.content.add(decode_data(data("/a/1")), app.id, 0.0)
    answer = bench.order(app, bench.command("cs/erase", A))
    assert (answer.parameters, len(bench.forwarder.content)) == (ControlParameters(name=names.parse("/a"), count=1), 0)


def dataset(bench: Bench, name: str) -> bytes:
    """A whole dataset, fetched segment by segment as clients do."""
    face = bench.face()
    bench.send(face, interest(f"/localhost/nfd/{name}", bench.nonce(), can_be_prefix=True, must_be_fresh=True))
    first = decode_data(face.take()[0])
    content = first.content
    assert first.final_block is not None
    ends = names.boundaries(first.name)
    final = names.number_of(t.SEGMENT, first.final_block, 0, len(first.final_block))
    assert final is not None
    for index in range(1, final + 1):
        wanted = first.name[: ends[-2]] + names.number(t.SEGMENT, index)
        bench.send(face, encode_interest(wanted, nonce=bench.nonce()))
        content += decode_data(face.take()[0]).content
    return content


def test_datasets_are_read_by_another_implementation(bench: Bench) -> None:
    app = bench.face("tcp://app")
    bench.route("/a", app, cost=3)
    bench.send(app, interest("/x", b"0001"))
    app.take()
    general = nfd_mgmt.GeneralStatus.parse(dataset(bench, "status/general"))
    assert (
        bytes(general.nfd_version, "utf8") if isinstance(general.nfd_version, str) else bytes(general.nfd_version)
    ) == b"syncline"
    assert (general.n_fib_entries, general.n_in_interests) == (1, 2)
    faces = nfd_mgmt.FaceStatusMsg.parse(dataset(bench, "faces/list")).face_status
    assert (faces[0].face_id, faces[0].n_in_interests, faces[0].n_out_nacks) == (app.id, 1, 1)
    rib = nfd_mgmt.RibStatus.parse(dataset(bench, "rib/list")).entries
    assert [(PyName.to_str(entry.name), entry.routes[0].cost) for entry in rib] == [("/a", 3)]
    fib = nfd_mgmt.FibStatus.parse(dataset(bench, "fib/list")).entries
    assert [(PyName.to_str(entry.name), entry.next_hop_records[0].face_id) for entry in fib] == [("/a", app.id)]
    bench.forwarder.strategies.choose(names.parse("/s"), "multicast")
    chosen = nfd_mgmt.StrategyChoiceMsg.parse(dataset(bench, "strategy-choice/list")).strategy_choices
    assert PyName.to_str(chosen[0].strategy.name) == "/localhost/nfd/strategy/multicast"
    assert dataset(bench, "cs/info")[0] == 0x80


def test_a_large_dataset_comes_in_segments(bench: Bench) -> None:
    app = bench.face()
    for number in range(1_000):
        bench.route(f"/prefix/{number}", app)
    rib = nfd_mgmt.RibStatus.parse(dataset(bench, "rib/list")).entries
    assert len(rib) == 1_000


def test_datasets_are_for_this_machine(bench: Bench) -> None:
    far = bench.face(local=False)
    bench.send(far, interest("/localhop/nfd/faces/list", b"0001"))
    assert seen(far.take()) == ["N /localhop/nfd/faces/list 150"]


def test_an_unknown_segment_of_a_dataset_is_nacked(bench: Bench) -> None:
    face = bench.face()
    bench.send(face, interest("/localhost/nfd/faces/list/v=1/seg=0", b"0001"))
    assert seen(face.take()) == ["N /localhost/nfd/faces/list/v=1/seg=0 150"]


def test_control_messages_are_read_as_they_were_written() -> None:
    full = ControlParameters(
        name=names.parse("/a"), face=1, origin=2, cost=3, capacity=4, count=5, flags=6,
        strategy=names.parse("/s"), expiration=7,
    )  # fmt: skip
    assert decode_parameters(encode_parameters(full)) == full
    response = ControlResponse(200, "OK", full)
    assert decode_response(encode_response(response)) == response
    told = nfd_mgmt.parse_response(encode_response(response))
    assert (told["status_code"], told["cost"], told["expiration_period"]) == (200, 3, 7)
    unknown = encode(0x68, encode(t.NAME, b"") + encode(0xF0, b"?"))
    assert decode_parameters(unknown) == ControlParameters(name=b"")
    assert parse_data(data("/a"))[2] == b"x"
