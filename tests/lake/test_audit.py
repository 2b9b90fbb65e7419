"""Where lake and nodes disagree is written down and told. No Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import ACCEPT, Reason, reject
from syncline.formats.ndn import names
from syncline.formats.ndn.signing import Hmac
from syncline.lake import every_table
from syncline.lake.audit import Finding, audit
from syncline.lake.batch import InProcess, Lander
from syncline.lake.query import Queries
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import Known, Stages, built_in_stages
from syncline.protocols.sdsp.rules import NOTHING_KNOWN
from syncline.protocols.sdsp.rules import judge as judge_frame
from syncline.protocols.svs import wire
from syncline.protocols.svs.rules import Keys, Trust, judge_arrival
from syncline.protocols.svs.rules import examine as judge_packet
from syncline.testing.segments import DAY_ZERO, FakeJournal, write_segments
from tests.lake.conftest import command, command_here, rows

GROUP, ALICE = names.parse("/room"), names.parse("/alice")
SECRET = "/room all hmac:c2VjcmV0"


def land(lake: Lake, stages: Stages | None = None) -> Any:
    sealed = sorted(found for found in list_segments(lake.segments) if isinstance(found, Segment))
    return Lander(lake, stages or built_in_stages(), InProcess(), buckets=2).land(sealed)


def frame(raw: bytes) -> Arrival:
    incoming = Incoming(protocol="sdsp", topic="objects", raw=raw, peer="p", received_at=DAY_ZERO)
    return judge_frame(incoming, lambda _: NOTHING_KNOWN)


def packet(seq: int, key: Hmac, trust: Trust) -> Arrival:
    [raw] = wire.encapsulate(ALICE, GROUP, seq, names.parse("/x"), b"x", inner=key, outer=key)
    incoming = Incoming(protocol="svs", topic="/room", raw=raw, peer="p", received_at=DAY_ZERO)
    return judge_arrival(incoming, GROUP, judge_packet(raw, GROUP, trust))


def lenient_frames() -> list[Arrival]:
    """Good, rejected rightly, accepted though the bytes are bad, rejected for content that is good, and for context."""
    good, bad = frame(b'{"uid":"x","serial":0,"data":1}'), frame(b"{")
    return [
        good,
        bad,
        bad.judged(ACCEPT),
        good.judged(reject(Reason.MALFORMED)),
        good.judged(reject(Reason.SERIAL_JUMP)),
        bad.judged(reject(Reason.OVERSIZE)),
    ]


def test_every_disagreement_on_content_is_a_row_of_audit_and_none_on_context(lake: Lake) -> None:
    journal = FakeJournal("a")
    write_segments(lake.segments.path, journal.keep(lenient_frames()))
    assert land(lake).differing == 3
    found = rows(lake, "audit").sort_by("lsn").select(["lsn", "verdict", "reason", "lake_verdict", "lake_reason"])
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (3, "accept", None, "reject", "malformed"),
        (4, "reject", "malformed", "accept", None),
        (6, "reject", "oversize", "reject", "malformed"),
    ]
    with Queries(lake, every_table()) as queries:
        findings = audit(queries)
    prefix = f"{journal.node}/{journal.epoch}"
    assert findings == [
        Finding("verdict", f"{prefix}/3", "sdsp: node accept, lake reject malformed"),
        Finding("verdict", f"{prefix}/4", "sdsp: node reject malformed, lake accept"),
        Finding("verdict", f"{prefix}/6", "sdsp: node reject oversize, lake reject malformed"),
    ]


def test_the_command_lists_findings_and_fails_if_there_are_any(tmp_path: Path) -> None:
    lake = Lake.below(tmp_path / "data")
    write_segments(lake.segments.path, FakeJournal("a").keep(lenient_frames()[:2]))
    land(lake)
    quiet = command_here(tmp_path, "lake", "audit", "--json")
    assert (quiet.returncode, quiet.stdout) == (0, "")
    write_segments(lake.segments.path, FakeJournal("b").keep(lenient_frames()))
    land(lake)
    loud = command(tmp_path, "lake", "audit", "--json")
    assert loud.returncode == 1
    assert [json.loads(line)["check"] for line in loud.stdout.splitlines()] == ["verdict"] * 3


@pytest.mark.parametrize("keys", [(), (SECRET,)])
def test_signatures_of_keys_are_checked_again_where_the_settings_name_the_key(
    lake: Lake, keys: tuple[str, ...]
) -> None:
    right, wrong = Hmac(b"secret"), Hmac(b"other")
    trust = Trust(outer=Keys([right]), inner=Keys([right]))
    forged = packet(2, wrong, trust)
    assert forged.reason is Reason.INVALID_SIGNATURE
    kept = [packet(1, right, trust), forged, packet(3, wrong, Trust(outer=Keys([wrong]), inner=Keys([wrong])))]
    write_segments(lake.segments.path, FakeJournal("a").keep(kept))
    land(lake, built_in_stages(Known(svs_keys=keys)))
    assert rows(lake, "svs_packets").num_rows == (1 if keys else 2)
    assert rows(lake, "audit")["lake_reason"].to_pylist() == (["invalid_signature"] if keys else [])


def test_what_judging_needs_comes_from_the_settings() -> None:
    from syncline.core.settings import load
    from syncline.node.plugins import protocol_sections

    known = Known.of(load(file=None, flags={"svs.keys": SECRET}, sections=protocol_sections()))
    assert known == Known((SECRET,))
    assert Known.of(load(file=None, flags={}, sections={})) == Known()
