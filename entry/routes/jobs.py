"""Jobs: submit, show, list, cancel."""

import asyncio
from collections.abc import Callable
from typing import Annotated

import msgspec
from litestar import Response, delete, get, post
from litestar.params import HeaderParameter, QueryParameter
from litestar.status_codes import HTTP_200_OK, HTTP_202_ACCEPTED

from cuscuta import limits, telemetry
from cuscuta.broker.projection import Summary
from cuscuta.broker.retry import retry
from cuscuta.broker.settle import close
from cuscuta.errors import InputError
from cuscuta.model import JobStatus, JobTag
from cuscuta.uids import is_uid, new_uid, uid_from
from entry import access, filters, views
from entry.accepting import accept
from entry.caller import Caller
from entry.context import Context
from entry.problems import REFUSALS
from entry.requests import JobRequest

Wait = Annotated[
    float, QueryParameter(ge=0, le=limits.WAIT_S, description="answer once the job has ended, or after this")
]
_CANCELS_AT_ONCE = 16
Before = Annotated[str | None, QueryParameter(description="`next` of the page before", required=False)]
Limit = Annotated[int, QueryParameter(ge=1, le=limits.PAGE_ROWS, description="rows of a page")]


@post(
    "/jobs", opt=access.SUBMIT, status_code=HTTP_202_ACCEPTED, tags=["jobs"], summary="Submit a job", responses=REFUSALS
)
async def submit_job(
    context: Context,
    caller: Caller,
    data: JobRequest,
    idempotency_key: Annotated[
        str | None, HeaderParameter(name="Idempotency-Key", required=False, max_length=256, description="names one job")
    ] = None,
) -> Response[views.Accepted]:
    """Accept a job. The answer names where it can be seen and where its results will be."""
    with telemetry.span("submit"):
        key = idempotency_key
        uid = uid_from("idempotency", caller.token, key) if key else new_uid(context.clock.wall())
        job = caller.own(data)
        tag, existing = await accept(context, uid, job, named=key is not None, sees=caller.sees)
    return _accepted(tag, existing=existing)


def _accepted(tag: JobTag, *, existing: bool = False) -> Response[views.Accepted]:
    url = f"/jobs/{tag.uid}"
    body = views.Accepted(tag.uid, tag.status, url, f"{url}/results", existing)
    return Response(body, headers={"Location": url})


def _unknown(uid: str) -> InputError:
    return InputError(
        "uid", f"there is no job {uid[:60]!r}", "It may be past its retention; GET /jobs lists what is kept.", 404
    )


async def find(context: Context, caller: Caller, uid: str, wait_s: float = 0.0) -> JobTag:
    """A job's tag, once the job has ended or the time is up. Raises InputError (404), also for another group's."""
    tag = await context.bus.tags.get(uid) if is_uid(uid) else None
    if tag is None or not caller.sees(tag.essential.group):
        raise _unknown(uid)
    return await context.waits.until_ended(tag, wait_s) if wait_s else tag


@get("/jobs/{uid:str}", opt=access.READ, tags=["jobs"], summary="Show a job", responses=REFUSALS)
async def show_job(context: Context, caller: Caller, uid: str, wait_s: Wait = 0.0) -> views.JobView:
    """Status, progress, ETA, retries, failures, and in words what it waits for."""
    tag = await find(context, caller, uid, wait_s)
    stored = [] if tag.status.terminal else await context.bus.results.stored(uid)
    return views.job(tag, stored, await _waiting_for(context, caller, tag), context.clock.wall())


@delete(
    "/jobs/{uid:str}",
    opt=access.SUBMIT,
    status_code=HTTP_200_OK,
    tags=["jobs"],
    summary="Cancel a job",
    responses=REFUSALS,
)
async def cancel_job(context: Context, caller: Caller, uid: str) -> views.JobView:
    """End a job now; what is stored stays readable. A job that has ended stays as it is."""
    tag = await find(context, caller, uid)
    if not tag.status.terminal:
        tag = await close(context.bus, uid, JobStatus.CANCELLED) or tag
        context.projection.hint()
    return views.job(tag, [], None, context.clock.wall())


@post(
    "/jobs/{uid:str}/retry",
    opt=access.SUBMIT,
    status_code=HTTP_202_ACCEPTED,
    tags=["jobs"],
    summary="Retry",
    responses=REFUSALS,
)
async def retry_job(context: Context, caller: Caller, uid: str) -> Response[views.Accepted]:
    """Run what an ended job has no result for, under the same uid; a time that has passed binds it no more."""
    await find(context, caller, uid)
    tag = await retry(context.bus, uid, context.admission.offer)
    if tag is None:
        raise _unknown(uid)
    context.projection.hint()
    return _accepted(tag)


@delete(
    "/jobs",
    opt=access.SUBMIT,
    status_code=HTTP_200_OK,
    tags=["jobs"],
    summary="Cancel jobs by filter",
    responses=REFUSALS,
)
async def cancel_jobs(
    context: Context,
    caller: Caller,
    status: filters.Statuses = None,
    target: filters.Target = None,
    catalogue: filters.Catalogue = None,
    label: filters.Labels = None,
    dry_run: Annotated[bool, QueryParameter(description="only count them", required=False)] = True,
) -> views.Cancelled:
    """End every job that a filter matches, the newest first; without `dry_run=false` they are only counted."""
    if not (status or target or catalogue or label):
        raise InputError("status", "no filter is given", "Say which jobs: status, target, catalogue or label.")
    meant = filters.matching(status, target, catalogue, label)
    mine = (row for row in context.projection.open_jobs() if caller.sees(row.group))
    found = sorted(filter(meant, mine), key=lambda row: row.place)[::-1]
    if dry_run:
        return views.Cancelled(matched=len(found), cancelled=0)
    uids = iter([row.uid for row in found[: limits.CANCELS]])

    async def end_some() -> int:
        count = 0
        for uid in uids:
            tag = await close(context.bus, uid, JobStatus.CANCELLED)
            if tag is not None:
                context.projection.take(tag)  # the next request must not find it again
                count += tag.status is JobStatus.CANCELLED
        return count

    cancelled = sum(await asyncio.gather(*(end_some() for _ in range(_CANCELS_AT_ONCE))))
    context.projection.hint()
    return views.Cancelled(matched=len(found), cancelled=cancelled)


@get("/jobs", opt=access.READ, tags=["jobs"], summary="List jobs", responses=REFUSALS)
async def list_jobs(
    context: Context,
    caller: Caller,
    status: filters.Statuses = None,
    target: filters.Target = None,
    catalogue: filters.Catalogue = None,
    label: filters.Labels = None,
    before: Before = None,
    limit: Limit = 50,
) -> views.JobPage:
    """Jobs, newest first, page by page."""
    return await page(context, caller, filters.matching(status, target, catalogue, label), before, limit)


async def page(
    context: Context, caller: Caller, meant: Callable[[Summary], bool], before: str | None, limit: int
) -> views.JobPage:
    """Those jobs that are meant, of those that the caller sees, newest first. Raises InputError."""
    last = context.projection.get(before) if before is not None else None
    if before is not None and (last is None or not caller.sees(last.group)):
        raise InputError("before", f"{before[:60]!r} is no job of this list", "Use the `next` of the page before.")
    rows = []
    for row in context.projection.newest(lambda row: meant(row) and caller.sees(row.group), before):
        rows.append(row)
        if len(rows) > limit:
            break
    shown, more = rows[:limit], len(rows) > limit
    return views.JobPage(await _with_progress(context, shown), shown[-1].uid if more else None)


async def _with_progress(context: Context, rows: list[Summary]) -> list[Summary]:
    """Running jobs get their progress from what is stored; there are at most `max_active_jobs` of them."""

    async def one(row: Summary) -> Summary:
        if row.status is not JobStatus.PENDING:
            return row
        stored = await context.bus.results.stored(row.uid)
        return msgspec.structs.replace(row, done=sum(span.size for span in stored))

    return list(await asyncio.gather(*(one(row) for row in rows)))


async def _waiting_for(context: Context, caller: Caller, tag: JobTag) -> str | None:
    if tag.status.terminal:
        return None
    bus = context.bus
    workers = await bus.workers()
    seats = sum(worker.seats for worker in workers)
    if tag.status is JobStatus.QUEUEING:
        for before in tag.essential.after:
            if (row := context.projection.get(before)) and not row.status.terminal:
                which = f"job {before}" if caller.sees(row.group) else "a job of another group"
                return f"{which}, after which it runs"
        lane = tag.essential.lane
        if lane and (head := await bus.lanes.head(lane)) and head.uid != tag.uid:
            return f"job {head.uid}, which is before it in its lane"
        active = await bus.work.active_consumers()
        if active >= context.settings.max_active_jobs:
            return f"admission: {active} jobs are active, as many as are let out at once"
    if not workers:
        return "a worker: none is alive"
    if not seats:
        return "an account: no worker has one; see GET /accounts for their states"
    return "admission" if tag.status is JobStatus.QUEUEING else None
