"""Long rows of jobs that do not go on after a failure: ended piece by piece, and by whoever repeats it."""

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from cuscuta import limits, subjects
from cuscuta.broker import Bus
from cuscuta.broker.activate import activate
from cuscuta.broker.lanes import Waiting
from cuscuta.broker.retry import retry
from cuscuta.broker.settle import close, close_late, complete, tidy
from cuscuta.broker.submit import submit
from cuscuta.broker.tags import Edit, Known
from cuscuta.codec import decode
from cuscuta.errors import BrokerUnavailable
from cuscuta.model import Essential, Event, Item, JobStatus, JobTag, LanePolicy, Priority, Queue
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


async def head_of(bus: Bus) -> Waiting:
    head = await bus.lanes.head(LANE)
    assert head is not None
    return head


async def running(bus: Bus, policies: list[LanePolicy]) -> list[str]:
    """A row of jobs whose first one has been admitted."""
    content = (await bus.catalogues.put([Item(f"i{n}") for n in range(9)])).hash
    uids = [new_uid(NOW) for _ in policies]
    for uid, policy in zip(uids, policies, strict=True):
        await submit(bus, uid, Essential("t", content, "songs", Span(0, 9), lane=LANE, lane_policy=policy))
    assert await activate(bus, await head_of(bus), 2)
    return uids


async def test_an_admitted_job_knows_its_place(bus: Bus) -> None:
    first, second = await running(bus, ["continue", "continue"])
    tag = await bus.tags.get(first)
    assert tag is not None
    assert tag.queue.place == (await head_of(bus)).place > 0
    assert not await activate(bus, Waiting(second, Priority.NORMAL, place=tag.queue.place), 2)  # not its place
    await close(bus, first, JobStatus.CANCELLED)
    assert (await head_of(bus)).uid == second


async def test_an_entry_that_a_late_word_put_back_goes_with_the_job(bus: Bus) -> None:
    """A submit whose answer was lost is said again when the job has ended: its entry stands behind others."""
    first, second, third = await running(bus, ["continue", "continue", "stop"])
    ended = await close(bus, first, JobStatus.FAILED)
    assert ended is not None
    assert await activate(bus, await head_of(bus), 2)
    await bus.lanes.enter(Waiting(first, Priority.NORMAL), LANE)
    await tidy(bus, ended)  # as the reaper does
    assert await bus.work.first(subjects.lane_entry(LANE, first)) is None
    assert await statuses(bus, [second, third]) == [JobStatus.PENDING, JobStatus.QUEUEING]


async def test_a_number_of_another_stream_takes_nobody_s_message(bus: Bus) -> None:
    """The work stream was made anew: an old job's place is the number of somebody else's entry now."""
    uids = await row(bus, ["continue"])
    other = await head_of(bus)
    uid = new_uid(NOW)
    essential = Essential("t", "c", "songs", Span(0, 9), lane=LANE)
    old = JobTag(uid, JobStatus.COMPLETED, essential, Queue(NOW, place=other.place), [uid])
    await tidy(bus, old)
    assert (await head_of(bus)).uid == uids[0]


async def test_whoever_admits_an_earlier_run_lets_nothing_out(bus: Bus) -> None:
    """Offered, held up, cancelled, retried behind another job: the offer is of a run that is over."""
    (first,) = await running(bus, ["continue"])
    known = await bus.tags.read(first)
    assert known is not None
    known.tag.status, known.tag.queue.seats = JobStatus.QUEUEING, 0  # as it was when it was offered
    await close(bus, first, JobStatus.CANCELLED)
    second = new_uid(NOW)
    await submit(bus, second, replace(known.tag.essential))
    assert await activate(bus, await head_of(bus), 2)
    assert await retry(bus, first) is not None
    assert not await activate(bus, Waiting(first, Priority.NORMAL, place=1), 2, known)
    assert await statuses(bus, [first, second]) == [JobStatus.QUEUEING, JobStatus.PENDING]
    assert await bus.work.queued(first) == []
    assert first not in await bus.work.job_consumers()
    assert await bus.active_bucket.get(first) is None


async def test_a_verdict_on_an_earlier_run_takes_nothing_from_the_next(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has read run 1 as running and then stalled does not tidy run 2."""
    (first,) = await running(bus, ["continue"])
    stale = await bus.tags.read(first)
    await close(bus, first, JobStatus.FAILED)
    await bus.results.forget_graves(first)
    assert await retry(bus, first) is not None
    assert await activate(bus, await head_of(bus), 2)
    queued = await bus.work.queued(first)

    async def late(uid: str) -> Known | None:
        return stale

    async def all_of_it(uid: str) -> list[Span]:
        return [Span(0, 9)]

    with monkeypatch.context() as patch:
        patch.setattr(bus.tags, "read", late)
        patch.setattr(bus.results, "stored", all_of_it)
        patch.setattr(bus.tags, "swap", _once_with(bus, patch))
        await complete(bus, first)
    assert await statuses(bus, [first]) == [JobStatus.PENDING]
    assert await bus.work.queued(first) == queued != []
    assert first in await bus.work.job_consumers()
    assert (await head_of(bus)).uid == first


def _once_with(bus: Bus, patch: pytest.MonkeyPatch) -> Any:
    swap, read = bus.tags.swap, type(bus.tags).read

    async def swapped(known: Known, edit: Edit) -> Known | None:
        patch.setattr(bus.tags, "read", read.__get__(bus.tags))  # only the first look was late
        return await swap(known, edit)

    return swapped


async def test_a_failure_of_an_earlier_run_stops_nobody_behind_the_next(bus: Bus) -> None:
    first, second = await running(bus, ["continue", "continue"])
    failed = await close(bus, first, JobStatus.FAILED)
    assert failed is not None
    assert await retry(bus, first) is not None
    stops = new_uid(NOW)
    await submit(bus, stops, replace(failed.essential, lane_policy="stop"))
    assert await bus.lanes.behind(LANE, first, failed.queue.place) is None
    await tidy(bus, failed)  # late
    assert await statuses(bus, [first, second, stops]) == [JobStatus.QUEUEING] * 3


async def test_a_running_job_that_lost_its_entry_and_its_consumer_is_admitted_again(bus: Bus) -> None:
    first, second = await running(bus, ["continue", "continue"])
    await bus.work.purge(subjects.lane_entry(LANE, first))
    await bus.work.drop_job_consumer(first)
    assert await activate(bus, Waiting(first, Priority.NORMAL), 2)
    assert first in await bus.work.job_consumers()
    await close(bus, first, JobStatus.COMPLETED)
    assert (await head_of(bus)).uid == second


async def test_what_was_put_into_a_lane_by_hand_blocks_nobody_behind_a_failure(bus: Bus) -> None:
    uids = await row(bus, ["continue"])
    await bus.work.put(f"cuscuta.lane.{LANE}.nonsense", b"{}")
    stops = (await row(bus, ["stop"]))[0]
    await close(bus, uids[0], JobStatus.FAILED)
    assert await statuses(bus, [stops]) == [JobStatus.FAILED]
    assert await bus.lanes.head(LANE) is None
