"""What of a chunk is left to do, when it may not be all of it."""

from collections.abc import Iterable, Sequence

from cuscuta import limits, spans
from cuscuta.errors import BrokerUnavailable
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from worker import pieces
from worker.jobs import Job
from worker.kit import Kit
from worker.pieces import Piece

Stored = dict[str, list[Span]]  # by uid, disjoint and in order


def yields(mine: ChunkName, other: ChunkName) -> bool:
    """Whether a chunk leaves a part to another standing one: one that was given away, or its later incarnation.

    Of two different chunks at most one yields, so nothing falls between them.
    """
    if mine.span == other.span:
        return other.n > mine.n
    return spans.inside(other.span, mine.span)


async def missing(kit: Kit, held: Iterable[ChunkName], within: Span, given: Sequence[Span]) -> list[Span]:
    """What of some chunks of a job is neither stored nor stands in a chunk that they yield to.

    `given`: what others have given away counts as if it stood, but for what is what we hold or we hold a part of.
    The queue is read first: a chunk that ends between the two reads is then among the results.
    """
    held = list(held)
    uid = held[0].uid
    standing = await kit.bus.work.queued(uid)
    stored = await kit.bus.results.stored(uid)
    return [
        gap
        for mine in held
        for gap in spans.gaps(
            spans.clip(mine.span, within),
            [
                *stored,
                *(other.span for other in standing if yields(mine, other)),
                *(part for part in given if part != mine.span and spans.inside(part, mine.span)),
            ],
        )
    ]


async def unclaimed(kit: Kit, mine: ChunkName) -> list[Span]:
    """What of a chunk is to be done by whoever holds it; asks until NATS answers."""
    return await kit.bus.broker.insist(lambda: missing(kit, [mine], mine.span, ()))


async def stored(kit: Kit, held: Sequence[Piece]) -> Stored:
    """What is stored of the chunks just pulled, as far as one cheap read tells.

    A single chunk's own result, or its first flush, begins where the chunk does, so one direct read finds it. Several
    quick chunks, and gifts, may lie inside of results that begin elsewhere: their job's are listed. So are all where
    NATS may have forgotten what it had delivered.
    If the read fails, all of them count as stored, and are looked at one by one.
    """
    found: Stored = {}
    for uid in {piece.name.uid for piece in held}:
        mine = [piece for piece in held if piece.name.uid == uid]
        spans_of = [piece.name.span for piece in mine]
        try:
            if len(mine) == 1 and _stands_alone(kit, mine[0]):
                found[uid] = spans_of if await kit.bus.results.begun(uid, spans_of[0].start) else []
            else:
                found[uid] = spans.union(await kit.bus.results.stored(uid))
        except BrokerUnavailable:
            found[uid] = spans.union(spans_of)
    return found


def _stands_alone(kit: Kit, piece: Piece) -> bool:
    """Whether what is stored of a chunk begins where it begins, but for stretches that a much quicker seat has made."""
    job = kit.jobs.get(piece.name.uid)
    typical_s = kit.tail.typical_s(job) if job else None
    quick = typical_s is not None and typical_s * piece.name.span.size < limits.PULL_WORK_S
    known = job is not None and _undisturbed(kit, job, [piece], kit.settings.ack_wait_s)
    return known and not (piece.body.gift or kit.shared or quick)


def fresh(kit: Kit, stored: Stored, piece: Piece) -> bool:
    """Whether nobody has worked on a chunk just pulled, as far as can be told."""
    job = kit.jobs.get(piece.name.uid)
    if job is None or not (piece.fresh and job.active.fresh and _undisturbed(kit, job, [piece])):
        return False
    return not spans.meets(stored[piece.name.uid], piece.name.span)


async def todo(kit: Kit, stretch: Sequence[Piece], stored: Stored) -> list[Span]:
    """What of a stretch is left to do; whatever is not fresh has its job's queue and results listed."""
    if fresh(kit, stored, stretch[0]):
        return [pieces.whole(stretch)]
    return [gap for piece in stretch for gap in await unclaimed(kit, piece.name)]


def cuts(kit: Kit, job: Job, held: Sequence[Piece]) -> list[int]:
    """Where the results of a stretch must begin: nowhere in particular, in general.

    Unless NATS may have given its chunks to others as well, who would not notice a result that covers theirs and begins
    elsewhere.
    """
    known = job.active.fresh and _undisturbed(kit, job, held, kit.settings.ack_wait_s)
    return [] if known else [piece.name.span.start for piece in held[1:]]


def _undisturbed(kit: Kit, job: Job, held: Sequence[Piece], before_s: float = 0.0) -> bool:
    """Whether NATS knows what it has delivered of a job: it runs since the job was admitted.

    Where that cannot be told, as in a cluster: whether the connection has stood since `before_s` before the pull.
    """
    if kit.bus.broker.server_id == job.active.server:
        return True
    pulled_s = kit.bus.clock.monotonic() - min(piece.hold.since for piece in held)
    return kit.bus.broker.connected_s >= pulled_s + before_s
