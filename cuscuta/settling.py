"""Whether a job has ended, decided from what is stored and never from counters. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from cuscuta import limits, spans
from cuscuta.model import JobStatus, Progress
from cuscuta.spans import Span


class Finding(NamedTuple):
    """`status` if the job has ended, else None and the `gaps` that nobody has in hand."""

    status: JobStatus | None
    gaps: list[Span]


def judge(whole: Span, stored: Sequence[Span], given_up: Sequence[Span], tolerance: int = 0) -> Finding:
    """A job whose queue is empty: whole, and no more given up than it tolerates → completed or failed; else gaps."""
    gaps = spans.gaps(whole, [*stored, *given_up])
    if gaps:
        return Finding(None, gaps)
    enough = spans.total(spans.gaps(whole, stored)) <= tolerance
    return Finding(JobStatus.COMPLETED if enough else JobStatus.FAILED, [])


def progress(whole: Span, stored: Sequence[Span]) -> Progress:
    """How far a job is: items that have a stored result, and the spans that have none."""
    missing = spans.gaps(whole, stored)
    lacking = spans.total(missing)
    return Progress(done=whole.size - lacking, missing=missing[: limits.MISSING_KEPT], missing_items=lacking)


def unplanned(plan: Sequence[Span], queued: Sequence[Span], covered: Sequence[Span]) -> list[Span]:
    """What of a planned division is neither queued nor covered: the chunks to publish, in order.

    `queued` must have been read before `covered`: a chunk that ends between the two reads is then in one of them.
    """
    taken = spans.union([*queued, *covered])
    todo: list[Span] = []
    for chunk in plan:
        todo.extend(spans.gaps(chunk, taken))
    return todo
