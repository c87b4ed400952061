"""Which job next, and how much of it at once. Pure."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Protocol, TypeVar

from cuscuta import limits
from cuscuta.model import ActiveJob


class Candidate(Protocol):
    """What the choice looks at."""

    active: ActiveJob
    ended: bool
    dry_until: float


_FIRST_S = 1e-6
CandidateT = TypeVar("CandidateT", bound=Candidate)


def in_order(jobs: Iterable[CandidateT]) -> list[CandidateT]:
    """Jobs that have not ended, best first: priority, then oldest."""
    return sorted((job for job in jobs if not job.ended), key=lambda job: job.active.order)


class Shares:
    """Gives groups equal shares of this process's seats, whatever the number of their jobs.

    Of a priority the group with fewest seats at work comes first, then the one that was served least. A group that had
    nothing to do starts just before the least of the others: it comes first once, and saves up nothing.
    """

    def __init__(self) -> None:
        self._seats: Counter[str] = Counter()
        self._served_s: dict[str, float] = {}

    def see(self, groups: set[str]) -> None:
        """Those that have active jobs now."""
        least = min((s for group, s in self._served_s.items() if group in groups), default=0.0)
        self._served_s = {group: self._served_s.get(group, least - _FIRST_S) for group in groups}

    def began(self, group: str) -> None:
        """A seat works for a group."""
        self._seats[group] += 1

    def ended(self, group: str, seconds: float) -> None:
        """A seat has worked for a group for so long."""
        self._seats[group] -= 1
        if not self._seats[group]:
            del self._seats[group]
        if group in self._served_s:
            self._served_s[group] += seconds

    def in_turn(self, jobs: Iterable[CandidateT]) -> list[CandidateT]:
        """Jobs that have not ended, the one to join first."""

        def turn(job: CandidateT) -> tuple[int, int, float, datetime, str]:
            rank, at, uid = job.active.order
            group = job.active.group
            return rank, self._seats[group], self._served_s.get(group, 0.0), at, uid

        return sorted((job for job in jobs if not job.ended), key=turn)


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
