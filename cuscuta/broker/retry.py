"""A further run of an ended job: only what has no result, under the same uid, with a run id of its own."""

from datetime import datetime
from functools import partial

from msgspec.structs import replace

from cuscuta import subjects
from cuscuta.broker.adoption import accepted
from cuscuta.broker.bus import Bus
from cuscuta.broker.settle import tidy
from cuscuta.broker.submit import Offer, enqueue, queue_it
from cuscuta.broker.tags import Known
from cuscuta.broker.unique import claim
from cuscuta.errors import InputError
from cuscuta.model import JobStatus, JobTag, Progress, Queue
from cuscuta.seal import sealed
from cuscuta.uids import new_uid


async def retry(bus: Bus, uid: str, offer: Offer = queue_it) -> JobTag | None:
    """Begin a further run; None if there is no such job. Raises InputError (409) if there is nothing to run."""
    run_id = new_uid(bus.clock.wall())
    while True:
        known = await bus.broker.insist(lambda: bus.tags.read(uid))
        if known is None:
            return None
        if known.tag.run_ids[-1] == run_id or (known := await _reopen(bus, known, run_id)):
            break  # begun: now, or by a word of ours whose answer got lost
    begun = known
    await bus.event(begun.tag, "retried", JobStatus.QUEUEING)
    await bus.broker.insist(lambda: enqueue(bus, begun, offer))
    return begun.tag


async def _reopen(bus: Bus, known: Known, run_id: str) -> Known | None:
    """What the last run left on the bus goes first, because the next one uses the same names."""
    tag, now = known.tag, bus.clock.wall()
    if not tag.status.terminal:
        raise InputError("uid", f"job {tag.uid} is {tag.status}", "Wait for its end, or cancel it first.", 409)
    if not tag.progress.missing_items:
        raise InputError("uid", f"job {tag.uid} has a result for every item", "Submit a new job to ask anew.", 409)
    if not await bus.broker.insist(lambda: accepted(bus, tag)):
        raise InputError("uid", f"job {tag.uid} bears no valid seal: nobody accepted it so", "Submit a new job.", 409)
    await bus.broker.insist(lambda: tidy(bus, tag))
    lane, work = tag.essential.lane, bus.work
    if lane and (await bus.broker.insist(partial(work.first, subjects.lane_entry(lane, tag.uid)))) is not None:
        raise InputError("uid", "the jobs behind it in its lane are still being ended", "Try again in a moment.", 409)
    if tag.essential.unique and (other := await bus.broker.insist(lambda: claim(bus, tag.uid, tag.essential))):
        raise InputError("uid", f"job {other.uid} of the same target and catalogue runs", "Wait for its end.", 409)
    await bus.broker.insist(lambda: bus.results.forget_graves(tag.uid))
    essential = replace(
        tag.essential, deadline=_ahead(tag.essential.deadline, now), start_by=_ahead(tag.essential.start_by, now)
    )
    run_ids = [*tag.run_ids, run_id]
    fresh = replace(
        tag,
        status=JobStatus.QUEUEING,
        essential=sealed(bus.settings.seal_keys, tag.uid, essential, run_ids),
        queue=Queue(tag.queue.created_at, done_before=tag.progress.done),
        run_ids=run_ids,
        progress=Progress(),
    )
    return await bus.broker.insist(lambda: bus.tags.reopen(known, fresh))


def _ahead(time: datetime | None, now: datetime) -> datetime | None:
    """A time that has not passed; one that has was the last run's."""
    return time if time and time > now else None
