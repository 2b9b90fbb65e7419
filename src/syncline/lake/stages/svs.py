"""SVS-PS in the lake: every outer packet once (`svs_packets`), and publications put together (`svs_publications`).

Reading, judging and putting together are the protocol's own pure rooms; here they meet Arrow. Digests are checked again;
so are signatures of keys that the settings name; for other keys the node's word stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from syncline.core.errors import UsageError
from syncline.core.limits import TEXT_MAX
from syncline.core.verdict import Outcome
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name, boundaries, parse, text
from syncline.formats.ndn.signing import Digest
from syncline.formats.records import SEQ
from syncline.lake.gaps import gaps_rule
from syncline.lake.stages import RECORD, Examined, History, KeyedRule, Known, ProtocolStages, StateRule
from syncline.lake.tables import BUCKET, Column, Table, bucket_column, record_columns
from syncline.protocols.svs.columns import decode_outer, digests_hold
from syncline.protocols.svs.rebuild import Part, Rebuilt, rebuild
from syncline.protocols.svs.rules.judge import OUTER, PROTOCOL
from syncline.protocols.svs.rules.judge import examine as judge_packet
from syncline.protocols.svs.rules.trust import Signed, Trust, read_line, trust_of

PACKETS: Final = Table(
    name="svs_packets",
    doc="Every outer packet of an SVS-PS group once, however many nodes fetched it.",
    mode="keyed",
    columns=(
        Column("series", pa.string(), "group and publisher", nullable=False),
        Column("publication", pa.string(), "group, publisher and sequence number", nullable=False),
        *record_columns("topic", "publisher"),
        Column("seq", SEQ, "the publication's sequence number", nullable=False),
        Column("segment", pa.int64(), "number of the segment; absent: the publication is this one packet"),
        Column("final_segment", pa.int64(), "number of the last segment", nullable=False),
        Column("name", pa.string(), "the application name", nullable=False),
        Column("content", pa.binary(), "this packet's part of the payload", nullable=False, unit="bytes"),
        *record_columns("id", "peer", "received_at", "node", "epoch", "lsn"),
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="series",
    identity=("id",),
    span="seq",
    sort_by=("publication", "segment"),
    statistics=("publication", "received_at"),
    plain=("content", "id"),
)

PUBLICATIONS: Final = Table(
    name="svs_publications",
    doc="Every publication of an SVS-PS group, put together from its packets.",
    mode="state",
    columns=(
        Column("publication", pa.string(), "group, publisher and sequence number", nullable=False),
        *record_columns("topic", "publisher", "seq"),
        Column("name", pa.string(), "the application name", nullable=False),
        Column("complete", pa.bool_(), "whether every packet of it is there", nullable=False),
        Column("segments", pa.int64(), "packets it has", nullable=False),
        Column("held", pa.int64(), "packets of it that landed", nullable=False),
        Column("payload", pa.binary(), "the payload, once it is complete", unit="bytes"),
        Column(
            "conflicting", pa.bool_(), "whether its publisher signed packets that contradict each other", nullable=False
        ),
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="publication",
    identity=("publication",),
    sort_by=("publication",),
    statistics=("publication",),
    plain=("payload",),
)

_DIGEST: Final = Digest()


class _Unkeyed:
    """A validator that checks digests and takes the node's word for the rest; notes when it had to."""

    def __init__(self) -> None:
        self.unknown = False

    def __call__(self, packet: Signed, node: Name) -> bool:
        signature = packet.signature
        if signature is not None and signature.kind == t.DIGEST_SHA256:
            return _DIGEST.verify(packet.signed, signature.value)
        self.unknown = True
        return True


def examine(records: pa.Table, keys: tuple[str, ...] = ()) -> Examined:
    """Judge and decode packets by their bytes, in groups that `keys` (lines of the setting svs.keys) name by these."""
    trusts: dict[Name | None, Trust] = {line.group: trust_of(line.group, keys) for line in map(read_line, keys)}
    raws = pa.concat_arrays([pa.array([], pa.binary()), *records["raw"].chunks])
    decoded, held = decode_outer(raws), digests_hold(raws).to_pylist()
    topics, kinds = records["topic"].to_pylist(), records["kind"].to_pylist()
    prefixes, reasons = decoded["prefix"].to_pylist(), decoded["reason"].to_pylist()
    applications = decoded["name"].to_pylist()
    groups: dict[str, Name | None] = {}
    outcome: list[str | None] = []
    reason: list[str | None] = []
    rows: list[int] = []
    for index, topic in enumerate(topics):
        if topic not in groups:
            groups[topic] = _group(topic)
        group = groups[topic]
        plain = (
            reasons[index] is None
            and prefixes[index] is not None
            and kinds[index] == OUTER
            and held[index] is True
            and group is not None
            and group not in trusts
            and 3 * max(len(prefixes[index]), len(applications[index])) < TEXT_MAX
            and _is_of(prefixes[index], group)
        )
        if plain:
            outcome.append(Outcome.ACCEPT.value)
            reason.append(None)
        else:
            found = _judged(raws[index].as_py(), group, trusts.get(group))
            outcome.append(found[0])
            reason.append(found[1])
        if prefixes[index] is not None and outcome[-1] != Outcome.REJECT.value:
            rows.append(index)
    table = _rows(records, decoded, rows)
    return Examined(pa.array(outcome, pa.string()), pa.array(reason, pa.string()), {PACKETS.name: table})


@lru_cache(maxsize=4_096)
def _is_of(prefix: Name, group: Name) -> bool:
    """Whether the name before a sequence number is some node's prefix, and then the group's."""
    at = len(prefix) - len(group)
    return at > 0 and prefix.endswith(group) and at in boundaries(prefix)


def _group(topic: str) -> Name | None:
    try:
        return parse(topic)
    except UsageError:
        return None


def _judged(raw: bytes | None, group: Name | None, trust: Trust | None) -> tuple[str | None, str | None]:
    """The content verdict on one packet by the node's own rules; nothing where only unknown keys could tell."""
    if raw is None or group is None:
        return None, None
    unkeyed = _Unkeyed()
    verdict = judge_packet(raw, group, trust or Trust(outer=unkeyed, inner=unkeyed, mapping=unkeyed)).verdict
    if unkeyed.unknown:
        return None, None
    return verdict.outcome.value, None if verdict.reason is None else verdict.reason.value


def _rows(records: pa.Table, decoded: pa.RecordBatch, rows: list[int]) -> pa.Table:
    chosen = pa.array(rows, pa.int64())
    packets, origin = decoded.take(chosen), records.take(chosen)
    series = pc.binary_join_element_wise(origin["topic"], origin["publisher"], " ")
    return pa.table(
        {
            RECORD: chosen,
            "series": series,
            "publication": pc.binary_join_element_wise(series, packets["seq"].cast(pa.string()), " "),
            "seq": packets["seq"].cast(SEQ),
            "segment": packets["segment"].cast(pa.int64()),
            "final_segment": packets["final"].cast(pa.int64()),
            "name": pa.array([text(name) for name in packets["name"].to_pylist()], pa.string()),
            "content": packets["content"],
        }
    )


def fold_publications(old: pa.Table, new: pa.Table, history: History) -> pa.Table:
    """The publications after these packets."""
    arrived = dict(_by_publication(new))
    before = {row["publication"] for row in old.select(["publication"]).to_pylist()}
    late = sorted(key for key in arrived if key in before)
    past = dict(_by_publication(history(late))) if late else {}
    rows = []
    for key, packets in arrived.items():
        together = [*past.get(key, ()), *packets]
        parts = [Part(p["segment"], p["final_segment"], p["name"].encode(), p["content"]) for p in together]
        rows.append(_row_of(key, together[0], rebuild(parts)))
    return pa.Table.from_pylist(rows, schema=PUBLICATIONS.file_schema)


def _by_publication(packets: pa.Table) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    wanted = ["publication", "topic", "publisher", "seq", "segment", "final_segment", "name", "content"]
    ordered = packets.select(wanted).sort_by([("publication", "ascending")]).to_pylist()
    for key, group in groupby(ordered, key=lambda row: str(row["publication"])):
        yield key, list(group)


def _row_of(key: str, packet: dict[str, Any], rebuilt: Rebuilt) -> dict[str, Any]:
    return {
        "publication": key,
        "topic": packet["topic"],
        "publisher": packet["publisher"],
        "seq": packet["seq"],
        "name": rebuilt.name.decode(),
        "complete": rebuilt.complete,
        "segments": rebuilt.segments,
        "held": rebuilt.held,
        "payload": rebuilt.payload,
        "conflicting": rebuilt.conflicting,
    }


def stages(known: Known) -> ProtocolStages:
    """Judging with the keys of the settings, digests where they name none."""
    return ProtocolStages(
        protocol=PROTOCOL,
        examine=partial(examine, keys=known.svs_keys) if known.svs_keys else examine,
        keyed=(KeyedRule(PACKETS),),
        states=(
            StateRule(PUBLICATIONS, PACKETS.name, fold_publications, on="publication"),
            gaps_rule(PACKETS, series="series", number="seq", what="sequence"),
        ),
    )
