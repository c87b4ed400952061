"""Settling: close a job once its stored results say that it has ended. Idempotent; any service may call it.

Truth is read in this order: the tag and "no chunk stands in the queue" from the leader, then the stored spans. A
chunk is stored before it leaves the queue, so with an empty queue whatever is not stored is in nobody's hands. When all
is stored the job is complete, whatever stands in the queue: a seat may still be stuck on an item that another had.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from enum import StrEnum

from msgspec.structs import replace

from cuscuta import limits, settling, spans, subjects, telemetry
from cuscuta.broker import after, follow
from cuscuta.broker.bus import Bus
from cuscuta.broker.lanes import Waiting
from cuscuta.broker.submit import begin
from cuscuta.broker.tags import Edit, Known
from cuscuta.broker.unique import release
from cuscuta.dependencies import Turn
from cuscuta.model import ChunkBody, Failure, JobStatus, JobTag
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName

Condition = Callable[[JobTag], bool]


class Settled(StrEnum):
    """What a call of `settle` found."""

    GONE = "gone"  # there is no such job
    QUEUEING = "queueing"  # its chunks are not all out yet
    RUNNING = "running"  # chunks wait or are held
    MENDED = "mended"  # a gap was in nobody's hands and is queued again
    ENDED = "ended"  # terminal, by this call or before


async def complete(bus: Bus, uid: str) -> Settled:
    """Close the job if all of it is stored, whatever stands in the queue. Raises BrokerUnavailable."""
    known, stored = await asyncio.gather(bus.tags.read(uid), bus.results.stored(uid))
    if known is None:
        return Settled.GONE
    tag = known.tag
    if tag.status.terminal:
        await tidy(bus, tag)
        return Settled.ENDED
    if tag.status is JobStatus.QUEUEING:
        return Settled.QUEUEING
    if spans.gaps(tag.essential.span, stored):
        return Settled.RUNNING
    return await _end(bus, known, JobStatus.COMPLETED, stored)


async def settle(bus: Bus, uid: str) -> Settled:
    """Close the job if it has ended in any way; queue again what got lost. Raises BrokerUnavailable."""
    found = await complete(bus, uid)
    return await conclude(bus, uid) if found is Settled.RUNNING else found


async def conclude(bus: Bus, uid: str) -> Settled:
    """`settle` for a job of which something is not stored: it goes on while a chunk stands in the queue."""
    if await bus.work.next_chunk(uid):
        return Settled.RUNNING
    known, (stored, dead) = await asyncio.gather(bus.tags.read(uid), bus.results.coverage(uid))
    if known is None:
        return Settled.GONE
    tag = known.tag
    if tag.status.terminal:
        await tidy(bus, tag)
        return Settled.ENDED
    if tag.status is JobStatus.QUEUEING:
        return Settled.QUEUEING
    finding = settling.judge(tag.essential.span, stored, dead, tag.essential.tolerance)
    if finding.status is None:
        essential = tag.essential
        plan = spans.divide(
            await bus.catalogues.grid(essential.catalogue),
            essential.span,
            tag.queue.seats,
            essential.policy,
            essential.chunk_items,
        )
        lost = settling.unplanned(plan, [], [*stored, *dead])
        body = ChunkBody(uid, essential.catalogue, essential.target)
        await bus.work.publish_chunks([ChunkName(uid, gap, 1) for gap in lost], body, essential.traceparent)
        await bus.announce("chunk", uid)
        bus.log.warning("a gap was in nobody's hands; queued again", uid=uid, items=spans.total(lost))
        return Settled.MENDED
    return await _end(bus, known, finding.status, stored)


async def _end(bus: Bus, known: Known, status: JobStatus, stored: Sequence[Span]) -> Settled:
    with _traced(known.tag):
        ended = await bus.tags.swap(known, _ending(bus, status, (), stored))
        if ended is not None:
            await tidy(bus, ended.tag)
    return Settled.ENDED


def _traced(tag: JobTag) -> AbstractContextManager[object]:
    """In the job's own trace, whoever ends it, with a link to what that one was at."""
    links = telemetry.link(telemetry.traceparent(), "settled by")
    return telemetry.span("settle", tag.essential.traceparent, links=links, attributes={"cuscuta.job": tag.uid})


async def close(
    bus: Bus, uid: str, status: JobStatus, failures: Sequence[Failure] = (), when: Condition | None = None
) -> JobTag | None:
    """End a job now, with whatever is stored; the tag as it stands. An ended job keeps its status.

    `when`: if that is true of the tag at the moment of its change, which may be that of a further run.
    """
    stored = await bus.results.stored(uid)
    tag = await bus.tags.change(uid, _ending(bus, status, failures, stored, when))
    if tag is not None and tag.status.terminal:
        with _traced(tag):
            await tidy(bus, tag)
    return tag


async def close_late(bus: Bus, uid: str, now: datetime) -> JobTag | None:
    """End a job that is past its deadline, or that still waits at the time by which it had to begin; no other."""

    def waits_too_long(tag: JobTag) -> bool:
        return tag.status is JobStatus.QUEUEING and _passed(tag.essential.start_by, now)

    deadline = Failure("DeadlineExceeded", "the deadline passed before the job had ended", now)
    start_by = Failure("StartByExceeded", "the job was still waiting at the time by which it had to begin", now)
    tag = await close(bus, uid, JobStatus.FAILED, [deadline], lambda tag: _passed(tag.essential.deadline, now))
    if tag is None or tag.status.terminal:
        return tag
    return await close(bus, uid, JobStatus.FAILED, [start_by], waits_too_long)


def _passed(time: datetime | None, now: datetime) -> bool:
    return time is not None and time <= now


def _ending(
    bus: Bus,
    status: JobStatus,
    failures: Sequence[Failure],
    stored: Sequence[Span],
    when: Condition | None = None,
) -> Edit:
    def edit(tag: JobTag) -> bool:
        if when is not None and not when(tag):
            return False
        tag.status = status
        tag.queue.ended_at = bus.clock.wall()
        tag.progress = settling.progress(tag.essential.span, stored)
        for failure in failures:
            tag.add_failure(failure)
        return True

    return edit


async def tidy(bus: Bus, tag: JobTag) -> None:
    """Remove what an ended job leaves on the bus and let others go on; every step may be repeated.

    Whatever comes late, when a further run has begun, stops at the look at the tag: the lane's entry, whose loss would
    let the next job overtake, was known before that look, and goes only if it stands where it stood then.
    """
    uid, lane = tag.uid, tag.essential.lane
    await bus.announce("ended", uid)  # before the lane goes on: nobody polls for this one when the next one starts
    if follow.for_others(bus, tag):
        await bus.work.purge(subjects.chunks_of(uid))  # nobody is to go on polling for it
        await bus.announce("follow", uid)  # all the rest is for them; should they not hear it, the reaper finds it
        return
    place = await _place(bus, tag)
    if await _runs_again(bus, tag):
        return
    await _leave_bus(bus, tag)
    if lane and (tag.status is not JobStatus.FAILED or await _stop_lane(bus, lane, uid, place)):
        if place and not await bus.lanes.leave(lane, uid, place):
            again = await bus.work.first(subjects.lane_entry(lane, uid))  # a late word put it there once more
            if again is not None and not await _runs_again(bus, tag):
                await bus.lanes.leave(lane, uid, again.sequence)
        await release_lane(bus, lane)


async def _place(bus: Bus, tag: JobTag) -> int:
    if tag.queue.place or not tag.essential.lane:
        return tag.queue.place
    entry = await bus.work.first(subjects.lane_entry(tag.essential.lane, tag.uid))  # it was never admitted
    return entry.sequence if entry else 0


async def _runs_again(bus: Bus, tag: JobTag) -> bool:
    """Whether a further run of an ended job has begun since its tag was read."""
    now = await bus.tags.get(tag.uid)
    return now is not None and now.run_ids[-1] != tag.run_ids[-1]


async def _leave_bus(bus: Bus, tag: JobTag) -> None:
    """Everything but its place in a lane."""
    uid, essential = tag.uid, tag.essential
    await follow.make(bus, tag)  # before anything goes: what is left lets the reaper try again
    await bus.event(tag, str(tag.status), tag.status)
    waiting, *_ = await asyncio.gather(
        after.waiting(bus, uid),
        bus.work.purge(subjects.chunks_of(uid)),
        bus.work.drop_job_consumer(uid),
        bus.active_bucket.purge(uid),
        _leave_queue(bus, tag),
    )
    if essential.unique:
        await release(bus, uid, essential)
    if essential.after:
        await after.forget(bus, tag)
    for later in waiting[: limits.DUTY_BATCH]:  # the reaper looks at the rest
        if known := await bus.tags.read(later):
            await advance(bus, known)


async def _leave_queue(bus: Bus, tag: JobTag) -> None:
    if tag.queue.admitted_at is None:  # else it was taken out of it
        await bus.work.remove(subjects.admit(tag.essential.priority, tag.essential.group, tag.uid))


async def advance(bus: Bus, known: Known) -> bool:
    """Let a job that waits for others begin, or end if its turn will never come; whether one of the two."""
    tag = known.tag
    if tag.status is not JobStatus.QUEUEING:
        return False
    match await begin(bus, known):
        case Turn.WAIT:
            return False
        case Turn.NEVER:
            status, why = after.never(tag, bus)
            await close(bus, tag.uid, status, [why])
    return True


async def _stop_lane(bus: Bus, lane: str, uid: str, place: int) -> bool:
    """End the jobs behind a failed one's place that do not go on without it; whether all are ended.

    The failed one's own entry goes last, so that whoever repeats this after a crash knows of the failure. Of a very
    long row the reaper, who finds that entry, ends the rest.
    """
    for _ in range(limits.LANE_STOPS):
        entry = await bus.lanes.behind(lane, uid, place) if place else None
        known = await bus.tags.read(entry[0]) if entry else None
        if entry is None or known is None or known.tag.essential.lane_policy != "stop":
            return True
        later, sequence = entry
        if follow.for_others(bus, replace(known.tag, status=JobStatus.FAILED)):
            await bus.announce("follow", uid)  # whoever may submit what follows goes on with the row
            return False
        why = Failure("PredecessorFailed", f"job {uid}, which was before it in its lane, failed", bus.clock.wall())
        stored = await bus.results.stored(later)
        ended = await bus.tags.swap(known, _ending(bus, JobStatus.FAILED, [why], stored))
        await bus.announce("ended", later)
        if ended is not None and not await _runs_again(bus, ended.tag):
            await _leave_bus(bus, ended.tag)
        await bus.work.delete(sequence)  # and not what a further run has put there since
    return False


async def release_lane(bus: Bus, lane: str) -> None:
    """Send a lane's head to admission; heads that have ended are passed over."""
    while head := await bus.lanes.head(lane):
        tag = await bus.tags.get(head.uid)
        if tag and not tag.status.terminal:
            queue = (tag.essential.priority, tag.essential.group)
            if tag.status is JobStatus.QUEUEING:
                await bus.lanes.admit(Waiting(head.uid, *queue, head.place))
            await bus.announce("submitted", head.uid, queue=queue)
            return
        if tag and tag.status is JobStatus.FAILED and not await _stop_lane(bus, lane, head.uid, head.place):
            return
        await bus.lanes.leave(lane, head.uid, head.place)


async def note_failures(bus: Bus, uid: str, failures: Sequence[Failure]) -> None:
    """Write failures into a running job's tag."""

    def edit(tag: JobTag) -> bool:
        for failure in failures:
            tag.add_failure(failure)
        return bool(failures)

    await bus.tags.change(uid, edit)
