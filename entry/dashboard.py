"""What the dashboard shows, put together from the bus, the database and what this replica keeps in memory."""

import asyncio
import heapq
import json
from collections import Counter
from datetime import datetime

import msgspec
from msgspec import Struct

from cuscuta import __version__, spans
from cuscuta.broker.catalogues import CatalogueMissing
from cuscuta.broker.projection import Summary
from cuscuta.codec import RecordError
from cuscuta.model import Event, JobStatus, JobTag, Presence
from cuscuta.spans import Span
from entry import chunkmap, views
from entry.caller import Caller
from entry.context import Context
from entry.history import Bucket

API = 1  # of these answers; a field may be added, none is taken away or changes its meaning within a version
SHOWN = 100  # rows of what runs, of what waits, of accounts


class RunningJob(Struct):
    """One job that runs; `rate_per_s` and `eta_s` since its admission."""

    uid: str
    target: str
    catalogue: str
    priority: str
    group: str
    done: int
    total: int
    rate_per_s: float | None
    eta_s: float | None
    admitted_at: datetime | None


class Overview(Struct):
    """One screen: who this is, whether its parts are well, what runs, what waits, who works."""

    api: int
    name: str
    version: str
    at: datetime
    parts: dict[str, str]  # what is wrong, by part; empty when all is well
    running: list[RunningJob]
    running_total: int
    waiting: list[Summary]
    waiting_total: int
    waiting_by_priority: dict[str, int]
    waiting_by_group: dict[str, int]
    oldest_waiting_s: float
    workers: int
    seats: int
    seats_working: int
    items_per_s: float
    accounts: dict[str, int]


class SeatView(Struct):
    """One account at work: what on (null: idle), its rating, and how long an item takes it."""

    account: str
    rate: float
    item_s: float | None
    uid: str | None
    span: Span | None


class WorkerView(Struct):
    """One worker process that is alive."""

    worker: str
    version: str
    started_at: datetime
    at: datetime
    seats: list[SeatView]


class JobDetail(Struct):
    """One job with its chunk map and its events."""

    job: views.JobView
    cells: list[chunkmap.Cell]
    events: list[Event]


class AccountView(Struct):
    """An account that is not simply idle or at work: without its name, which `GET /accounts` has."""

    account: int
    state: str
    rate: float
    rest_until: datetime | None


class AccountsView(Struct):
    """How the accounts are."""

    states: dict[str, int]
    free: int
    used: int
    troubled: list[AccountView]  # resting, disabled or rated below 1; at most 100


class HistoryView(Struct):
    """What ended lately, of all groups: by minute for an hour, by hour for a day."""

    minutes: list[Bucket]
    hours: list[Bucket]


async def overview(context: Context, caller: Caller) -> Overview:
    """One screen, of the jobs that the token sees. Raises BrokerUnavailable, DatabaseUnavailable."""
    now = context.clock.wall()
    rows = [row for row in context.projection.open_jobs() if caller.sees(row.group)]
    waiting = [row for row in rows if row.status is JobStatus.QUEUEING]
    running = [row for row in rows if row.status is JobStatus.PENDING]
    shown = heapq.nsmallest(SHOWN, running, key=_turn)
    workers, states = await asyncio.gather(context.bus.workers(), context.accounts.states())
    done = await asyncio.gather(*(context.progress.done(row.uid) for row in shown))
    oldest = max(((now - row.created_at).total_seconds() for row in waiting), default=0.0)
    working = [doing for worker in workers for doing in worker.working if doing != "idle"]
    paces = (_paces(worker) for worker in workers)
    _, causes = context.health.ready()
    return Overview(
        api=API,
        name=context.settings.name,
        version=__version__,
        at=now.replace(microsecond=0),
        parts=dict(causes),
        running=[_running(row, count or 0, now) for row, count in zip(shown, done, strict=True)],
        running_total=len(running),
        waiting=heapq.nsmallest(SHOWN, waiting, key=_turn),
        waiting_total=len(waiting),
        waiting_by_priority=dict(Counter(str(row.priority) for row in waiting)),
        waiting_by_group=dict(Counter(row.group for row in waiting).most_common(SHOWN)),
        oldest_waiting_s=float(round(max(0.0, oldest))),
        workers=len(workers),
        seats=sum(worker.seats for worker in workers),
        seats_working=len(working),
        items_per_s=round(sum(paces), 1),
        accounts=states,
    )


def _turn(row: Summary) -> tuple[int, tuple[datetime, str]]:
    return row.priority.rank, row.place


def _running(row: Summary, done: int, now: datetime) -> RunningJob:
    elapsed = (now - row.admitted_at).total_seconds() if row.admitted_at else 0.0
    rate = (done - row.done_before) / elapsed if done > row.done_before and elapsed > 0 else None
    return RunningJob(
        uid=row.uid,
        target=row.target,
        catalogue=row.catalogue,
        priority=str(row.priority),
        group=row.group,
        done=done,
        total=row.items,
        rate_per_s=round(rate, 1) if rate else None,
        eta_s=round((row.items - done) / rate) if rate else None,
        admitted_at=row.admitted_at,
    )


def _paces(worker: Presence) -> float:
    """Items a second that the seats at work do together, by their own figures."""
    seats = zip(worker.accounts, worker.working, strict=False)
    return sum(1 / worker.item_s[a] for a, doing in seats if doing != "idle" and worker.item_s.get(a))


def worker_view(context: Context, caller: Caller, worker: Presence) -> WorkerView:
    """A worker, without the jobs that the token does not see."""
    seats = []
    for (account, rate), doing in zip(worker.accounts.items(), worker.working, strict=False):
        uid, span = _at(doing)
        row = context.projection.get(uid or "")
        seen = uid is not None and caller.sees(row.group if row else None)
        seats.append(
            SeatView(
                account=account,
                rate=rate,
                item_s=worker.item_s.get(account),
                uid=uid if seen else "a job of another group" if uid else None,
                span=span if seen else None,
            )
        )
    return WorkerView(worker.worker, worker.version, worker.started_at, worker.at, seats)


def _at(doing: str) -> tuple[str | None, Span | None]:
    """The job and the span that a seat says it is at; what was put there by hand is nothing."""
    uid, _, span = doing.partition(" ")
    try:
        return (None, None) if uid == "idle" else (uid, spans.parse(span))
    except ValueError:
        return None, None


async def detail(context: Context, tag: JobTag) -> JobDetail:
    """A job with its map. Raises BrokerUnavailable."""
    uid, essential, bus = tag.uid, tag.essential, context.bus
    (stored, dead), workers, filed = await asyncio.gather(
        bus.results.coverage(uid), bus.workers(), context.feed.after(0, uid)
    )
    plan: list[Span] = []
    if tag.queue.seats:
        try:
            grid = await bus.catalogues.grid(essential.catalogue)
            plan = spans.divide(grid, essential.span, tag.queue.seats, essential.policy, essential.chunk_items)
        except (CatalogueMissing, RecordError):
            plan = []
    held: dict[Span, str] = {}
    ridden: dict[Span, str] = {}
    for worker in workers if not tag.status.terminal else ():
        for account, doing in zip(worker.accounts, worker.working, strict=False):
            job, span = _at(doing)
            if job == uid and span:
                held[span] = f"{worker.worker} {account}"
            for job, span in map(_at, worker.riding.get(account, ())):
                if job == uid and span:
                    ridden[span] = f"{worker.worker} {account}"
    return JobDetail(
        views.job(tag, stored, None, context.clock.wall()),
        chunkmap.cells(essential.span, plan, stored, dead, held, ridden),
        [one.event for one in filed or ()],
    )


def schema() -> dict[str, object]:
    """JSON Schema (2020-12) of every answer, by its name: what docs/dashboard-api.schema.json holds."""
    kinds = {"overview": Overview, "workers": list[WorkerView], "jobs": views.JobPage, "job": JobDetail,
             "accounts": AccountsView, "history": HistoryView}  # fmt: skip
    found, parts = msgspec.json.schema_components(kinds.values(), ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Cuscuta dashboard API, version {API}",
        "properties": dict(zip(kinds, found, strict=True)),
        "$defs": parts,
    }


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1, sort_keys=True))
