"""Submitting: the tag first, as the guard against twins, then the lane entry, then the admit message."""

from collections.abc import Callable

from msgspec.structs import replace

from cuscuta import limits
from cuscuta.broker import after
from cuscuta.broker.bus import Bus
from cuscuta.broker.lanes import Waiting
from cuscuta.broker.tags import Known
from cuscuta.dependencies import Turn
from cuscuta.errors import InputError, QueueFull
from cuscuta.model import Essential, JobStatus, JobTag, Queue
from cuscuta.seal import sealed

Offer = Callable[[Known, Waiting], bool]


def queue_it(known: Known, waiting: Waiting) -> bool:
    """The offer that nobody takes: the job goes through the queue."""
    return False


async def submit(bus: Bus, uid: str, essential: Essential, *, named: bool = False, offer: Offer = queue_it) -> JobTag:
    """Accept a job, or find it accepted already. Raises InputError (409) for a uid with another body, QueueFull.

    A `named` uid comes from an Idempotency-Key and may have been a job's before, whose retention is over: what that
    one left is removed before the new one begins.
    """
    if bus.work.messages > limits.BACKLOG_MESSAGES:
        raise QueueFull(10077, f"more than {limits.BACKLOG_MESSAGES:,} messages wait")
    essential = sealed(bus.settings.seal_keys, uid, essential, [uid])
    tag = JobTag(uid, JobStatus.QUEUEING, essential, Queue(bus.clock.wall()), run_ids=[uid])
    before = await bus.broker.insist(bus.results.revision) if named else 0
    standing, revision = None, 0
    while standing is None and not (revision := await bus.broker.insist(lambda: bus.tags.create(tag))):
        standing = await bus.broker.insist(lambda: bus.tags.read(uid))  # None: it expired between the two calls
    if standing is not None:
        must_be_alike(standing.tag, essential.digest)
    accepted = standing or Known(tag, revision)
    if named and standing is None:
        await bus.broker.insist(lambda: bus.results.forget(uid, before))
    if accepted.tag.status is JobStatus.QUEUEING:
        await bus.broker.insist(lambda: begin(bus, accepted, offer))
    return accepted.tag


def must_be_alike(standing: JobTag, digest: str) -> None:
    """Raises InputError (409) if a job's key comes with another body."""
    if standing.essential.digest != digest:
        raise InputError(
            "Idempotency-Key",
            f"was used for another request (job {standing.uid})",
            "Use a new key for a new job, or send the same body again.",
            status=409,
        )


async def begin(bus: Bus, known: Known, offer: Offer = queue_it) -> Turn:
    """Let an accepted job take its way if it waits for no other; whoever gets NEVER must end it. Safe to repeat."""
    if known.tag.essential.after:
        await after.wait(bus, known.tag)
        now = await after.turn(bus, known.tag)  # after that: whoever ends a job from here on sees that this one waits
        if now is not Turn.BEGIN:
            return now
    await enqueue(bus, known, offer)
    if known.tag.essential.after:
        await after.forget(bus, known.tag)
    return Turn.BEGIN


async def enqueue(bus: Bus, known: Known, offer: Offer = queue_it) -> None:
    """Put an accepted job where admission will find it; safe to repeat.

    A job whose turn it is at once may be taken by `offer`. It has no admit message then; should the taker die, it is a
    lane's head that nobody admitted, which the reaper mends.

    Plain publishes instead of one atomic batch: a batch costs a staging store at the server, 2 ms and more, one after
    another, and what a crash between the two leaves behind is what a crash before the first leaves behind, a job that
    waits for nothing, which the reaper mends too.
    """
    uid, essential = known.tag.uid, known.tag.essential
    waiting = Waiting(uid, essential.priority, essential.group)
    place = await bus.lanes.enter(waiting, essential.lane) if essential.lane else 0
    if place or essential.lane is None:
        waiting = replace(waiting, place=place)
        if offer(known, waiting):
            return
        await bus.lanes.admit(waiting)
    await bus.announce("submitted", uid, queue=(essential.priority, essential.group))
