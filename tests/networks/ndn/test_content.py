"""The content store: what enters, what is served, what is thrown out."""

from __future__ import annotations

from syncline.formats.ndn import names
from syncline.formats.ndn.packets import Data, decode_data, decode_interest, encode_data
from syncline.formats.ndn.signing import Hmac
from syncline.networks.ndn.content import ContentStore
from syncline.networks.ndn.forwarder import Forwarder
from tests.networks.ndn.conftest import Bench, data, interest, seen

TRUSTED = names.parse("/trusted")
KEY = Hmac(b"the group's key")


def trust(found: Data) -> bool | None:
    """What a node with one key knows: names below /trusted must carry its signature."""
    if not found.name.startswith(TRUSTED):
        return None
    return found.signature.kind == KEY.kind and KEY.verify(found.signed, found.signature.value)


def ask(store: ContentStore, name: str, face: int = 1, now: float = 0.0, **fields: object) -> bytes | None:
    found = store.find(decode_interest(interest(name, b"0001", **fields)), face, now)
    return None if found is None else found.data.content


def test_cached_data_answers_without_asking_again(bench: Bench) -> None:
    consumer, producer, other = bench.face(), bench.face(), bench.face()
    bench.route("/a", producer)
    bench.send(consumer, interest("/a/b", b"0001"))
    bench.send(producer, data("/a/b"))
    producer.take()
    bench.send(other, interest("/a/b", b"0002"))
    assert (seen(other.take()), producer.take(), bench.forwarder.content.hits) == (["D /a/b"], [], 1)


def test_stale_data_does_not_answer_who_wants_it_fresh() -> None:
    store = ContentStore()
    store.add(decode_data(data("/a/b", freshness=1_000)), 9, now=0.0)
    assert ask(store, "/a/b", 1, 0.5, must_be_fresh=True) == b"x"
    assert ask(store, "/a/b", 2, 1.5, must_be_fresh=True) is None
    assert ask(store, "/a/b", 3, 1.5) == b"x"
    assert ask(store, "/a", 4, 1.5, must_be_fresh=True, can_be_prefix=True) is None


def test_a_prefix_finds_the_first_name_below_it() -> None:
    store = ContentStore()
    for name in ("/a/2", "/a/1", "/b"):
        store.add(decode_data(data(name, name.encode())), 9, 0.0)
    assert ask(store, "/a", can_be_prefix=True) == b"/a/1"
    assert ask(store, "/a") is None
    assert ask(store, "/c", can_be_prefix=True) is None


def test_the_least_recently_used_goes_first() -> None:
    store = ContentStore(packets=2)
    store.add(decode_data(data("/1")), 9, 0.0)
    store.add(decode_data(data("/2")), 9, 0.0)
    assert ask(store, "/1") == b"x"
    store.add(decode_data(data("/3")), 9, 0.0)
    assert [ask(store, name) for name in ("/1", "/2", "/3")] == [None, None, b"x"]  # /1 was asked for twice


def test_data_whose_own_digest_is_wrong_is_not_kept() -> None:
    store = ContentStore()
    wire = data("/a/b", b"content")
    assert not store.add(decode_data(wire.replace(b"content", b"CONTENT")), 9, 0.0)
    assert store.add(decode_data(wire), 9, 0.0)
    assert (len(store), store.refused) == (1, 1)


def test_what_our_trust_refuses_is_not_kept_and_what_it_knows_stays() -> None:
    store = ContentStore(trust)
    assert not store.add(decode_data(data("/trusted/x", b"poison")), 9, 0.0)
    good = encode_data(names.parse("/trusted/x"), b"good", KEY)
    assert store.add(decode_data(good), 9, 0.0)
    assert [ask(store, "/trusted/x") for _ in range(3)] == [b"good"] * 3
    assert not store.add(decode_data(data("/trusted/x", b"poison")), 9, 0.0)
    assert ask(store, "/trusted/x") == b"good"


def test_poisoned_content_is_not_served_twice_to_the_same_face() -> None:
    bench = Bench(Forwarder(admit=trust))
    consumer, liar, honest = bench.face(), bench.face(), bench.face()
    bench.route("/a", liar, cost=1)
    bench.send(consumer, interest("/a/b", b"0001"))
    bench.send(liar, encode_data(names.parse("/a/b"), b"poison", Hmac(b"liar")))
    assert seen(consumer.take()) == ["D /a/b"]
    bench.forwarder.remove_face(liar)
    bench.route("/a", honest)
    bench.send(consumer, interest("/a/b", b"0002"))  # it did not validate: the consumer asks again
    assert (consumer.take(), seen(honest.take()), bench.forwarder.content.suspected) == ([], ["I /a/b"], 1)
    bench.send(honest, encode_data(names.parse("/a/b"), b"good", Hmac(b"honest")))
    assert [decode_data(wire).content for wire in consumer.take()] == [b"good"]


def test_erasing_is_by_prefix_and_bounded() -> None:
    store = ContentStore()
    for n in range(5):
        store.add(decode_data(data(f"/a/{n}")), 9, 0.0)
    store.add(decode_data(data("/b")), 9, 0.0)
    assert store.erase(names.parse("/a"), 3) == 3
    assert store.erase(names.parse("/a"), 3) == 2
    assert (len(store), store.bytes) == (1, len(data("/b")))


def test_a_store_without_room_keeps_nothing() -> None:
    store = ContentStore(packets=0)
    assert not store.add(decode_data(data("/a")), 9, 0.0)
    assert ask(store, "/a") is None
