"""The pure decisions: settling, planning, choosing, backing off, transitions, verdicts."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuscuta import backoff, errors, limits, settling, spans
from cuscuta.errors import Verdict, verdict_of
from cuscuta.model import ActiveJob, Essential, Failure, JobStatus, JobTag, Priority, Queue
from cuscuta.spans import Span
from cuscuta.transitions import JOB, allowed
from entry.turns import SHARES, preference
from worker import choice
from worker.failures import describe

NOW = datetime(2026, 1, 1, tzinfo=UTC)
inner = st.builds(lambda a, n: Span(a, min(50, a + n)), st.integers(0, 49), st.integers(1, 20))
parts = st.lists(inner, max_size=10)


@given(parts, parts)
def test_judge_ends_a_job_only_when_every_item_is_accounted_for(stored: list[Span], dead: list[Span]) -> None:
    whole = Span(0, 50)
    finding = settling.judge(whole, stored, dead)
    covered = spans.total([*stored, *dead])
    if covered < 50:
        assert finding.status is None
        assert spans.total(finding.gaps) == 50 - covered
    else:
        assert finding.gaps == []
        assert finding.status is (JobStatus.COMPLETED if spans.total(stored) == 50 else JobStatus.FAILED)


@given(parts, parts, st.integers(0, 50))
def test_a_tolerance_completes_what_is_accounted_for_and_nothing_else(
    stored: list[Span], dead: list[Span], tolerance: int
) -> None:
    finding = settling.judge(Span(0, 50), stored, dead, tolerance)
    strict = settling.judge(Span(0, 50), stored, dead)
    assert (finding.status is None) == (strict.status is None)  # what nobody has in hand is never tolerated
    if finding.status is not None:
        assert (finding.status is JobStatus.COMPLETED) == (50 - spans.total(stored) <= tolerance)


@given(parts, parts, st.integers(1, 9))
def test_unplanned_with_what_is_taken_is_the_whole_plan(queued: list[Span], covered: list[Span], seats: int) -> None:
    plan = spans.divide(spans.make_grid([1.0] * 50), Span(0, 50), seats)
    todo = settling.unplanned(plan, queued, covered)
    assert spans.gaps(Span(0, 50), [*todo, *queued, *covered]) == []
    assert sum(s.size for s in todo) == 50 - spans.total([*queued, *covered])


@given(parts)
def test_progress_counts_items_once(stored: list[Span]) -> None:
    progress = settling.progress(Span(0, 50), stored)
    assert progress.done == spans.total(stored)
    assert progress.missing_items == 50 - progress.done


def test_progress_is_bounded() -> None:
    holes = [Span(i, i + 1) for i in range(0, 2_000, 2)]
    assert len(settling.progress(Span(0, 2_000), holes).missing) == limits.MISSING_KEPT


@pytest.mark.parametrize("before", [JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED])
@pytest.mark.parametrize("after", list(JobStatus))
def test_a_terminal_status_never_changes(before: JobStatus, after: JobStatus) -> None:
    assert allowed(before, after) == (before is after)
    assert before.terminal
    assert JOB[before] == frozenset()


@dataclass
class Candidate:
    active: ActiveJob
    ended: bool = False
    dry_until: float = 0.0


def active(n: int, priority: Priority) -> Candidate:
    return Candidate(ActiveJob(f"{n:026}", "t", "c", Span(0, 1), priority, NOW + timedelta(seconds=n)))


@given(st.lists(st.tuples(st.sampled_from(Priority), st.booleans()), max_size=20))
def test_choice_is_by_priority_then_age_and_never_an_ended_job(jobs: list[tuple[Priority, bool]]) -> None:
    candidates = [active(n, priority) for n, (priority, _) in enumerate(jobs)]
    for candidate, (_, ended) in zip(candidates, jobs, strict=True):
        candidate.ended = ended
    chosen = choice.in_order(reversed(candidates))
    assert [c.active.order for c in chosen] == sorted(c.active.order for c in candidates if not c.ended)


def test_a_dry_job_is_left_alone_for_a_moment() -> None:
    dry, wet = active(1, Priority.HIGH), active(2, Priority.LOW)
    dry.dry_until = 10.0
    assert choice.worth_asking([dry, wet], 9.0) == [wet]
    assert choice.worth_asking([dry, wet], 10.0) == [dry, wet]


def test_a_first_pull_is_small_unless_the_account_and_the_job_say_that_chunks_are_quick() -> None:
    whole = ActiveJob("u", "t", "c", Span(0, 2_000), Priority.NORMAL, NOW, seats=4)
    many = msgspec.structs.replace(whole, chunk_items=1)
    assert choice.credit(choice.chunk_s(many, 2_000, 0.0001)) > 50
    assert choice.credit(choice.chunk_s(many, 2_000, 0.04)) == 1
    assert choice.credit(choice.chunk_s(whole, 2_000, 0.001)) == 1  # guided chunks are big at the start
    assert choice.chunk_s(many, 2_000, None) is choice.chunk_s(many, 0, 0.0001) is None


@given(st.one_of(st.none(), st.floats(0, 1000)))
def test_credit_is_bounded_and_never_hoards(chunk_s: float | None) -> None:
    count = choice.credit(chunk_s)
    assert 1 <= count <= limits.PULL_BATCH
    if count > 1 and chunk_s:
        assert count * chunk_s <= limits.PULL_WORK_S * 1.001


@given(st.integers(1, 100), st.floats(0.01, 10), st.floats(10, 100), st.floats(0, 0.999))
def test_backoffs_grow_to_their_cap(n: int, base: float, cap: float, jitter: float) -> None:
    assert backoff.semi_linear(n, base, cap, jitter) <= cap * 1.25
    assert backoff.semi_linear(n, base, cap, 0) <= backoff.semi_linear(n + 1, base, cap, 0)
    assert backoff.semi_linear(n, base, cap, 0) == min(cap, base * n)
    assert 0 < backoff.exponential(n, base, cap, jitter) <= cap
    assert backoff.exponential(n, base, cap, 0.5) <= backoff.exponential(n + 1, base, cap, 0.5)


def test_priorities_share_without_starving() -> None:
    turns = [preference(n)[0] for n in range(160)]
    assert {p: turns.count(p) for p in Priority} == {p: share * 10 for p, share in SHARES.items()}
    assert preference(0)[0] is Priority.HIGH
    assert all(sorted(preference(n)) == sorted(Priority) for n in range(32))


def _leaves(kind: type[BaseException]) -> list[type[BaseException]]:
    below = [leaf for sub in kind.__subclasses__() for leaf in _leaves(sub)]
    return [kind, *below]


def test_every_upstream_error_has_a_verdict_and_everything_else_is_a_bug() -> None:
    expected = {
        "TargetNotFound": Verdict.JOB, "CatalogueRefused": Verdict.JOB,
        "ItemNotFound": Verdict.ITEM, "ItemRefused": Verdict.ITEM, "ResultTooLarge": Verdict.ITEM,
        "AuthenticationFailed": Verdict.LOGIN, "AccountForbidden": Verdict.ACCOUNT, "AccountBanned": Verdict.ACCOUNT,
        "Throttled": Verdict.THROTTLED,
        "UpstreamError": Verdict.TRANSIENT, "UpstreamTimeout": Verdict.TRANSIENT,
        "UpstreamUnavailable": Verdict.TRANSIENT, "BadAnswer": Verdict.TRANSIENT,
    }  # fmt: skip
    found = {k.__name__: verdict_of(k("x")) for k in _leaves(errors.UpstreamError) if k.__module__ == errors.__name__}
    assert found == expected
    for error in (ValueError("x"), KeyError("x"), RecursionError(), TimeoutError()):
        assert verdict_of(error) is Verdict.BUG


def test_failures_in_a_tag_are_bounded() -> None:
    essential = Essential("t", "h", "n", Span(0, 1))
    tag = JobTag("u", JobStatus.PENDING, essential, Queue(NOW), ["u"])
    for n in range(500):
        tag.add_failure(Failure(f"Type{n % 60}", "m", NOW))
    assert len(tag.failures) == limits.FAILURES_KEPT
    assert sum(tag.failure_counts.values()) == 500
    assert len(tag.failure_counts) <= limits.FAILURE_TYPES + 1


def test_a_described_error_is_short_and_free_of_secrets() -> None:
    text = describe(ValueError("no hunter2\n for you " + "x" * 1000), "hunter2", None, "")
    assert "hunter2" not in text
    assert "***" in text
    assert "\n" not in text
    assert len(text) <= limits.FAILURE_MESSAGE_CHARS
