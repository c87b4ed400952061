"""What of a chunk is left to do, when it may not be all of it."""

from cuscuta import spans
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from worker.kit import Kit


def yields(mine: ChunkName, other: ChunkName) -> bool:
    """Whether a chunk leaves a part to another standing one: one that was given away, or its later incarnation.

    Of two different chunks at most one yields, so nothing falls between them.
    """
    if mine.span == other.span:
        return other.n > mine.n
    return spans.inside(other.span, mine.span)


async def unclaimed(kit: Kit, mine: ChunkName) -> list[Span]:
    """What of a chunk is neither stored nor stands in a chunk that it yields to; asks until NATS answers.

    The queue is read first: a chunk that ends between the two reads is then among the results.
    """
    work, results = kit.bus.work, kit.bus.results
    standing = await kit.bus.broker.insist(lambda: work.queued(mine.uid))
    stored = await kit.bus.broker.insist(lambda: results.stored(mine.uid))
    return spans.gaps(mine.span, [*stored, *(other.span for other in standing if yields(mine, other))])
