"""Which job next, and how much of it at once. Pure."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from cuscuta import limits
from cuscuta.model import ActiveJob


class Candidate(Protocol):
    """What the choice looks at."""

    active: ActiveJob
    ended: bool
    dry_until: float


CandidateT = TypeVar("CandidateT", bound=Candidate)


def in_order(jobs: Iterable[CandidateT]) -> list[CandidateT]:
    """Jobs worth joining, best first: priority, then oldest."""
    return sorted((job for job in jobs if not job.ended), key=lambda job: job.active.order)


def worth_asking(jobs: Iterable[CandidateT], now: float) -> list[CandidateT]:
    """Of jobs in order, those whose queue was not found empty just now."""
    return [job for job in jobs if job.dry_until <= now]


def credit(chunk_s: float | None) -> int:
    """How many chunks to pull at once: quick ones several at a time, slow or unknown ones singly."""
    if chunk_s is None:
        return 1
    return max(1, min(limits.PULL_BATCH, int(limits.PULL_WORK_S / max(chunk_s, 1e-6))))


def chunk_s(active: ActiveJob, left: int, item_s: float | None) -> float | None:
    """How long a chunk of a job that nobody has worked at here yet may take with an account that is known."""
    if item_s is None or left <= 0:  # at the tail stand rests and gifts of any size
        return None
    return item_s * max(1, min(active.chunk_items, left // active.seats))


def smooth(old: float | None, new: float, share: float = 0.3) -> float:
    """An exponentially weighted mean."""
    return new if old is None else old + share * (new - old)
