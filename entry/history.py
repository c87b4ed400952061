"""What ended lately, by minute and by hour: fed by the projection, of fixed size, so reading it is always cheap."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from msgspec import Struct, field

from cuscuta.broker.projection import Summary
from cuscuta.model import JobStatus, JobTag

MINUTES, HOURS, _KINDS = 60, 24, 100
# Upper bounds of durations in seconds, each 1.5 times the one before; their middle is right within a quarter.
BOUNDS_S = tuple(round(0.1 * 1.5**n, 3) for n in range(35))


class Bucket(Struct):
    """What ended in one minute or hour that began at `at`. Durations are from admission to the end, in seconds."""

    at: datetime
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    items: int = 0
    failure_kinds: dict[str, int] = field(default_factory=dict)
    median_s: float | None = None
    p95_s: float | None = None


class _Counts:
    def __init__(self) -> None:
        self.ends: Counter[JobStatus] = Counter()
        self.kinds: Counter[str] = Counter()
        self.durations = [0] * (len(BOUNDS_S) + 1)
        self.items = 0

    def add(self, tag: JobTag, row: Summary) -> None:
        self.ends[row.status] += 1
        self.items += max(0, row.done - row.done_before)
        for kind, count in tag.failure_counts.items():
            self.kinds[kind if kind in self.kinds or len(self.kinds) < _KINDS else "Other"] += count
        if row.admitted_at and row.ended_at:
            taken = (row.ended_at - row.admitted_at).total_seconds()
            self.durations[sum(taken > bound for bound in BOUNDS_S)] += 1

    def quantile(self, share: float) -> float | None:
        """About the duration below which that share of them lies."""
        want = share * sum(self.durations)
        for n, count in enumerate(self.durations):
            want -= count
            if count and want <= 0:
                return float(round(BOUNDS_S[min(n, len(BOUNDS_S) - 1)] / 1.5**0.5, 3))
        return None

    def bucket(self, at: datetime) -> Bucket:
        return Bucket(
            at,
            self.ends[JobStatus.COMPLETED],
            self.ends[JobStatus.FAILED],
            self.ends[JobStatus.CANCELLED],
            self.items,
            dict(self.kinds.most_common(20)),
            self.quantile(0.5),
            self.quantile(0.95),
        )


class History:
    """Counts ends, each at the time that the tag names; a job that was retried ends more than once."""

    def __init__(self) -> None:
        self._by = {60: OrderedDict[int, _Counts](), 3600: OrderedDict[int, _Counts]()}

    def ended(self, tag: JobTag, row: Summary) -> None:
        """A job's tag became terminal, or was so when it was first read."""
        if row.ended_at is None:
            return
        at = row.ended_at.timestamp()
        for width, counts in self._by.items():
            slot = int(at // width)
            counts.setdefault(slot, _Counts()).add(tag, row)
            most = MINUTES if width == 60 else HOURS
            for old in sorted(counts)[: max(0, len(counts) - most - 1)]:
                del counts[old]

    def minutes(self, now: datetime) -> list[Bucket]:
        """The last sixty minutes, oldest first; the last one is not over."""
        return list(self._lately(60, MINUTES, now))

    def hours(self, now: datetime) -> list[Bucket]:
        """The last twenty-four hours, oldest first; the last one is not over."""
        return list(self._lately(3600, HOURS, now))

    def _lately(self, width: int, count: int, now: datetime) -> Iterator[Bucket]:
        last = int(now.timestamp() // width)
        for slot in range(last - count + 1, last + 1):
            at = datetime.fromtimestamp(0, UTC) + timedelta(seconds=slot * width)
            yield (self._by[width].get(slot) or _Counts()).bucket(at)
