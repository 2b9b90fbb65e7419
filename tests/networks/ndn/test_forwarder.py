"""The forwarder's pipelines: Interests out, Data back, loops, scope, Nacks, strategies."""

from __future__ import annotations

from syncline.core.limits import NDN_FACE_MALFORMED, NDN_LIFETIME_MS
from syncline.formats.ndn import names
from syncline.formats.ndn import types as t
from syncline.formats.ndn.link import decode_link, encode_nack, fragment, with_token
from syncline.formats.ndn.packets import decode_data, decode_interest, encode_interest
from syncline.formats.ndn.signing import Digest
from syncline.formats.tlv import encode
from syncline.networks.ndn.forwarder import Forwarder, Limits
from syncline.networks.ndn.routes import CAPTURE, CHILD_INHERIT
from tests.networks.ndn.conftest import Bench, data, interest, seen


def test_data_comes_back_the_way_the_interest_went(bench: Bench) -> None:
    consumer, producer, other = bench.face(), bench.face(), bench.face()
    bench.route("/a", producer)
    wire = interest("/a/b", b"0001")
    bench.send(consumer, wire)
    assert producer.take() == [wire]
    bench.send(producer, data("/a/b"))
    assert consumer.take() == [data("/a/b")]
    assert (producer.take(), other.take(), len(bench.forwarder.pending)) == ([], [], 0)
    assert (consumer.pending, consumer.counters.satisfied) == (0, 1)


def test_a_pit_token_is_given_back_to_its_owner(bench: Bench) -> None:
    one, two, producer = bench.face(), bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(one, with_token(b"token1", interest("/a/b", b"0001")))
    bench.send(two, interest("/a/b", b"0002"))
    assert producer.take() == [interest("/a/b", b"0001")]
    bench.send(producer, data("/a/b"))
    assert one.take() == [with_token(b"token1", data("/a/b"))]
    assert two.take() == [data("/a/b")]


def test_the_longest_prefix_wins(bench: Bench) -> None:
    consumer, near, far = bench.face(), bench.face(), bench.face()
    bench.route("/a", far, flags=0)
    bench.route("/a/b", near)
    bench.send(consumer, interest("/a/b/c", b"0001"), interest("/a/x", b"0002"), interest("/ab", b"0003"))
    assert seen(near.take()) == ["I /a/b/c"]
    assert seen(far.take()) == ["I /a/x"]
    assert seen(consumer.take()) == ["N /ab 150"]


def test_an_inheritable_route_serves_longer_prefixes_too_unless_captured(bench: Bench) -> None:
    consumer, near, far = bench.face(), bench.face(), bench.face()
    bench.route("/", far, cost=10)
    bench.route("/a", near)
    bench.route("/b", near, flags=CAPTURE)
    hops = bench.forwarder.routes.hops
    assert [hop.face for hop in hops(names.parse("/a/1"))] == [near.id, far.id]
    assert [hop.face for hop in hops(names.parse("/b/1"))] == [near.id]
    bench.route("/b/c", near, flags=CHILD_INHERIT)
    assert [hop.face for hop in hops(names.parse("/b/c"))] == [near.id]
    assert bench.forwarder.remove_face(far) == [b""]
    assert [hop.face for hop in hops(names.parse("/a/1"))] == [near.id]
    assert hops(names.parse("/c")) == ()
    assert consumer.take() == []


def test_of_several_routes_by_one_face_the_nearest_tells_the_cost(bench: Bench) -> None:
    consumer, one, two = bench.face(), bench.face(), bench.face()
    bench.route("/", one, cost=0)
    bench.route("/a", one, cost=9)  # dearer here than in general
    bench.route("/a", two, cost=5)
    bench.send(consumer, interest("/a/b", b"0001"))
    assert (one.take(), seen(two.take())) == ([], ["I /a/b"])


def test_an_interest_that_can_be_a_prefix_takes_longer_data(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a", b"0001", can_be_prefix=True), interest("/a/b", b"0002"))
    producer.take()
    bench.send(producer, data("/a/b/c"))
    assert seen(consumer.take()) == ["D /a/b/c"]
    assert len(bench.forwarder.pending) == 1
    bench.send(producer, data("/a/b"))
    assert seen(consumer.take()) == ["D /a/b"]


def test_a_full_name_is_matched_by_its_digest(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    wanted = data("/a/b", b"right")
    full = names.parse("/a/b") + names.component(t.IMPLICIT_DIGEST, decode_data(wanted).implicit_digest)
    bench.send(consumer, encode_interest(full, nonce=b"0001"))
    bench.send(producer, data("/a/b", b"wrong"))
    assert consumer.take() == []
    bench.send(producer, wanted)
    assert consumer.take() == [wanted]
    bench.send(consumer, encode_interest(full, nonce=b"0002"))
    assert consumer.take() == [wanted]  # from the content store


def test_data_nobody_asked_for_is_dropped(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(producer, data("/a/b"))
    assert producer.counters.unsolicited == 1
    bench.send(consumer, interest("/a/b", b"0001"))
    assert seen(producer.take()) == ["I /a/b"]  # it did not enter the content store either


def test_only_a_face_that_was_asked_may_answer(bench: Bench) -> None:
    consumer, producer, thief = bench.face(), bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a/b", b"0001"))
    bench.send(thief, data("/a/b", b"poison"))
    assert (consumer.take(), thief.counters.unsolicited, len(bench.forwarder.content)) == ([], 1, 0)
    bench.send(producer, data("/a/b", b"good"))
    assert [decode_data(wire).content for wire in consumer.take()] == [b"good"]


def test_the_consumer_may_not_answer_itself(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a/b", b"0001"), data("/a/b"))
    assert (consumer.take(), consumer.counters.unsolicited) == ([], 1)


def test_an_expired_interest_is_forgotten(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a/b", b"0001", lifetime=1_000))
    bench.advance(0.9)
    assert len(bench.forwarder.pending) == 1
    bench.advance(0.3)
    assert (len(bench.forwarder.pending), consumer.pending, consumer.counters.unsatisfied) == (0, 0, 1)
    bench.send(producer, data("/a/b"))
    assert (consumer.take(), producer.counters.unsolicited) == ([], 1)


def test_a_retransmission_keeps_an_entry_alive(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a/b", b"0001", lifetime=1_000))
    bench.advance(0.9)
    bench.send(consumer, interest("/a/b", b"0002", lifetime=1_000))
    bench.advance(0.9)
    assert seen(producer.take()) == ["I /a/b", "I /a/b"]
    bench.send(producer, data("/a/b"))
    assert seen(consumer.take()) == ["D /a/b"]


def test_a_lifetime_is_capped(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a/b", b"0001", lifetime=2**63))
    bench.advance(NDN_LIFETIME_MS / 1_000 + 0.2)
    assert len(bench.forwarder.pending) == 0


def test_a_looping_interest_is_nacked(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a/b", b"0001"))
    bench.send(producer, interest("/a/b", b"0001"))  # it came round
    assert seen(producer.take()) == ["I /a/b", "N /a/b 100"]
    assert bench.forwarder.loops == 1
    bench.send(producer, data("/a/b"))
    consumer.take()
    bench.send(producer, interest("/a/b", b"0001"))  # and once more, after the entry is gone
    assert seen(producer.take()) == ["N /a/b 100"]


def test_a_nonce_that_was_sent_on_is_remembered_even_when_its_consumer_asked_again(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a/b", b"0001"))
    bench.send(consumer, interest("/a/b", b"0002"))  # too soon to be sent on
    bench.send(producer, data("/a/b"))
    producer.take()
    bench.send(producer, interest("/a/b", b"0001"))
    assert seen(producer.take()) == ["N /a/b 100"]


def test_the_hop_limit_counts_down_and_ends_the_journey(bench: Bench) -> None:
    consumer, local, far = bench.face(), bench.face(), bench.face(local=False)
    bench.route("/a", far)
    bench.send(consumer, interest("/a/b", b"0001", hop_limit=2))
    assert [decode_interest(wire).hop_limit for wire in far.take()] == [1]
    bench.send(consumer, interest("/a/c", b"0002", hop_limit=0))
    assert (far.take(), consumer.take()) == ([], [])
    bench.send(consumer, interest("/a/d", b"0003", hop_limit=1))  # its last hop may only be an application here
    assert (far.take(), seen(consumer.take())) == ([], ["N /a/d 150"])
    bench.route("/a", local)
    bench.send(consumer, interest("/a/e", b"0004", hop_limit=1))
    assert seen(local.take()) == ["I /a/e"]


def test_localhost_names_stay_on_this_machine(bench: Bench) -> None:
    local, far, app = bench.face(), bench.face(local=False), bench.face()
    bench.route("/localhost/app", app)
    bench.route("/localhost/far", far)
    bench.send(far, interest("/localhost/app/x", b"0001"))
    assert (app.take(), far.take(), bench.forwarder.out_of_scope) == ([], [], 1)
    bench.send(local, interest("/localhost/far/x", b"0002"))
    assert (far.take(), seen(local.take())) == ([], ["N /localhost/far/x 150"])
    bench.send(local, interest("/localhost/app/x", b"0003"))
    assert seen(app.take()) == ["I /localhost/app/x"]
    bench.send(far, data("/localhost/app/x"))
    assert (local.take(), bench.forwarder.out_of_scope) == ([], 2)


def test_localhop_names_go_one_hop(bench: Bench) -> None:
    near, far, farther = bench.face(), bench.face(local=False), bench.face(local=False)
    bench.route("/localhop/x", farther)
    bench.send(far, interest("/localhop/x/1", b"0001"))
    assert (farther.take(), seen(far.take())) == ([], ["N /localhop/x/1 150"])
    bench.send(near, interest("/localhop/x/2", b"0002"))
    assert seen(farther.take()) == ["I /localhop/x/2"]


def test_no_route_is_said_at_once(bench: Bench) -> None:
    consumer = bench.face()
    bench.send(consumer, with_token(b"tok", interest("/nowhere", b"0001")))
    [nack] = consumer.take()
    link = decode_link(nack)
    assert (link.nack, link.pit_token, link.fragment) == (t.NACK_NO_ROUTE, b"tok", interest("/nowhere", b"0001"))
    assert len(bench.forwarder.pending) == 0


def test_a_forwarding_hint_is_a_second_chance(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/isp", producer)
    bench.send(consumer, interest("/a/b", b"0001", hints=(names.parse("/isp"),)))
    assert seen(producer.take()) == ["I /a/b"]


def test_a_forwarding_hint_is_better_than_the_default_route(bench: Bench) -> None:
    consumer, uplink, region, producer = bench.face(), bench.face(), bench.face(), bench.face()
    bench.route("/", uplink, cost=100)
    bench.route("/isp", region)
    bench.send(consumer, interest("/a/1", b"0001", hints=(names.parse("/isp"),)))
    bench.send(consumer, interest("/a/2", b"0002", hints=(names.parse("/other"),)))
    assert (seen(region.take()), seen(uplink.take())) == (["I /a/1"], ["I /a/2"])
    bench.route("/a", producer)  # here is where the hint leads to
    bench.send(consumer, interest("/a/3", b"0003", hints=(names.parse("/isp"),)))
    assert (seen(producer.take()), region.take()) == (["I /a/3"], [])


def test_interests_with_other_hints_are_other_interests(bench: Bench) -> None:
    one, two, isp, net = bench.face(), bench.face(), bench.face(), bench.face()
    bench.route("/isp", isp)
    bench.route("/net", net)
    bench.send(one, interest("/a", b"0001", hints=(names.parse("/isp"),)))
    bench.send(two, interest("/a", b"0002", hints=(names.parse("/net"),)))
    assert (seen(isp.take()), seen(net.take())) == (["I /a"], ["I /a"])
    bench.send(net, data("/a"))
    assert (one.take(), seen(two.take())) == ([], ["D /a"])


def test_a_nack_tries_the_next_best_route_and_then_goes_back(bench: Bench) -> None:
    consumer, cheap, dear = bench.face(), bench.face(), bench.face()
    bench.route("/a", cheap, cost=1)
    bench.route("/a", dear, cost=2)
    wire = interest("/a/b", b"0001")
    bench.send(consumer, wire)
    assert (cheap.take(), dear.take()) == ([wire], [])
    bench.send(cheap, encode_nack(wire, t.NACK_NO_ROUTE))
    assert dear.take() == [wire]
    bench.send(dear, encode_nack(wire, t.NACK_CONGESTION))
    assert seen(consumer.take()) == ["N /a/b 50"]
    assert len(bench.forwarder.pending) == 0


def test_a_nack_leaves_the_hops_that_are_left(bench: Bench) -> None:
    consumer, one, two = bench.face(), bench.face(local=False), bench.face(local=False)
    bench.route("/a", one, cost=1)
    bench.route("/a", two, cost=2)
    bench.send(consumer, interest("/a/b", b"0001", hop_limit=2))
    [sent] = one.take()
    bench.send(one, encode_nack(sent, t.NACK_NO_ROUTE))
    assert two.take() == [sent]


def test_the_mildest_nack_is_passed_on_with_the_interest_as_it_came(bench: Bench) -> None:
    consumer, one, two = bench.face(), bench.face(), bench.face()
    bench.route("/a", one, cost=1)
    bench.route("/a", two, cost=2)
    wire = interest("/a/b", b"0001", hop_limit=9)
    bench.send(consumer, wire)
    bench.send(one, encode_nack(one.take()[0], 0))  # no reason is the worst reason
    bench.send(two, encode_nack(two.take()[0], t.NACK_DUPLICATE))
    [nack] = consumer.take()
    assert (decode_link(nack).nack, decode_link(nack).fragment) == (t.NACK_DUPLICATE, wire)


def test_a_producer_that_came_back_gets_what_its_old_connection_was_asked(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a/b", b"0001"))
    bench.forwarder.remove_face(producer)
    bench.advance(1)
    again = bench.face()
    bench.route("/a", again)
    bench.send(consumer, interest("/a/b", b"0002"))
    assert seen(again.take()) == ["I /a/b"]
    bench.send(again, data("/a/b"))
    assert seen(consumer.take()) == ["D /a/b"]


def test_a_nack_is_passed_on_when_the_others_that_were_asked_are_gone(bench: Bench) -> None:
    consumer, one, two = bench.face(), bench.face(), bench.face()
    for face in (one, two):
        bench.route("/a", face)
    bench.forwarder.strategies.choose(names.parse("/a"), "multicast")
    bench.send(consumer, interest("/a/b", b"0001"))
    bench.forwarder.remove_face(one)
    bench.send(two, encode_nack(two.take()[0], t.NACK_NO_ROUTE))
    assert seen(consumer.take()) == ["N /a/b 150"]


def test_a_nack_from_a_stranger_or_with_another_nonce_changes_nothing(bench: Bench) -> None:
    consumer, producer, stranger = bench.face(), bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a/b", b"0001"))
    bench.send(stranger, encode_nack(interest("/a/b", b"0001"), t.NACK_NO_ROUTE))
    bench.send(producer, encode_nack(interest("/a/b", b"0009"), t.NACK_NO_ROUTE))
    assert (consumer.take(), len(bench.forwarder.pending)) == ([], 1)


def test_a_retransmission_tries_another_route(bench: Bench) -> None:
    consumer, one, two = bench.face(), bench.face(), bench.face()
    bench.route("/a", one, cost=1)
    bench.route("/a", two, cost=2)
    bench.send(consumer, interest("/a/b", b"0001"))
    bench.send(consumer, interest("/a/b", b"0002"))  # too soon
    assert (len(one.take()), len(two.take())) == (1, 0)
    bench.advance(0.2)
    bench.send(consumer, interest("/a/b", b"0003"))
    assert (len(one.take()), len(two.take())) == (0, 1)
    bench.advance(0.2)
    bench.send(consumer, interest("/a/b", b"0004"))
    assert (len(one.take()), len(two.take())) == (1, 0)


def test_a_sync_interest_reaches_every_member_of_the_group(bench: Bench) -> None:
    members = [bench.face() for _ in range(3)]
    for member in members:
        bench.route("/ndn/svs", member)
    wire = encode_interest(
        names.parse("/ndn/svs/v=2"), nonce=b"0001", lifetime=1_000, parameters=b"vector", signer=Digest()
    )
    bench.send(members[0], wire)
    assert [member.take() for member in members] == [[], [wire], [wire]]
    again = wire.replace(b"0001", b"0002")
    bench.send(members[1], again)  # another member in the same state: the first has not heard it yet
    assert [len(member.take()) for member in members] == [1, 0, 0]


def test_a_chosen_strategy_overrides_the_default(bench: Bench) -> None:
    consumer, one, two = bench.face(), bench.face(), bench.face()
    for face in (one, two):
        bench.route("/a", face)
    bench.forwarder.strategies.choose(names.parse("/a/m"), "multicast")
    bench.send(consumer, interest("/a/m/1", b"0001"), interest("/a/x", b"0002"))
    assert seen(one.take()) == ["I /a/m/1", "I /a/x"]
    assert seen(two.take()) == ["I /a/m/1"]


def test_fragments_are_put_together(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a/b", b"0001"))
    wire = data("/a/b", bytes(5_000))
    pieces = fragment(wire, 1_400, 77)
    bench.send(producer, *reversed(pieces))
    assert consumer.take() == [wire]


def test_malformed_packets_change_nothing_and_too_many_end_the_connection(bench: Bench) -> None:
    face = bench.face()
    for number in range(NDN_FACE_MALFORMED - 1):
        bench.send(face, b"\x06\x01" + bytes((number,)))
    assert (face.closed, face.counters.malformed) == (False, NDN_FACE_MALFORMED - 1)
    bench.send(face, b"\x99\x00", interest("/a", b"0001"))
    assert (face.closed, face.counters.in_interests) == (True, 0)


def test_an_interest_without_a_nonce_is_given_one(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    whole = interest("/a", b"0001", can_be_prefix=True, lifetime=1_000, hop_limit=9)
    bare = encode(t.INTEREST, whole[2:].replace(b"\x0a\x040001", b""))
    assert decode_interest(bare).nonce is None
    bench.send(consumer, bare)
    [sent] = producer.take()
    given = decode_interest(sent)
    assert given.nonce is not None
    assert sent == interest("/a", given.nonce, can_be_prefix=True, lifetime=1_000, hop_limit=8)
    bench.send(producer, data("/a/1"))
    assert seen(consumer.take()) == ["D /a/1"]


def test_a_face_over_its_rate_is_told_so() -> None:
    bench = Bench(Forwarder(limits=Limits(interests_per_second=10)))
    consumer, producer, honest = bench.face(), bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, *[interest(f"/a/{n}", bench.nonce()) for n in range(15)])
    assert len(producer.take()) == 10
    assert seen(consumer.take()) == [f"N /a/{n} 50" for n in range(10, 15)]
    bench.send(honest, interest("/a/h", bench.nonce()))
    assert seen(producer.take()) == ["I /a/h"]
    bench.advance(1)
    bench.send(consumer, interest("/a/x", bench.nonce()))
    assert seen(producer.take()) == ["I /a/x"]


def test_a_face_that_leaves_frees_what_it_held(bench: Bench) -> None:
    consumer, producer = bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a/b", b"0001"))
    assert bench.forwarder.remove_face(consumer) == []
    bench.send(producer, data("/a/b"))
    assert (len(bench.forwarder.pending), consumer.take()) == (0, [])
    assert bench.forwarder.remove_face(producer) == [names.parse("/a")]
    assert (len(bench.forwarder.routes), bench.forwarder.faces) == (0, {})
