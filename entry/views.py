"""What callers get. Secrets are not in any of these."""

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from cuscuta import settling
from cuscuta.broker.projection import Summary
from cuscuta.model import AfterWhen, CatalogueHead, CatalogueName, Failure, JobStatus, JobTag, LanePolicy, Priority
from cuscuta.schedule import Schedule
from cuscuta.spans import Span
from entry.destinations import shown


class Accepted(Struct):
    """The answer to a submit. `existing`: a job that ran already, found because this one was to be `unique`."""

    uid: str
    status: JobStatus
    url: str
    results_url: str
    existing: bool = False


class ProgressView(Struct):
    """How far a job is, in items."""

    done: int
    total: int
    share: float
    missing: list[Span]


class JobView(Struct):
    """One job. `waiting_for` says in words why it does not go on; times in seconds."""

    uid: str
    status: JobStatus
    target: str
    catalogue: str
    catalogue_hash: str
    span: Span
    priority: Priority
    key: str | None
    labels: dict[str, str]
    progress: ProgressView
    rate_per_s: float | None
    eta_s: float | None
    waiting_for: str | None
    retries: int
    run_ids: list[str]
    chunks: int
    seats: int
    hedges: int
    failures: list[Failure]
    failure_counts: dict[str, int]
    created_at: datetime
    admitted_at: datetime | None
    ended_at: datetime | None
    deadline: datetime | None
    start_by: datetime | None
    tolerance: int
    lane_policy: LanePolicy
    after: tuple[str, ...]
    after_when: AfterWhen
    webhook: str | None
    results_url: str


class JobPage(Struct):
    """One page of jobs, newest first. `next` is the `before` of the next page, null at the end."""

    jobs: list[Summary]
    next: str | None


class Cancelled(Struct):
    """What a cancellation by filter found and did; `matched` beyond `cancelled` is for the next request."""

    matched: int
    cancelled: int


class GraphJob(Struct):
    """A job of a graph."""

    uid: str
    status: JobStatus
    target: str


class Graph(Struct):
    """Jobs, and which of them runs after which: pairs of uids, the earlier first."""

    jobs: list[GraphJob]
    edges: list[tuple[str, str]]


class ResultItem(Struct, omit_defaults=True):
    """One item's value, or why it has none."""

    index: int
    id: str
    value: Any = None
    error: Any = None


class ResultsView(Struct):
    """A job's results. It is streamed, so this is only its description."""

    uid: str
    status: JobStatus
    target: str
    catalogue: str
    span: Span
    done: int
    missing: list[Span]
    items: list[ResultItem]


class QueueJob(Struct):
    """One job that runs: its chunks that wait, those in a worker's hands, and items done."""

    uid: str
    target: str
    priority: Priority
    done: int
    total: int
    waiting_chunks: int
    held_chunks: int
    admitted_at: datetime | None


class QueueView(Struct):
    """What waits and what runs."""

    waiting: dict[str, int]
    oldest_waiting_s: float
    next: list[Summary]
    running: list[QueueJob]
    max_active_jobs: int
    workers: int
    seats: int


class CatalogueView(Struct):
    """A catalogue by name."""

    name: str
    hash: str
    items: int
    weight: float
    updated_at: datetime
    url: str


class CatalogueDetail(Struct):
    """A catalogue with a page of its items."""

    name: str
    hash: str
    items: int
    weight: float
    cells: int
    updated_at: datetime
    page: list[Any]
    next: int | None


class Imported(Struct):
    """What an import did."""

    added: int
    changed: int


class ScheduleView(Struct):
    """A schedule: its next times, and the job that it made last, or why it made none."""

    id: str
    when: str
    time_zone: str | None
    job: dict[str, Any]
    paused: bool
    done: bool
    next: list[datetime]
    fired_at: datetime | None
    last_uid: str | None
    error: str | None
    created_at: datetime
    url: str


class SchedulePage(Struct):
    """One page of schedules. `next` is the `after` of the next page, null at the end."""

    schedules: list[ScheduleView]
    next: str | None


class HealthView(Struct):
    """`causes` names what is wrong, by part; `tasks` is how many things the process does or waits for."""

    status: str
    causes: dict[str, str]
    tasks: int


def job(tag: JobTag, stored: list[Span], waiting_for: str | None, now: datetime) -> JobView:
    """A job's view; while it runs, progress comes from what is stored."""
    essential, queue = tag.essential, tag.queue
    progress = tag.progress if tag.status.terminal else settling.progress(essential.span, stored)
    rate = eta = None
    if tag.status is JobStatus.PENDING and queue.admitted_at:
        elapsed = (now - queue.admitted_at) / timedelta(seconds=1)
        if (done := progress.done - queue.done_before) > 0 and elapsed > 0:
            rate = done / elapsed
            eta = (essential.span.size - progress.done) / rate
    return JobView(
        uid=tag.uid,
        status=tag.status,
        target=essential.target,
        catalogue=essential.catalogue_name,
        catalogue_hash=essential.catalogue,
        span=essential.span,
        priority=essential.priority,
        key=essential.key,
        labels=essential.labels,
        progress=ProgressView(
            progress.done, essential.span.size, round(progress.done / essential.span.size, 4), progress.missing
        ),
        rate_per_s=round(rate, 2) if rate else None,
        eta_s=round(eta, 1) if eta is not None else None,
        waiting_for=waiting_for,
        retries=len(tag.run_ids) - 1,
        run_ids=tag.run_ids,
        chunks=queue.chunks,
        seats=queue.seats,
        hedges=queue.hedges,
        failures=tag.failures,
        failure_counts=tag.failure_counts,
        created_at=queue.created_at,
        admitted_at=queue.admitted_at,
        ended_at=queue.ended_at,
        deadline=essential.deadline,
        start_by=essential.start_by,
        tolerance=essential.tolerance,
        lane_policy=essential.lane_policy,
        after=essential.after,
        after_when=essential.after_when,
        webhook=shown(essential.webhook),
        results_url=f"/jobs/{tag.uid}/results",
    )


def catalogue(name: CatalogueName) -> CatalogueView:
    """A catalogue's row."""
    return CatalogueView(name.name, name.hash, name.items, name.weight, name.updated_at, f"/catalogues/{name.name}")


def detail(name: CatalogueName, head: CatalogueHead, page: list[Any], following: int | None) -> CatalogueDetail:
    """A catalogue with a page of its items."""
    return CatalogueDetail(
        name.name, name.hash, head.items, head.weight, len(head.cuts) - 1, name.updated_at, page, following
    )


def schedule(found: Schedule, upcoming: list[datetime]) -> ScheduleView:
    """A schedule's view."""
    return ScheduleView(
        id=found.id,
        when=found.when,
        time_zone=found.time_zone,
        job=found.job | ({"webhook": shown(url)} if (url := found.job.get("webhook")) else {}),
        paused=found.paused,
        done=found.done,
        next=upcoming,
        fired_at=found.fired_at,
        last_uid=found.uid,
        error=found.error,
        created_at=found.created_at,
        url=f"/schedules/{found.id}",
    )
