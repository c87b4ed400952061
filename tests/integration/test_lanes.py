"""Long rows of jobs that do not go on after a failure: ended piece by piece, and by whoever repeats it."""

import base64
from datetime import UTC, datetime

import pytest

from cuscuta import limits, subjects
from cuscuta.broker import Bus
from cuscuta.broker.retry import retry
from cuscuta.broker.settle import close, close_late, tidy
from cuscuta.broker.submit import submit
from cuscuta.codec import decode
from cuscuta.errors import BrokerUnavailable
from cuscuta.model import Essential, Event, JobStatus, LanePolicy
from cuscuta.spans import Span
from cuscuta.uids import new_uid, token_from

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LANE = token_from("a lane")


async def row(bus: Bus, policies: list[LanePolicy]) -> list[str]:
    """Jobs of one lane; their uids in order."""
    uids = [new_uid(NOW) for _ in policies]
    for uid, policy in zip(uids, policies, strict=True):
        essential = Essential("t", "c", "songs", Span(0, 9), lane=LANE, lane_policy=policy)
        await submit(bus, uid, essential)
    return uids


async def statuses(bus: Bus, uids: list[str]) -> list[JobStatus]:
    return [tag.status for uid in uids if (tag := await bus.tags.get(uid))]


async def test_a_long_row_is_ended_over_several_calls(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LANE_STOPS", 3)
    stops: list[LanePolicy] = ["stop"] * 7
    uids = await row(bus, ["continue", *stops, "continue", "stop"])
    tag = await close(bus, uids[0], JobStatus.FAILED)
    assert tag is not None
    failed, waits = JobStatus.FAILED, JobStatus.QUEUEING
    assert await statuses(bus, uids) == [failed] * 4 + [waits] * 6
    for _ in range(2):  # as the reaper does, who finds the failed one's entry
        head = await bus.lanes.head(LANE)
        assert head is not None
        assert head.uid == uids[0]
        await tidy(bus, tag)
    assert await statuses(bus, uids) == [failed] * 8 + [waits] * 2
    head = await bus.lanes.head(LANE)
    assert head is not None
    assert head.uid == uids[8]


async def test_a_failure_that_died_before_it_was_tidied_still_counts(bus: Bus) -> None:
    """The first is cancelled while the second, behind it, failed in waiting and its closer died: the third stops."""
    uids = await row(bus, ["continue", "continue", "stop", "continue"])

    def fail(tag) -> bool:  # type: ignore[no-untyped-def]
        tag.status, tag.queue.ended_at = JobStatus.FAILED, NOW
        return True

    await bus.tags.change(uids[1], fail)
    await close(bus, uids[0], JobStatus.CANCELLED)
    assert (await statuses(bus, uids))[2:] == [JobStatus.FAILED, JobStatus.QUEUEING]
    head = await bus.lanes.head(LANE)
    assert head is not None
    assert head.uid == uids[3]


async def test_an_end_is_told_although_whoever_ended_the_job_died_while_tidying(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event comes before anything is removed: a job of which nothing is left on the bus has been told of."""
    (uid,) = await row(bus, ["continue"])

    async def die(*_: object) -> None:
        raise BrokerUnavailable("here it dies")

    monkeypatch.setattr(bus.work, "drop_job_consumer", die)
    with pytest.raises(BrokerUnavailable):
        await close(bus, uid, JobStatus.CANCELLED)
    asked = {"last_by_subj": subjects.event(uid, "cancelled")}
    answer = await bus.broker.api(f"STREAM.MSG.GET.{subjects.EVENTS_STREAM}", asked)
    assert decode(base64.b64decode(answer["message"]["data"]), Event).uid == uid


async def test_a_time_that_bound_the_last_run_does_not_end_the_next_one(bus: Bus) -> None:
    """The reaper's list is a second old: it still shows the time of a run that was retried since."""
    uid, late = new_uid(NOW), bus.clock.wall()
    essential = Essential("t", "c", "songs", Span(0, 9), start_by=late, deadline=late)
    await submit(bus, uid, essential)
    ended = await close_late(bus, uid, late)
    assert ended is not None
    assert ended.failure_counts == {"DeadlineExceeded": 1}
    again = await retry(bus, uid)
    assert again is not None
    same = await close_late(bus, uid, late)
    assert same is not None
    assert same.status is JobStatus.QUEUEING
