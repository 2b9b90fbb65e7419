"""Fetching, sans-I/O: from new sequence numbers to whole publications, with a window, retries and bounds.

Mappings are asked for where topics decide, then the packets; every answer is judged before it counts. Nodes that have
never answered share a small part of the window, so that made-up ones cannot starve real ones.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Literal

from syncline.core.limits import (
    SVS_AHEAD,
    SVS_DISBELIEF_SECONDS,
    SVS_JOBS,
    SVS_JOBS_PER_NODE,
    SVS_JOBS_UNPROVEN,
    SVS_PROBES,
    SVS_PUBLICATION_BYTES,
    SVS_REASSEMBLY_BYTES,
    SVS_UNDELIVERED,
)
from syncline.core.verdict import Outcome, Reason, Verdict, reject
from syncline.formats.ndn.names import Name
from syncline.protocols.svs.rules.judge import Judged
from syncline.protocols.svs.session.events import (
    Action,
    Ask,
    Deliver,
    Failure,
    Judge,
    Options,
    Publication,
    Skipped,
    Step,
)
from syncline.protocols.svs.session.jobs import Claim, Feed, Job, Question, Rank
from syncline.protocols.svs.session.subscriptions import Subscriptions
from syncline.protocols.svs.wire.mapping import MappingData, MappingEntry
from syncline.protocols.svs.wire.naming import mapping_name, outer_name
from syncline.protocols.svs.wire.publication import Outer

MAPPINGS_PER_NODE = 4
OTHER_NAME = "another name than the mapping says"
PROBE_RETRIES = 3  # even where everything else is retried for ever


class Fetching:
    """All feeds of a group. Actions are appended to the list given."""

    def __init__(
        self,
        group: Name,
        options: Options,
        subscriptions: Subscriptions,
        random: Random,
        actions: list[Action],
        wall_offset: float,
    ) -> None:
        self.feeds: dict[Name, Feed] = {}
        self.jobs = self.bytes = self.undelivered = self.probes = 0
        self._active = dict.fromkeys(Rank, 0)  # jobs and mapping queries of the nodes of each rank
        self._group = group
        self._options = options
        self._subscriptions = subscriptions
        self._random = random
        self._actions = actions
        self._wall_offset = wall_offset  # wall time in microseconds, at steady time 0
        self._tokens = count(1)
        self._asked: dict[int, Question] = {}  # under way or being judged
        self._proofs: list[Claim] = []
        self._retries: list[tuple[float, int, Question]] = []
        self._segments: deque[Job] = deque()  # jobs with segments not asked for yet
        self._queues: dict[Rank, dict[Name, Feed]] = {rank: {} for rank in Rank}  # nodes whose turn is to come

    # what is new

    def wants(self, node: Name) -> bool:
        """Whether anybody here may want something of this node."""
        return self._subscriptions.any_topic or self._subscriptions.wants_producer(node)

    def update(self, feed: Feed, low: int, high: int, *, old: bool) -> None:
        """A node has reached `high`. `old`: it had before we joined."""
        feed.high = max(feed.high, high)
        first = not feed.started
        if first:
            feed.started = True
            feed.next = low
            if old:
                self._skip(feed, high + 1, "from_now")
        # What was there before anybody subscribed is cut to the backlog too, however long that took.
        backlog = self._options.backlog
        if backlog is not None and (first or not len(self._subscriptions)):
            self._skip(feed, high - backlog + 1, "backlog")
        self._queue(feed)

    def prove(self, feed: Feed, claim: int, *, old: bool) -> None:
        """Ask for the mapping of a number that is too far ahead to be believed; `proven` grows if there is one."""
        if feed.probe is None and self.probes < SVS_PROBES:
            self.probes += 1
            feed.probe, feed.probe_old, feed.probing = claim, old, False
            self._queue(feed)

    def take_proofs(self) -> list[Claim]:
        """The claims that have been proven since the last time."""
        proofs, self._proofs = self._proofs, []
        return proofs

    def remove(self, feed: Feed) -> None:
        """Forget a node that never answered."""
        del self.feeds[feed.node]
        self._queues[feed.rank].pop(feed.node, None)

    # what comes back

    def answered(self, token: int, wire: bytes | None, face: int, now: float) -> None:
        """An Interest was answered, or not (`wire` None)."""
        question = self._asked.get(token)
        if question is None:
            return
        if wire is None:
            self._unanswered(question, now)
            self.pump(now)
        else:
            self._actions.append(Judge(token, wire, face))

    def judged(self, token: int, judged: Judged, now: float) -> None:
        """A packet was judged, and kept if it is good."""
        question = self._asked.pop(token, None)
        if question is None:
            return
        if judged.verdict.outcome is Outcome.IGNORE and judged.verdict.reason is Reason.OVERLOADED:
            self._later(question, now)  # our own side had no room for it: that is nobody's failure, and nothing is lost
        elif not judged.verdict.accepted:
            self._refused(question, judged.verdict, judged.about, now)
        elif isinstance(judged.packet, MappingData) and question.kind != "outer":
            self._mapped(question, judged.packet, now)
        elif isinstance(judged.packet, Outer) and question.job is not None:
            self._received(question, question.job, judged.packet, now)
        else:
            self._refused(question, reject(Reason.INVALID_FIELD, "not what was asked for"), "outer", now)
        self.pump(now)

    def delivered(self, now: float) -> None:
        """The application has taken one more publication."""
        self.undelivered -= 1
        self.pump(now)

    # time

    @property
    def deadline(self) -> float | None:
        """When a retry is due; with a full window it has to wait for an answer, not for the time."""
        return self._retries[0][0] if self._retries and len(self._asked) < self._options.window else None

    def pump(self, now: float) -> None:
        """Send as many Interests as the window allows: retries first, then segments, then what is new."""
        while len(self._asked) < self._options.window:
            question = self._due_retry(now) or self._next_segment() or self._next_new(now)
            if question is None:
                return
            self._ask(question)

    def _due_retry(self, now: float) -> Question | None:
        while self._retries and self._retries[0][0] <= now:
            question = heappop(self._retries)[2]
            if question.job is None or question.job.seq in question.feed.jobs:
                return question
        return None

    def _next_segment(self) -> Question | None:
        while self._segments:
            job = self._segments[0]
            assert job.final is not None
            while job.asked in job.parts:
                job.asked += 1
            if job.asked > job.final or job.seq not in job.feed.jobs:
                self._segments.popleft()
                continue
            job.asked += 1
            return Question(next(self._tokens), "outer", job.feed, job.seq, job.seq, job, job.asked - 1)
        return None

    def _next_new(self, now: float) -> Question | None:
        if not len(self._subscriptions):
            return None  # nothing is looked at before somebody wants something
        if self.undelivered >= SVS_UNDELIVERED or self.jobs >= SVS_JOBS or self.bytes >= SVS_REASSEMBLY_BYTES:
            return None
        for rank, queue in self._queues.items():
            if rank is not Rank.PROVEN and self._active[rank] >= SVS_JOBS_UNPROVEN:
                continue
            for _ in range(len(queue)):
                feed = queue.pop(next(iter(queue)))
                question = self._next_of(feed, now)
                self._queue(feed)
                if question is not None:
                    return question
        return None

    def _next_of(self, feed: Feed, now: float) -> Question | None:
        """The next thing to ask of one node."""
        if feed.probe is not None and not feed.probing:
            feed.probing = True
            return Question(next(self._tokens), "probe", feed, feed.probe, feed.probe)
        if len(feed.jobs) >= (SVS_JOBS_PER_NODE if feed.rank is Rank.PROVEN else 1):
            return None
        if feed.ready:
            return self._start(feed, *feed.ready.popleft(), hinted=False)
        subscriptions = self._subscriptions
        while feed.next <= feed.high:
            producer = subscriptions.wants_producer(feed.node)
            if not producer and not subscriptions.any_topic:
                self._skip(feed, feed.high + 1, "no_subscription")
                return None
            # SVS-PS: the mapping is fetched if there are topics and the producer is not subscribed to.
            # It is fetched as well where a filter or an age asks for it.
            by_mapping = not producer or subscriptions.filters(feed.node) or self._options.max_age is not None
            seq = self._next_number(feed)
            entry = feed.hints.pop(seq, None)
            if entry is None and by_mapping:
                return self._query(feed)
            if seq == feed.next:
                feed.pass_over()
            else:
                feed.ahead.add(seq)
            if entry is None or self._is_wanted(feed, entry, now):
                feed.open.add(seq)
                return self._start(feed, seq, entry, hinted=entry is not None)
        return None

    def _next_number(self, feed: Feed) -> int:
        """The oldest number whose name is known already, if there is one: news need not wait for the backlog."""
        known = next(iter(feed.hints), feed.next)
        return known if feed.next <= known <= feed.high and len(feed.ahead) < SVS_AHEAD else feed.next

    def _query(self, feed: Feed) -> Question | None:
        """Ask for the mappings of the next few numbers."""
        if feed.mappings >= (MAPPINGS_PER_NODE if feed.rank is Rank.PROVEN else 1):
            return None
        low = feed.next
        high = min(low + self._options.mapping_batch - 1, feed.high)
        known = next((seq for seq in range(low + 1, high + 1) if seq in feed.hints or seq in feed.ahead), None)
        high = high if known is None else known - 1
        feed.next = high
        feed.pass_over()
        feed.open.update(range(low, high + 1))
        feed.mappings += 1
        self._active[feed.rank] += 1
        return Question(next(self._tokens), "mapping", feed, low, high)

    def _start(self, feed: Feed, seq: int, entry: MappingEntry | None, *, hinted: bool) -> Question:
        """Begin to fetch a publication, with the Interest that both forms of it answer."""
        job = feed.jobs[seq] = Job(feed, seq, entry, hinted=hinted)
        self.jobs += 1
        self._active[feed.rank] += 1
        return Question(next(self._tokens), "outer", feed, seq, seq, job)

    def _ask(self, question: Question) -> None:
        self._asked[question.token] = question
        node, group = question.feed.node, self._group
        if question.kind == "outer":
            name = outer_name(node, group, question.low, question.segment)
        else:
            name = mapping_name(node, group, question.low, question.high)
        prefix = question.kind == "outer" and question.segment is None
        # What a cache holds of the names may be from before the newest were given; packets never change.
        self._actions.append(Ask(question.token, name, prefix, question.kind != "outer", self._options.lifetime))

    # good answers

    def _mapped(self, question: Question, mapping: MappingData, now: float) -> None:
        feed = question.feed
        entries = {entry.seq: entry for entry in mapping.entries}
        if entries:
            self._note_proof(feed, max(entries))
        if question.kind == "probe":
            if entries:
                self._proofs.append(Claim(feed, question.low, feed.probe_old))
            self._end_probe(feed, None if entries else now)
            return
        self._end_query(feed)
        missing: list[int] = []
        for seq in range(question.low, question.high + 1):
            entry = entries.get(seq)
            if entry is None:
                missing.append(seq)
            elif self._is_wanted(feed, entry, now):
                feed.ready.append((seq, entry))
            else:
                feed.open.discard(seq)
        self._ask_again(question, missing, now, hopeless=not entries)
        self._queue(feed)

    def _ask_again(self, question: Question, missing: list[int], now: float, *, hopeless: bool) -> None:
        """An answer holds the names its packet took; what it lacks is asked for until one brings nothing at all."""
        feed = question.feed
        for low, high in _runs(missing):
            if hopeless:
                feed.open.difference_update(range(low, high + 1))
                self._fail(question, "mapping", "the publisher has no name for it", None)
            else:
                self._ask_names(feed, low, high, now)

    def _ask_names(self, feed: Feed, low: int, high: int, now: float) -> None:
        """Query, as soon as the window allows, the mappings of numbers that have been looked at before."""
        feed.mappings += 1
        self._active[feed.rank] += 1
        question = Question(next(self._tokens), "mapping", feed, low, high)
        heappush(self._retries, (now, question.token, question))

    def _received(self, question: Question, job: Job, outer: Outer, now: float) -> None:
        feed = job.feed
        if job.seq not in feed.jobs:
            return  # it failed while this packet was being judged
        problem = _contradiction(job, question, outer)
        if problem == OTHER_NAME and job.hinted:
            self._end_job(job)
            feed.open.add(job.seq)
            self._ask_names(feed, job.seq, job.seq, now)
            return
        if problem:
            self._fail(question, "outer", problem, reject(Reason.INVALID_FIELD, problem))
            self._end_job(job)
            return
        self._note_proof(feed, job.seq)
        job.name, job.final = outer.name, outer.final
        index = outer.segment or 0
        if index not in job.parts:
            job.parts[index] = outer.content
            job.size += len(outer.content)
            self.bytes += len(outer.content)
        too_much = self.bytes > SVS_REASSEMBLY_BYTES and self.bytes > job.size
        if job.size > SVS_PUBLICATION_BYTES or too_much:
            verdict = reject(Reason.OVERLOADED if too_much else Reason.OVERSIZE, "no room to put it together")
            self._fail(question, "segments", verdict.detail, verdict)
            self._end_job(job)
        elif job.complete:
            self._deliver(job)
        elif question.segment is None:
            self._segments.append(job)

    def _deliver(self, job: Job) -> None:
        """SVS-PS: hand it to every subscription that matches its name or its producer."""
        assert job.name is not None
        numbers = self._subscriptions.matching(job.feed.node, job.name, job.entry)
        publication = Publication(
            group=self._group,
            publisher=job.feed.node,
            seq=job.seq,
            name=job.name,
            payload=job.payload,
            entry=job.entry,
        )
        self._end_job(job)
        if numbers:
            self.undelivered += 1
            self._actions.append(Deliver(publication, numbers))

    # bad answers, and none

    def _unanswered(self, question: Question, now: float) -> None:
        """SVS-PS: a request that times out is repeated, finitely or for ever, with growing pauses."""
        del self._asked[question.token]
        question.tries += 1
        most = self._options.retries
        if most is None and question.kind == "probe":
            most = PROBE_RETRIES
        if most is not None and question.tries > most:
            self._give_up(question, "nobody answered", None, now)
        else:
            self._later(question, now)

    def _refused(self, question: Question, verdict: Verdict, about: str, now: float) -> None:
        """SVS-PS: the application is told of a packet that does not validate, which may be fetched again."""
        if question.job is not None and question.job.seq not in question.feed.jobs:
            return  # another packet of it failed before
        step: Step = "inner" if about == "inner" else "outer" if question.kind == "outer" else "mapping"
        question.refused += 1
        if question.refused > self._options.refetches:
            self._give_up(question, verdict.detail, verdict, now, step)
        else:
            self._fail(question, step, verdict.detail, verdict, final=False)
            self._later(question, now)

    def _later(self, question: Question, now: float) -> None:
        if question.spans is None:
            question.spans = self._options.backoff.spans(self._random)
        heappush(self._retries, (now + next(question.spans), question.token, question))

    def _give_up(
        self, question: Question, detail: str, verdict: Verdict | None, now: float, step: Step | None = None
    ) -> None:
        feed, job = question.feed, question.job
        feed.failed = True
        if question.kind == "probe":
            self._end_probe(feed, now)
            return
        if job is not None:
            if job.seq not in feed.jobs:
                return  # another packet of it failed before
            self._fail(question, step or ("outer" if question.segment is None else "segments"), detail, verdict)
            self._end_job(job)
            return
        self._end_query(feed)
        feed.open.difference_update(range(question.low, question.high + 1))
        self._fail(question, step or "mapping", detail, verdict)

    def _fail(
        self,
        question: Question,
        step: Step,
        detail: str,
        verdict: Verdict | None,
        *,
        final: bool = True,
    ) -> None:
        """SVS-PS: the application is told what it will not get."""
        self._actions.append(
            Failure(
                publisher=question.feed.node,
                low=question.low,
                high=question.high,
                step=step,
                detail=detail,
                verdict=verdict,
                final=final,
            )
        )

    # bookkeeping

    def _is_wanted(self, feed: Feed, entry: MappingEntry, now: float) -> bool:
        """SVS-PS: the data is fetched if a topic matches the name in the mapping, or the producer is subscribed to."""
        oldest = self._options.max_age
        if oldest is not None:
            time = entry.timestamp
            if time is not None and time < self._wall_offset + (now - oldest) * 1_000_000:
                self._actions.append(Skipped(publisher=feed.node, low=entry.seq, high=entry.seq, reason="max_age"))
                return False
        return bool(self._subscriptions.matching(feed.node, entry.name, entry))

    def _skip(self, feed: Feed, to: int, reason: Literal["backlog", "from_now", "no_subscription"]) -> None:
        if to > feed.next:
            if reason != "no_subscription":
                self._actions.append(Skipped(publisher=feed.node, low=feed.next, high=to - 1, reason=reason))
            feed.next = to - 1
            feed.pass_over()
            feed.ahead = {seq for seq in feed.ahead if seq > feed.next}
            for seq in [seq for seq in feed.hints if seq < feed.next]:
                del feed.hints[seq]

    def _note_proof(self, feed: Feed, seq: int) -> None:
        """Something validated came from this node: from now on it has the share of a real one."""
        feed.proven = max(feed.proven, seq)
        feed.failed = False
        self.rank(feed, Rank.PROVEN)

    def rank(self, feed: Feed, rank: Rank) -> None:
        """Give a node another share of the window."""
        if rank < feed.rank:
            active = len(feed.jobs) + feed.mappings
            self._active[feed.rank] -= active
            self._active[rank] += active
            self._queues[feed.rank].pop(feed.node, None)
            feed.rank = rank
            self._queue(feed)

    def _end_job(self, job: Job) -> None:
        feed = job.feed
        del feed.jobs[job.seq]
        self.jobs -= 1
        self._active[feed.rank] -= 1
        self.bytes -= job.size
        feed.open.discard(job.seq)
        self._queue(feed)

    def _end_query(self, feed: Feed) -> None:
        feed.mappings -= 1
        self._active[feed.rank] -= 1
        self._queue(feed)

    def _end_probe(self, feed: Feed, failed_at: float | None) -> None:
        feed.probe = None
        feed.probing = False
        self.probes -= 1
        if failed_at is not None:
            feed.doubted_until = failed_at + SVS_DISBELIEF_SECONDS

    def _queue(self, feed: Feed) -> None:
        if feed.busy:
            self._queues[feed.rank].setdefault(feed.node, feed)


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges, both ends included."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _contradiction(job: Job, question: Question, outer: Outer) -> str:
    """What is wrong with a packet that is valid by itself, given what else is known of its publication."""
    if outer.node != job.feed.node or outer.seq != job.seq:
        return "a packet of another publication"
    if question.segment is not None and outer.segment != question.segment:
        return "another segment than was asked for"
    if job.final is not None and outer.final != job.final:
        return "segments differ in FinalBlockId"
    if job.name is not None and outer.name != job.name:
        return "segments differ in their name"
    if job.entry is not None and outer.name != job.entry.name:
        return OTHER_NAME
    return ""
