"""Admitting one job: consumer, chunks, tag, active entry. Safe to repeat at any line, by any number of callers.

The consumer comes before any chunk, because the server refuses more of them than `max_active_jobs`: it is the ticket.
The number of seats is fixed in the tag before the first chunk goes out, so that whoever repeats this cuts at the same
points, and subjects that stand already are left alone. Who fixes it is the first: nothing was published before.
"""

import asyncio

from cuscuta import settling, spans, subjects, telemetry
from cuscuta.broker.adoption import accepted
from cuscuta.broker.bus import Bus
from cuscuta.broker.catalogues import CatalogueMissing
from cuscuta.broker.lanes import Waiting
from cuscuta.broker.settle import close, close_late, settle, tidy
from cuscuta.broker.tags import Known
from cuscuta.codec import encode
from cuscuta.limits import FIRST_CHUNKS, LATER_CHUNKS
from cuscuta.model import ActiveJob, ChunkBody, Failure, JobStatus, JobTag
from cuscuta.spans import Grid, Span
from cuscuta.subjects import ChunkName


async def activate(bus: Bus, waiting: Waiting, seats: int, known: Known | None = None) -> bool:
    """Let a job's chunks out; False if it is not there, not its turn, or ended. Raises NoRoom, BrokerUnavailable.

    `known` is the tag of a job that was accepted a moment ago and whose turn it is.
    """
    uid, place = waiting.uid, waiting.place
    if known is None:
        known, place = await _runnable(bus, waiting)
    if known is None:
        return False
    tag = known.tag
    now = bus.clock.wall()
    if not await accepted(bus, tag):
        return await _refuse(bus, uid)
    if tag.status is JobStatus.QUEUEING and tag.essential.start_by and tag.essential.start_by <= now:
        await close_late(bus, uid, now)
        return False
    try:
        grid = await bus.catalogues.grid(tag.essential.catalogue)
    except CatalogueMissing as error:
        await close(bus, uid, JobStatus.FAILED, [Failure("CatalogueMissing", str(error), bus.clock.wall())])
        return False
    if tag.status is JobStatus.PENDING:  # a consumer made anew delivers its chunks as if for the first time
        await _tell(bus, known.tag, fresh=False)
    with telemetry.span("admit", tag.essential.traceparent, attributes={"cuscuta.job": uid}):
        return await _admit(bus, known, place, seats, grid)


async def _admit(bus: Bus, known: Known, place: int, seats: int, grid: Grid) -> bool:
    """Make the job's consumer, fix its seats, divide it, let it out."""
    uid, first = known.tag.uid, False

    def fix_seats(tag: JobTag) -> bool:
        nonlocal first
        unfixed = not tag.queue.seats
        first = unfixed and len(tag.run_ids) == 1  # a further run has results of the ones before
        tag.queue.seats = tag.queue.seats or max(1, seats)
        if unfixed:
            tag.queue.place = place
        return unfixed

    fixed, _ = await asyncio.gather(
        bus.tags.swap(known, fix_seats), bus.work.make_job_consumer(uid, known.tag.essential.target)
    )
    if fixed is None or fixed.tag.status.terminal:
        return await _undo(bus, uid)
    essential = fixed.tag.essential
    if essential != known.tag.essential and not await accepted(bus, fixed.tag):  # changed since it was looked at
        return await _refuse(bus, uid)
    plan = todo = spans.divide(grid, essential.span, fixed.tag.queue.seats, essential.policy, essential.chunk_items)
    if not first:
        queued = [name.span for name in await bus.work.queued(uid)]
        stored, dead = await bus.results.coverage(uid)
        todo = settling.unplanned(plan, queued, [*stored, *dead])
    return await _let_out(bus, fixed, plan, todo, first)


async def _refuse(bus: Bus, uid: str) -> bool:
    bus.log.error("a job that nobody accepted was about to be let out", uid=uid)
    why = "its tag bears no valid seal: somebody wrote or changed it who may not accept jobs"
    await close(bus, uid, JobStatus.FAILED, [Failure("NotAccepted", why, bus.clock.wall())])
    return False


async def _runnable(bus: Bus, waiting: Waiting) -> tuple[Known | None, int]:
    """The job, if its chunks may go out, and its place in its lane."""
    known = await bus.tags.read(waiting.uid)
    if known is None:
        return None, 0
    if known.tag.status.terminal:
        await tidy(bus, known.tag)
        return None, 0
    if (lane := known.tag.essential.lane) is None or known.tag.status is JobStatus.PENDING:
        return known, known.tag.queue.place  # it had its turn, whatever has become of its entry since
    place = await bus.lanes.turn(lane, waiting)
    return (known if place else None), place  # else its turn comes when the job before it is released


async def _let_out(bus: Bus, known: Known, plan: list[Span], todo: list[Span], first: bool) -> bool:
    uid, essential = known.tag.uid, known.tag.essential
    names = [ChunkName(uid, span, 1) for span in todo]
    body = ChunkBody(uid, essential.catalogue, essential.target, fresh=first)
    # Of very many chunks none carries it: reading it cost a tenth of the time, and workers have it in the active entry.
    parent = _parent(known.tag) if len(names) <= FIRST_CHUNKS else None
    new = await bus.work.publish_chunks(names[:FIRST_CHUNKS], body, parent)
    fresh = first and new  # else somebody else has admitted it meanwhile, and something of it may be stored
    if len(names) > FIRST_CHUNKS:  # a long job: workers start on the first batch while the others go out
        await _tell(bus, known.tag, fresh)
    for i in range(FIRST_CHUNKS, len(names), LATER_CHUNKS):
        current, new = await asyncio.gather(
            bus.tags.read(uid),
            bus.work.publish_chunks(names[i : i + LATER_CHUNKS], body, parent),
        )
        ours = current is not None and current.tag.run_ids[-1] == known.tag.run_ids[-1]
        if current is None or not ours or current.tag.status.terminal:
            return await _undo(bus, uid)
        if fresh and not new:
            fresh = False
            await _tell(bus, known.tag, fresh)
        await bus.announce("chunk", uid)

    def edit(current: JobTag) -> bool:
        if current.status is JobStatus.QUEUEING:
            current.status = JobStatus.PENDING
            current.queue.admitted_at = bus.clock.wall()
            current.queue.chunks = len(plan)
            return True
        return False

    if len(names) > FIRST_CHUNKS:
        after = await bus.tags.swap(known, edit)
    else:
        after, _ = await asyncio.gather(bus.tags.swap(known, edit), _tell(bus, known.tag, fresh))
    if after is None or after.tag.status.terminal:
        return await _undo(bus, uid)
    await bus.event(known.tag, "admitted", JobStatus.PENDING)
    if len(names) != len(plan) or len(names) > FIRST_CHUNKS:  # all may have been done before the tag said so
        await settle(bus, uid)
    return True


async def _tell(bus: Bus, tag: JobTag, fresh: bool) -> None:
    """Let the workers know: the entry first, because a job that has none is one that has ended."""
    essential = tag.essential
    active = ActiveJob(
        uid=tag.uid,
        target=essential.target,
        catalogue=essential.catalogue,
        span=essential.span,
        priority=essential.priority,
        created_at=tag.queue.created_at,
        deadline=essential.deadline,
        traceparent=_parent(tag),
        fresh=fresh,
        run=tag.run_ids[-1],
        group=essential.group,
        seats=tag.queue.seats,
        policy=essential.policy,
        chunk_items=essential.chunk_items,
        server=bus.broker.server_id,
    )
    await bus.active_bucket.put(tag.uid, encode(active))
    await bus.announce("active", tag.uid, active)


def _parent(tag: JobTag) -> str | None:
    """What the job's chunks hang below in traces: this admission."""
    return telemetry.traceparent() or tag.essential.traceparent


async def _undo(bus: Bus, uid: str) -> bool:
    """The job ended while it was being admitted: take back what was put out for it.

    A further run that has been admitted keeps it: what it lacks or has twice, the reaper and the results' names settle.
    """
    tag = await bus.tags.get(uid)
    if tag is not None and tag.status.terminal:
        await tidy(bus, tag)
    elif tag is None or tag.status is JobStatus.QUEUEING:
        await bus.work.purge(subjects.chunks_of(uid))
        await bus.work.drop_job_consumer(uid)
        await bus.active_bucket.purge(uid)
    return False
