"""The queue: what waits and what runs."""

import asyncio

from litestar import get

from cuscuta.broker.projection import Summary
from cuscuta.model import JobStatus
from entry import access, views
from entry.caller import Caller
from entry.context import Context
from entry.problems import REFUSALS

_SHOWN = 20  # jobs listed of those that wait


@get("/queue", opt=access.READ, tags=["queue"], summary="Show the queue", responses=REFUSALS)
async def show_queue(context: Context, caller: Caller) -> views.QueueView:
    """Counts of what waits by priority, the next jobs, and every job that runs, of those that the token sees."""
    mine = (row for row in context.projection.open_jobs() if caller.sees(row.group))
    rows = sorted(mine, key=lambda row: (row.priority.rank, row.place))
    waiting = [row for row in rows if row.status is JobStatus.QUEUEING]
    counts = {"high": 0, "normal": 0, "low": 0}
    for row in waiting:
        counts[row.priority] += 1
    now = context.clock.wall()
    oldest = max(((now - row.created_at).total_seconds() for row in waiting), default=0.0)
    running = await asyncio.gather(*(_running(context, row) for row in rows if row.status is JobStatus.PENDING))
    workers = await context.bus.workers()
    return views.QueueView(
        waiting=counts,
        oldest_waiting_s=round(max(0.0, oldest), 1),
        next=waiting[:_SHOWN],
        running=list(running),
        max_active_jobs=context.settings.max_active_jobs,
        workers=len(workers),
        seats=sum(worker.seats for worker in workers),
    )


async def _running(context: Context, row: Summary) -> views.QueueJob:
    stored, figures = await asyncio.gather(
        context.bus.results.stored(row.uid), context.bus.work.consumer_delivered(row.uid)
    )
    waiting, held = figures or (0, 0)
    return views.QueueJob(
        uid=row.uid,
        target=row.target,
        priority=row.priority,
        done=sum(span.size for span in stored),
        total=row.items,
        waiting_chunks=waiting,
        held_chunks=held,
        admitted_at=row.admitted_at,
    )
