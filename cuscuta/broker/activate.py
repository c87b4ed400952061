"""Admitting one job: consumer, chunks, tag, active entry. Safe to repeat at any line, by any number of callers.

The consumer comes first, because the server refuses more of them than `max_active_jobs`: it is the ticket. The number
of seats is fixed in the tag before the first chunk goes out, so that whoever repeats this cuts at the same points, and
subjects that stand already are left alone.
"""

from cuscuta import settling, spans, subjects
from cuscuta.broker.bus import Bus
from cuscuta.broker.catalogues import CatalogueMissing
from cuscuta.broker.settle import close, settle, tidy
from cuscuta.limits import BATCH_MESSAGES
from cuscuta.model import ActiveJob, ChunkBody, Failure, JobStatus, JobTag, encode
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName


async def activate(bus: Bus, uid: str, seats: int) -> bool:
    """Let a job's chunks out; False if it is not there, not its turn, or ended. Raises NoRoom, BrokerUnavailable."""
    tag = await bus.tags.get(uid)
    if tag is None:
        return False
    if tag.status.terminal:
        await tidy(bus, tag)
        return False
    lane = tag.essential.lane
    if lane and ((head := await bus.work.head(lane)) is None or head.uid != uid):
        return False  # its turn comes when the job before it is released
    try:
        grid = await bus.catalogues.grid(tag.essential.catalogue)
    except CatalogueMissing as error:
        await close(bus, uid, JobStatus.FAILED, [Failure("CatalogueMissing", str(error), bus.clock.wall())])
        return False
    await bus.work.make_job_consumer(uid, tag.essential.target)
    fixed = await bus.tags.change(uid, lambda t: _fix_seats(t, seats))
    if fixed is None or fixed.status.terminal:
        return await _undo(bus, uid, fixed)
    essential = fixed.essential
    plan = spans.divide(grid, essential.span, fixed.queue.seats, essential.policy, essential.chunk_items)
    queued = [name.span for name in await bus.work.queued(uid)]
    stored, dead = await bus.results.coverage(uid)
    todo = settling.unplanned(plan, queued, [*stored, *dead])
    return await _let_out(bus, fixed, plan, todo)


def _fix_seats(tag: JobTag, seats: int) -> bool:
    if tag.queue.seats:
        return False
    tag.queue.seats = max(1, seats)
    return True


async def _let_out(bus: Bus, tag: JobTag, plan: list[Span], todo: list[Span]) -> bool:
    uid, essential = tag.uid, tag.essential
    names = [ChunkName(uid, span, 1) for span in todo]
    body = ChunkBody(uid, essential.catalogue, essential.target)
    again = tag.status is JobStatus.PENDING  # mended: results may be stored that no chunk tells of
    fresh_until = 0
    for i in range(0, len(names), BATCH_MESSAGES):
        if i:  # a very long job: workers start on the first batch while the others go out, unless it has ended
            current = await bus.tags.get(uid)
            if current is None or current.status.terminal:
                return await _undo(bus, uid, current)
        if i == BATCH_MESSAGES:
            await _join(bus, tag, fresh_until)
        last = await bus.work.publish_chunks(names[i : i + BATCH_MESSAGES], body, essential.traceparent)
        again = again or not last
        fresh_until = 0 if again else last

    def edit(current: JobTag) -> bool:
        if current.status is JobStatus.QUEUEING:
            current.status = JobStatus.PENDING
            current.queue.admitted_at = bus.clock.wall()
            current.queue.chunks = len(plan)
            return True
        return False

    after = await bus.tags.change(uid, edit)
    if after is None or after.status.terminal:
        return await _undo(bus, uid, after)
    await _join(bus, tag, fresh_until)
    if len(names) != len(plan) or len(names) > BATCH_MESSAGES:  # all may have been done before the tag said so
        await settle(bus, uid)
    await bus.event(uid, "admitted", JobStatus.PENDING)
    return True


async def _join(bus: Bus, tag: JobTag, fresh_until: int) -> None:
    essential = tag.essential
    active = ActiveJob(
        uid=tag.uid,
        target=essential.target,
        catalogue=essential.catalogue,
        span=essential.span,
        priority=essential.priority,
        created_at=tag.queue.created_at,
        deadline=essential.deadline,
        traceparent=essential.traceparent,
        fresh_until=fresh_until,
        seats=tag.queue.seats,
        policy=essential.policy,
        chunk_items=essential.chunk_items,
    )
    await bus.active_bucket.put(tag.uid, encode(active))
    await bus.announce("active", tag.uid, active)


async def _undo(bus: Bus, uid: str, tag: JobTag | None) -> bool:
    """The job ended while it was being admitted: take back what was put out for it."""
    if tag is not None:
        await tidy(bus, tag)
    else:
        await bus.work.purge(subjects.chunks_of(uid))
        await bus.work.drop_job_consumer(uid)
        await bus.active_bucket.purge(uid)
    return False
