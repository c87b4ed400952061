"""A thousand seats and a million jobs over the pure decisions: admission's turns, the division, a seat's choice.

No servers, no clock: events on a heap. What it shows is that the decisions hold at that size, makespan and fairness;
what the servers carry is measured by the other benchmarks (docs/scale.md).
"""

import heapq
import random
import time
from collections import Counter, defaultdict, deque
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from cuscuta import spans
from cuscuta.embedded.postgres import Postgres
from cuscuta.model import ActiveJob, Priority
from cuscuta.spans import Span
from entry.turns import Queue, Turns
from worker.choice import Shares

SEATS, PROCESSES, MOST, GROUPS = 1_000, 16, 400, 12
ITEM_S, SLOW_SHARE, SLOW, WINDOW_S = 1.0, 0.1, 3.0, 10.0
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Job:
    """An active job as a seat's choice sees it, with the chunks that nobody has pulled."""

    __slots__ = ("active", "chunks", "dry_until", "ended", "left", "queue")

    def __init__(self, active: ActiveJob, queue: Queue) -> None:
        self.active, self.queue, self.ended, self.dry_until = active, queue, False, 0.0
        grid = spans.make_grid([1.0] * active.span.size)
        self.chunks = deque(spans.divide(grid, active.span, active.seats))
        self.left = active.span.size


class World:
    """Everything that waits, runs and has been done."""

    def __init__(self, jobs: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.turns, self.numbers = Turns(), count()
        self.waiting: dict[Queue, deque[tuple[int, float]]] = defaultdict(deque)  # items, and when it came
        self.admitted = 0
        # With chunks to pull, oldest first: of a queue only the oldest can come first, so only those are compared.
        self.open: dict[Queue, deque[Job]] = {}
        self.running: dict[str, Job] = {}
        self.shares = [Shares() for _ in range(PROCESSES)]
        self.seat_s = [ITEM_S * (SLOW if n < SEATS * SLOW_SHARE else 1.0) for n in range(SEATS)]
        self.random.shuffle(self.seat_s)
        self.items = 0
        self.served: dict[str, Counter[int]] = defaultdict(Counter)  # items by group and window
        self.waits: dict[Priority, list[float]] = defaultdict(list)
        for n in range(jobs):  # one group has half of all
            group = "group 0" if n % 2 else f"group {self.random.randrange(1, GROUPS)}"
            priority = self.random.choices(list(Priority), [0.05, 0.9, 0.05])[0]
            self.submit((priority, group), self.random.randrange(4, 21), 0.0)

    def submit(self, queue: Queue, items: int, at: float) -> None:
        self.waiting[queue].append((items, at))
        self.turns.waits(queue)
        self.items += items

    def admit(self, now: float) -> None:
        """As entry does: the next queue in turn that has room, until no place is free."""
        while len(self.running) < MOST:
            for queue in self.turns.order():
                if not self.waiting[queue]:
                    self.turns.asked(queue)
                elif self.turns.room(queue, len(self.running), MOST):
                    break
            else:
                return
            items, at = self.waiting[queue].popleft()
            uid = f"{next(self.numbers):08}"
            self.turns.served(queue[1])
            self.turns.began(uid, queue)
            created = NOW + timedelta(seconds=at)
            active = ActiveJob(uid, uid, "c", Span(0, items), queue[0], created, group=queue[1], seats=SEATS)
            self.running[uid] = job = Job(active, queue)
            self.open.setdefault(queue, deque()).append(job)
            self.waits[queue[0]].append(now - at)

    def run(self, newcomer_at: float) -> tuple[float, float]:
        """Until nothing is left: the makespan, and how long a newcomer's first job took who came in the middle."""
        self.admit(0.0)
        events: list[tuple[float, int, Job | None, Span | None]] = [(0.0, seat, None, None) for seat in range(SEATS)]
        heapq.heapify(events)
        idle: list[int] = []
        now = first_s = 0.0
        newcomer = ""
        while events:
            now, seat, job, chunk = heapq.heappop(events)
            shares = self.shares[seat % PROCESSES]
            if job is not None and chunk is not None:
                shares.ended(job.active.group, chunk.size * self.seat_s[seat])
                job.left -= chunk.size
                self.served[job.active.group][int(now // WINDOW_S)] += chunk.size
                if not job.left:
                    job.ended = True
                    del self.running[job.active.uid]
                    self.turns.ended(job.active.uid)
                    first_s = first_s or (now - newcomer_at if job.active.group == "newcomer" else 0.0)
                    self.admit(now)
                    for other in idle:
                        heapq.heappush(events, (now, other, None, None))
                    idle.clear()
            if now >= newcomer_at and not newcomer:
                newcomer = "newcomer"
                for _ in range(10):
                    self.submit((Priority.NORMAL, newcomer), 12, now)
                self.admit(now)
            shares.see({group for _, group in self.open})
            order = shares.in_turn(jobs[0] for jobs in self.open.values())
            if not order:
                idle.append(seat)
                continue
            found = order[0]
            part = found.chunks.popleft()
            if not found.chunks:
                self.open[found.queue].popleft()
                if not self.open[found.queue]:
                    del self.open[found.queue]
            shares.began(found.active.group)
            heapq.heappush(events, (now + part.size * self.seat_s[seat], seat, found, part))
        return now, first_s


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    jobs = 5_000 if quick else (rounds or 1_000) * 1_000
    world = World(jobs, 1)
    capacity = sum(1 / s for s in world.seat_s)
    ideal_s = world.items / capacity
    began = time.monotonic()
    took_s, first_s = world.run(ideal_s / 3)
    small = [f"group {n}" for n in range(1, GROUPS)]
    high = sorted(world.waits[Priority.HIGH])
    # While everybody has a backlog, and nobody has any of high priority: that comes first, whosever it is.
    first = int(high[-1] / WINDOW_S) + 2
    windows = range(first, max(first + 1, int(ideal_s / WINDOW_S * 0.5)))
    served = {group: sum(world.served[group][m] for m in windows) for group in [*small, "group 0"]}
    mean = sum(served[group] for group in small) / len(small)
    return {
        "bench": "scale",
        "jobs": jobs,
        "items": world.items,
        "seats": SEATS,
        "active_jobs": MOST,
        "makespan_s": round(took_s),
        "over_ideal": round(took_s / ideal_s, 4),
        "group_with_half_of_all_over_the_others": round(served["group 0"] / mean, 3),
        "least_and_most_of_the_others_over_their_mean": [
            round(min(served[g] for g in small) / mean, 3),
            round(max(served[g] for g in small) / mean, 3),
        ],
        "newcomer_first_job_s": round(first_s, 1),
        "high_priority_waited_s": {"p50": round(high[len(high) // 2]), "last": round(high[-1])},
        "seconds_of_computing": round(time.monotonic() - began, 1),
    }
