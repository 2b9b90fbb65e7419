"""SVS-PS in the lake: packets once each, publications put together however the packets came, verdicts as the node's. No
Spark here."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import Outcome, Reason
from syncline.formats.ndn import names
from syncline.formats.ndn.packets import encode_data
from syncline.formats.ndn.signing import Digest, Hmac
from syncline.formats.records import to_arrow
from syncline.lake.batch import InProcess, Lander
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import built_in_stages
from syncline.lake.stages.svs import PUBLICATIONS, examine, fold_publications
from syncline.protocols.svs import wire
from syncline.protocols.svs.rules import Keys, Trust, judge_arrival
from syncline.protocols.svs.rules import examine as judge_packet
from syncline.protocols.svs.wire.mapping import MappingEntry
from syncline.testing.segments import DAY_ZERO, FakeJournal, write_segments
from tests.lake.conftest import rows

NODE, GROUP = names.parse("/alice"), names.parse("/room")
BOTH = Keys([Digest(), Hmac(b"k")])
TRUST = Trust(outer=BOTH, inner=BOTH, mapping=BOTH)


def outers(seq: int, name: str, payload: bytes, outer: Hmac | Digest | None = None) -> list[bytes]:
    return wire.encapsulate(NODE, GROUP, seq, names.parse(name), payload, inner=Digest(), outer=outer or Digest())


def judged(*raws: bytes) -> list[Arrival]:
    """What a node makes of these packets."""
    found = []
    for index, raw in enumerate(raws):
        incoming = Incoming(protocol="svs", topic="/room", raw=raw, peer="p", received_at=DAY_ZERO + index)
        found.append(judge_arrival(incoming, GROUP, judge_packet(raw, GROUP, TRUST)))
    return found


def records(*raws: bytes) -> pa.Table:
    return pa.Table.from_batches([to_arrow(FakeJournal("a").keep(iter(judged(*raws))))])


def forged(packet: bytes) -> bytes:
    return packet[:-1] + bytes((packet[-1] ^ 1,))


def test_the_lake_comes_to_the_nodes_verdict_from_the_bytes_alone() -> None:
    mapping = encode_data(
        wire.mapping_name(NODE, GROUP, 1, 1), wire.encode_mapping(NODE, [MappingEntry(1, NODE)]), Digest()
    )
    good = outers(1, "/chat/x", bytes(20_000))
    raws = [
        *good, mapping, forged(mapping), forged(good[0]), b"nonsense", encode_data(NODE, b"", Digest()),
        wire.encapsulate(NODE, names.parse("/other"), 1, NODE, b"", inner=Digest(), outer=Digest())[0],
        encode_data(names.generic(b"x" + GROUP) + names.number(8, 1), encode_data(NODE, b"", Digest()), Digest(),
                    content_type=6, freshness=1),
        outers(2, "/" + "x" * 2_000, b"")[0], outers(2**60, "/x", b"")[0],
    ]  # fmt: skip
    table = records(*raws)
    found = examine(table)
    assert found.outcome.to_pylist() == table["verdict"].to_pylist()
    assert found.reason.to_pylist() == table["reason"].to_pylist()
    assert found.outcome.to_pylist().count("accept") == 4


def test_where_only_keys_could_tell_the_nodes_word_stands() -> None:
    found = examine(records(outers(1, "/x", b"x", Hmac(b"k"))[0], outers(2, "/x", b"x", Hmac(b"wrong"))[0]))
    assert found.outcome.to_pylist() == [None, None]


def test_packets_become_publications_whatever_the_order_and_the_batches() -> None:
    packets = [packet for seq in range(1, 8) for packet in outers(seq, f"/chat/{seq}", bytes([seq]) * 3_000 * seq)]
    expected = None
    for seed in range(5):
        random = Random(seed)
        random.shuffle(packets)
        landed, state = None, PUBLICATIONS.file_schema.empty_table()
        cuts = sorted(random.sample(range(1, len(packets)), 3))
        for low, high in zip([0, *cuts], [*cuts, len(packets)], strict=True):
            table = records(*packets[low:high])
            rows_ = _joined(table)
            new = fold_publications(state, rows_, lambda keys, least=None, landed=landed: _of(landed, keys))
            kept = [row for row in state.to_pylist() if row["publication"] not in set(new["publication"].to_pylist())]
            state = pa.concat_tables([pa.Table.from_pylist(kept, schema=new.schema), new])
            landed = rows_ if landed is None else pa.concat_tables([landed, rows_])
        final = state.sort_by("publication")
        assert expected is None or final == expected
        expected = final
    assert expected is not None
    assert [(row["name"], len(row["payload"]), row["complete"]) for row in expected.to_pylist()] == [
        (f"/chat/{seq}", 3_000 * seq, True) for seq in range(1, 8)
    ]


def _joined(table: pa.Table) -> pa.Table:
    found = examine(table).rows["svs_packets"]
    origin = table.take(found["record"])
    return found.append_column("topic", origin["topic"]).append_column("publisher", origin["publisher"])


def _of(landed: pa.Table | None, keys: list[str]) -> pa.Table:
    assert landed is not None
    return landed.filter(pa.compute.is_in(landed["publication"], value_set=pa.array(keys, pa.string())))


def test_what_nodes_kept_lands_in_the_tables(lake: Lake) -> None:
    raws = [*outers(1, "/chat/big", bytes(20_000)), forged(outers(2, "/chat/x", b"x")[0])]
    for name, part in (("a", raws), ("b", raws[:2])):
        write_segments(lake.segments.path, FakeJournal(name).keep(iter(judged(*part))))
    sealed = sorted(found for found in list_segments(lake.segments) if isinstance(found, Segment))
    Lander(lake, built_in_stages(), InProcess(), buckets=4).land(sealed)
    assert rows(lake, "svs_packets").num_rows == 3
    [publication] = rows(lake, "svs_publications").to_pylist()
    assert (publication["name"], len(publication["payload"]), publication["held"]) == ("/chat/big", 20_000, 3)
    [rejected] = rows(lake, "rejected").to_pylist()
    assert (rejected["reason"], rejected["verdict"]) == (Reason.INVALID_SIGNATURE, Outcome.REJECT)
