"""Every requirement and every limit of the five specifications, broken on purpose: each refused for its own reason,
nothing kept as valid, and the sender counted if and only if it is to blame.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from syncline.core.ports import RecordQuery
from syncline.core.verdict import Outcome, Reason, Verdict
from syncline.journal import Journal
from syncline.protocols.shrex.rules.notifications import judge_message
from syncline.protocols.shrex.wire.notification import TOPIC
from syncline.testing.badinputs import ROOMS, cases, write
from syncline.testing.badinputs.__main__ import main
from syncline.testing.clock import FakeClock
from tests.campaigns.conftest import Figures

pytestmark = pytest.mark.campaign
NOW = 1_772_323_200_000_000
# Reasons that depend on more than one message at a time; each has its own tests (docs/reliability.md names them).
ELSEWHERE = {
    Reason.DUPLICATE, Reason.RATE_LIMITED, Reason.QUOTA_EXCEEDED, Reason.NOT_SUBSCRIBED, Reason.FORBIDDEN_ADDRESS,
    Reason.LOOP, Reason.OVERLOADED, Reason.JUDGE_FAILED, Reason.UNKNOWN_ALGORITHM,
}  # fmt: skip


@pytest.mark.parametrize("protocol", ROOMS)
def test_every_named_bad_input_is_refused_for_its_own_reason(protocol: str, tmp_path: Path, figures: Figures) -> None:
    cases = list(ROOMS[protocol]())
    assert len({case.name for case in cases}) == len(cases), "a name is given twice"
    journal = Journal.open(tmp_path / "journal.db", node="node", clock=FakeClock(NOW))
    answered: Counter[str] = Counter()
    wrong, blamed = [], 0
    try:
        for case in cases:
            arrival = case.judged()
            if (arrival.verdict, arrival.reason) != (case.outcome, case.reason):
                wrong.append(f"{case.name}: {arrival.verdict} {arrival.reason}, not {case.outcome} {case.reason}")
                continue
            [receipt] = journal.append_sync([arrival])
            assert not receipt.accepted
            blames = Verdict(receipt.arrival.verdict, receipt.arrival.reason).blames_sender
            assert blames == (case.outcome is Outcome.REJECT)
            blamed += blames
            answered[case.reason] += 1
        assert wrong == []
        kept = journal.read(RecordQuery(limit=10_000))
        assert Counter(record.verdict for record in kept) == Counter(case.outcome for case in cases)
        assert not any(record.raw for record in kept if record.verdict is Outcome.IGNORE)
    finally:
        journal.close()
    figures(protocol=protocol, inputs=len(cases), blamed=blamed, reasons=dict(answered))


def test_there_are_three_hundred_and_every_reason_is_among_them() -> None:
    cases = [case for room in ROOMS.values() for case in room()]
    assert len(cases) >= 300
    assert {case.reason for case in cases} == set(Reason) - ELSEWHERE


def test_others_get_the_bytes_and_what_they_must_answer(tmp_path: Path) -> None:
    assert main([str(tmp_path), "shrex"]) == 0
    index = msgspec.json.decode((tmp_path / "index.json").read_bytes())
    assert len(index) == len(list(tmp_path.glob("shrex-*.bin"))) >= 45
    [zeros] = [entry for entry in index if entry["name"] == "payload: a hash of zeros"]
    assert (zeros["outcome"], zeros["reason"]) == ("reject", "invalid_field")
    assert judge_message((tmp_path / zeros["file"]).read_bytes(), TOPIC)[2].reason is Reason.INVALID_FIELD
    assert main([]) == main([str(tmp_path), "smtp"]) == 2
    assert len(cases()) > write(tmp_path / "all", cases()) > 400
