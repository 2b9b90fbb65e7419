"""The session: verdicts at once, after a wait, or never; and what a failing header source does not do."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from syncline.core.limits import SHREX_AHEAD, SHREX_HEADERS, SHREX_HELD_PER_PEER
from syncline.core.verdict import ACCEPT, Outcome, Reason, Verdict, ignore, reject
from syncline.protocols.shrex.rules.headers import Kept, Trusted, link
from syncline.protocols.shrex.rules.notifications import Known, verify
from syncline.protocols.shrex.service.validator import MessageValidator, ValidationResult
from syncline.protocols.shrex.session.peers import PeerLimits, PeerManager
from syncline.protocols.shrex.session.session import Action, CutPeer, Session, Settle
from syncline.protocols.shrex.wire.notification import Notification, encode
from syncline.testing.headers import chain


def root(height: int) -> bytes:
    return sha256(b"%d" % height).digest()


def note(height: int, data_hash: bytes | None = None) -> Notification:
    return Notification(height, root(height) if data_hash is None else data_hash)


def session(head: int = 100, *, blacklist: bool = False) -> Session:
    made = Session(PeerManager(PeerLimits(blacklist_peers=blacklist)))
    for height in range(90, head + 1):
        made.header(height, root(height), 0.0)
    return made


def verdicts(actions: list[Action]) -> list[tuple[Any, Verdict]]:
    return [(action.ticket, action.verdict) for action in actions if isinstance(action, Settle)]


def reasons(actions: list[Action]) -> list[tuple[Any, Outcome, Reason | None]]:
    return [(ticket, verdict.outcome, verdict.reason) for ticket, verdict in verdicts(actions)]


def test_a_notification_of_a_known_block_is_decided_at_once() -> None:
    made = session()
    assert verdicts(made.arrived("t", "p", note(100), 0.0)) == [("t", ACCEPT)]
    assert reasons(made.arrived("t", "p", note(100, root(1)), 0.0)) == [("t", Outcome.REJECT, Reason.HEADER_MISMATCH)]
    assert made.held == 0


def test_a_notification_ahead_of_our_head_waits_for_its_header() -> None:
    made = session()
    assert made.arrived("true", "p", note(101), 0.0) == []
    assert made.arrived("false", "q", note(101, root(1)), 1.0) == []
    assert made.arrived("later", "p", note(102), 1.0) == []
    assert made.held == 3
    found = made.header(101, root(101), 2.0)
    assert reasons(found) == [("true", Outcome.ACCEPT, None), ("false", Outcome.REJECT, Reason.HEADER_MISMATCH)]
    assert made.held == 1
    assert made.tick(120.9) == []
    assert reasons(made.tick(121.0)) == [("later", Outcome.IGNORE, Reason.HEADER_UNKNOWN)]
    assert made.held == 0
    assert made.header(102, root(102), 130.0) == []  # nothing is decided twice


def test_when_no_header_comes_in_time_nobody_is_blamed() -> None:
    made = Session(PeerManager(PeerLimits(blacklist_peers=True)))
    for number in range(10):
        assert made.arrived(number, f"p{number}", note(500 + number), 0.0) == []
    found = made.tick(121.0)
    assert {verdict.blames_sender for _, verdict in verdicts(found)} == {False}
    actions = [action for number in range(10) for action in made.settled(f"p{number}", note(500), found[0].verdict)]  # type: ignore[union-attr]
    assert actions == []
    assert made.manager.statistics(0.0)["blacklisted_peers"] == 0


def test_messages_below_the_first_header_blacklist_nobody() -> None:
    """A regression others had: notifications that nobody could validate were held against who sent them."""
    made = session(blacklist=True)
    found = made.arrived("old", "p", note(50), 0.0)
    assert reasons(found) == [("old", Outcome.IGNORE, Reason.OUT_OF_WINDOW)]
    assert made.settled("p", note(50), ignore(Reason.OUT_OF_WINDOW)) == []
    assert not made.manager.is_blacklisted("p")
    assert not made.manager.is_bad_hash(root(50))


def test_what_waits_is_bounded_by_peer_and_by_height() -> None:
    made = session()
    for number in range(SHREX_HELD_PER_PEER):
        assert made.arrived(number, "p", note(101 + number), 0.0) == []
    full = made.arrived("more", "p", note(101), 0.0)
    assert reasons(full) == [("more", Outcome.IGNORE, Reason.HEADER_UNKNOWN)]
    assert made.arrived("other", "q", note(101), 0.0) == []
    assert made.arrived("edge", "q", note(100 + SHREX_AHEAD), 0.0) == []
    far = made.arrived("far", "q", note(101 + SHREX_AHEAD), 0.0)
    assert reasons(far) == [("far", Outcome.IGNORE, Reason.HEADER_UNKNOWN)]
    assert reasons(made.arrived("end", "q", note(2**64 - 1), 0.0)) == [("end", Outcome.IGNORE, Reason.HEADER_UNKNOWN)]


def test_what_waits_is_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.protocols.shrex.session.session.SHREX_HELD", 50)
    made = session()
    for number in range(100):
        made.arrived(number, f"p{number}", note(101), 0.0)
    assert made.held == 50
    made.tick(200.0)
    assert (made.held, len(made._held_of), len(made._waiting)) == (0, 0, 0)


def test_a_hash_known_to_be_false_is_not_waited_for() -> None:
    made = session()
    made.settled("liar", note(100, root(1)), reject(Reason.HEADER_MISMATCH))
    found = made.arrived("t", "p", note(101, root(1)), 0.0)
    assert reasons(found) == [("t", Outcome.IGNORE, Reason.HEADER_UNKNOWN)]


def test_the_forwarder_is_credited_and_a_liar_cut_if_blacklisting_is_on() -> None:
    made = session(blacklist=True)
    assert made.settled("p", note(100), ACCEPT) == []
    assert made.manager.pool_peers(root(100)) == ["p"]
    assert made.settled("liar", note(100, root(1)), reject(Reason.HEADER_MISMATCH)) == [CutPeer("liar")]
    assert made.settled("p", note(100), reject(Reason.JUDGE_FAILED)) == []
    assert session().settled("liar", note(100, root(1)), reject(Reason.HEADER_MISMATCH)) == []


def test_listeners_hear_of_a_block_once_however_many_announce_it() -> None:
    made = session()
    assert [made.is_news(note(100)) for _ in range(3)] == [True, False, False]
    assert made.is_news(note(100, root(1)))
    for height in range(2 * SHREX_HEADERS - 2):  # as many others as can be told of while its header is kept
        made.is_news(note(10_000 + height))
    assert not made.is_news(note(100))
    made.is_news(note(9_999))
    assert made.is_news(note(100))  # long forgotten, and its header too


def test_headers_are_kept_up_to_a_number() -> None:
    made = Session(PeerManager())
    for height in range(1, SHREX_HEADERS + 11):
        made.header(height, root(1), 0.0)
    assert made.statistics(0.0)["headers"] == SHREX_HEADERS
    assert made.known(5) == Known(None, 11, SHREX_HEADERS + 10)
    assert reasons(made.arrived("t", "p", note(5), 0.0)) == [("t", Outcome.IGNORE, Reason.OUT_OF_WINDOW)]


def test_pools_are_collected_with_the_time_also_while_no_headers_come() -> None:
    made = Session(PeerManager())
    for height in range(1, 41):
        made.header(height, root(height), 0.0)
    assert made.statistics(0.0)["pools"] == 40
    made.tick(30.0)
    assert made.statistics(30.0)["pools"] == 11


@pytest.mark.parametrize(
    ("known", "outcome", "reason"),
    [
        (Known(root(5), 1, 10), Outcome.ACCEPT, None),
        (Known(root(6), 1, 10), Outcome.REJECT, Reason.HEADER_MISMATCH),
        (Known(None, 0, 0), Outcome.IGNORE, Reason.HEADER_UNKNOWN),
        (Known(None, 1, 4), Outcome.IGNORE, Reason.HEADER_UNKNOWN),
        (Known(None, 6, 10), Outcome.IGNORE, Reason.OUT_OF_WINDOW),
        (Known(None, 1, 5), Outcome.REJECT, Reason.HEADER_UNKNOWN),
    ],
)
def test_verification_follows_from_what_is_known(known: Known, outcome: Outcome, reason: Reason | None) -> None:
    verdict = verify(note(5), known)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)


# the chain


def test_headers_are_linked_back_to_the_trusted_one() -> None:
    first, second, third = chain(3)
    trusted = Trusted(1, first.hash)
    kept = Kept(first.hash, first.data_hash)
    assert link(first, None, trusted, is_first=True).accepted
    assert link(second, kept, trusted, is_first=False).accepted
    assert link(third, kept, trusted, is_first=False).reason is Reason.HEADER_MISMATCH
    assert link(second, None, trusted, is_first=True).reason is Reason.HEADER_UNKNOWN
    assert link(third, None, None, is_first=False).reason is Reason.HEADER_UNKNOWN
    assert link(second, None, None, is_first=True).accepted
    forged = chain(1, seed="forged")[0]
    assert link(forged, None, trusted, is_first=True).reason is Reason.HEADER_MISMATCH
    assert Kept.from_bytes(kept.to_bytes()) == kept


# the public validator


def test_the_validator_accepts_rejects_and_fills_pools() -> None:
    made = session()
    validator = MessageValidator(made)
    assert validator.validate("p", encode(note(100))) is ValidationResult.ACCEPT
    assert made.manager.pool_peers(root(100)) == ["p"]
    assert validator.validate("q", encode(note(100, root(1)))) is ValidationResult.REJECT
    assert validator.validate("q", b"\xff") is ValidationResult.REJECT
    assert validator.validate("q", encode(note(101))) is ValidationResult.REJECT
    assert not validator.judge("q", encode(note(101))).blames_sender
    assert made.manager.pool_peers(root(100)) == ["p"]


def test_a_root_that_the_operator_refuses_is_refused_by_the_validator_and_is_not_waited_for() -> None:
    made = Session(PeerManager(), refused_roots=frozenset((root(100), root(101))))
    made.header(100, root(100), 0.0)
    validator = MessageValidator(made)
    assert validator.validate("p", encode(note(100))) is ValidationResult.REJECT
    assert validator.judge("p", encode(note(101))).reason is Reason.UNAUTHORISED
    assert made.manager.pool_peers(root(100)) == []
    assert reasons(made.arrived("t", "p", note(101), 0.0)) == [("t", Outcome.REJECT, Reason.UNAUTHORISED)]


def test_a_validator_that_raises_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    made = session()

    def broken(notification: Notification) -> Verdict:
        raise ZeroDivisionError

    monkeypatch.setattr(made, "verdict", broken)
    validator = MessageValidator(made)
    assert validator.validate("p", encode(note(100))) is ValidationResult.REJECT
    assert validator.judge("p", encode(note(100))).reason is Reason.JUDGE_FAILED
