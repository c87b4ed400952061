"""Submitting: the tag first, as the guard against twins, then the lane entry, then the admit message."""

from cuscuta import limits
from cuscuta.broker.bus import Bus
from cuscuta.errors import InputError, QueueFull
from cuscuta.model import Essential, JobStatus, JobTag, Queue


async def submit(bus: Bus, uid: str, essential: Essential, *, named: bool = False) -> JobTag:
    """Accept a job, or find it accepted already. Raises InputError (409) for a uid with another body, QueueFull.

    A `named` uid comes from an Idempotency-Key and may have been a job's before, whose retention is over: what that
    one left is removed before the new one begins.
    """
    if bus.work.messages > limits.BACKLOG_MESSAGES:
        raise QueueFull(10077, f"more than {limits.BACKLOG_MESSAGES:,} messages wait")
    tag = JobTag(uid, JobStatus.QUEUEING, essential, Queue(bus.clock.wall()), run_ids=[uid])
    standing = None
    while standing is None and not await bus.broker.insist(lambda: bus.tags.create(tag)):
        standing = await bus.broker.insist(lambda: bus.tags.get(uid))  # None: it expired between the two calls
    if standing is not None and standing.essential.digest != essential.digest:
        raise InputError(
            "Idempotency-Key",
            f"was used for another request (job {uid})",
            "Use a new key for a new job, or send the same body again.",
            status=409,
        )
    accepted = standing or tag
    if named and standing is None:
        await bus.broker.insist(lambda: bus.results.forget(uid))
    if accepted.status is JobStatus.QUEUEING:
        await bus.broker.insist(lambda: enqueue(bus, accepted))
    return accepted


async def enqueue(bus: Bus, tag: JobTag) -> None:
    """Put an accepted job where admission will find it; safe to repeat."""
    await bus.work.enqueue(tag.uid, tag.essential.priority, tag.essential.lane)
    await bus.announce("submitted", tag.uid)
