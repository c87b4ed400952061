"""Submitting: the tag first, as the guard against twins, then lane and admission in one atomic batch."""

from cuscuta.broker.bus import Bus
from cuscuta.errors import InputError
from cuscuta.model import Essential, JobStatus, JobTag, Queue


async def submit(bus: Bus, uid: str, essential: Essential) -> JobTag:
    """Accept a job, or find it accepted already. Raises InputError (409) if the uid names a job with another body."""
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
    if accepted.status is JobStatus.QUEUEING:
        await bus.broker.insist(lambda: enqueue(bus, accepted))
    return accepted


async def enqueue(bus: Bus, tag: JobTag) -> None:
    """Put an accepted job where admission will find it; safe to repeat."""
    await bus.work.enqueue(tag.uid, tag.essential.priority, tag.essential.lane)
    await bus.announce("submitted", tag.uid)
