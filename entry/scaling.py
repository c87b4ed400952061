"""How much work there is and how many seats would find some: for an autoscaler and for the metrics."""

import asyncio
from collections.abc import Iterable

from msgspec import Struct

from cuscuta.broker.projection import Summary
from cuscuta.model import JobStatus, Presence
from entry.context import Context


class Scaling(Struct):
    """The whole deployment's work and hands, whoever asks. With nothing to do, all but seats and accounts is 0.

    `waiting_items`: of jobs that wait. `in_flight_items`: of those that run, what is not stored. `backlog_items`: both.
    `backlog_s`: how long the seats alive need for them at the pace they have now; null while none of them knows one.
    `seats_useful`: how many seats would find something to do now, which is what to scale by: one for each item of what
    may run now, and for each account that can be used. `accounts_free`: how many a new seat could lease at once.
    """

    waiting_items: int
    in_flight_items: int
    backlog_items: int
    backlog_s: float | None
    seats: int
    seats_useful: int
    accounts_free: int


def measure(
    rows: Iterable[Summary], done: dict[str, int], workers: Iterable[Presence], free: int, used: int, active_most: int
) -> Scaling:
    """The figures, from jobs that have not ended, items stored of those that run, and accounts free and in use."""
    workers = list(workers)
    waiting, runs, lanes = [], [], set()
    for row in sorted(rows, key=lambda row: (row.priority.rank, row.place)):
        if row.status is JobStatus.PENDING:
            runs.append(row)
            lanes.add((row.group, row.lane))
        else:
            waiting.append(row)
    in_flight = sum(max(0, row.items - done.get(row.uid, 0)) for row in runs)
    now, places = in_flight, active_most - len(runs)
    for row in waiting:  # those that may be admitted now: not after others, and one of a lane
        if places <= 0:
            break
        if row.after or (row.lane and (row.group, row.lane) in lanes):
            continue
        lanes.add((row.group, row.lane))
        places -= 1
        now += row.items
    backlog = in_flight + sum(row.items for row in waiting)
    paces = [1 / s for worker in workers for s in worker.item_s.values() if s > 0]
    seats = sum(worker.seats for worker in workers)
    per_s = sum(paces) / len(paces) * seats if paces else 0.0
    return Scaling(
        waiting_items=backlog - in_flight,
        in_flight_items=in_flight,
        backlog_items=backlog,
        backlog_s=0.0 if not backlog else round(backlog / per_s, 1) if per_s else None,
        seats=seats,
        seats_useful=min(now, free + used),
        accounts_free=free,
    )


async def look(context: Context) -> Scaling:
    """The figures as they are now. Raises BrokerUnavailable, DatabaseUnavailable."""
    rows = list(context.projection.open_jobs())
    uids = [row.uid for row in rows if row.status is JobStatus.PENDING]
    workers, (free, used) = await asyncio.gather(context.bus.workers(), context.accounts.usable())
    done = await asyncio.gather(*(context.progress.done(uid) for uid in uids))
    known = {uid: count or 0 for uid, count in zip(uids, done, strict=True)}
    return measure(rows, known, workers, free, used, context.settings.max_active_jobs)
