"""The dashboard's API, which quite another system could offer too: docs/dashboard-api.md."""

import asyncio
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from litestar import get
from litestar.params import QueryParameter
from litestar.response import ServerSentEvent
from litestar.response.sse import ServerSentEventMessage

from cuscuta.broker.projection import Summary
from cuscuta.clock import wait_for_event
from cuscuta.codec import RecordError, encode
from cuscuta.errors import BrokerRefused, BrokerUnavailable, DatabaseUnavailable, InputError
from entry import access, dashboard, filters, views
from entry.caller import Caller
from entry.context import Context
from entry.fleet import Sighting
from entry.problems import REFUSALS
from entry.routes.jobs import Before, Limit, find, page

_EVERY_S, _PING_S = 1.0, 15.0
_AT = re.compile(rb'"at":"[^"]*"')  # that time goes on is no news
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@get("/deployment", opt=access.READ, tags=["dashboard"], summary="dashboard.Overview", responses=REFUSALS)
async def show_overview(context: Context, caller: Caller) -> dashboard.Overview:
    """Everything for one screen, of the jobs that the token sees."""
    return await _shared_overview(context, caller)


async def _shared_overview(context: Context, caller: Caller) -> dashboard.Overview:
    """One for all who see the same jobs, once a second."""
    found = await context.shared.get(caller.view, partial(dashboard.overview, context, caller))
    assert isinstance(found, dashboard.Overview)  # noqa: S101 - no uid is a view
    return found


@get("/deployment/workers", opt=access.READ, tags=["dashboard"], summary="Workers and seats", responses=REFUSALS)
async def show_workers(context: Context, caller: Caller) -> list[dashboard.WorkerView]:
    """Every worker process that is alive, with what each of its seats is doing."""
    workers = sorted(await context.bus.workers(), key=lambda worker: worker.worker)
    return [dashboard.worker_view(context, caller, worker) for worker in workers]


@get("/deployment/jobs", opt=access.READ, tags=["dashboard"], summary="Find jobs", responses=REFUSALS)
async def find_jobs(
    context: Context,
    caller: Caller,
    status: filters.Statuses = None,
    search: Annotated[
        str, QueryParameter(description="in target, catalogue, labels or uid", max_length=200, required=False)
    ] = "",
    before: Before = None,
    limit: Limit = 50,
) -> views.JobPage:
    """Jobs from the newest on, a page at a time."""
    words, text = search.lower(), context.projection.text

    def meant(row: Summary) -> bool:
        return (not words or words in text(row.uid)) and (not status or row.status in status)

    return await page(context, caller, meant, before, limit)


@get("/deployment/jobs/{uid:str}", opt=access.READ, tags=["dashboard"], summary="A job", responses=REFUSALS)
async def show_detail(context: Context, caller: Caller, uid: str) -> dashboard.JobDetail:
    """One job, its chunk map and its events."""
    return await dashboard.detail(context, await find(context, caller, uid))


@get("/deployment/accounts", opt=access.READ, tags=["dashboard"], summary="Accounts' health", responses=REFUSALS)
async def show_accounts(context: Context) -> dashboard.AccountsView:
    """How many accounts are in which state, and those with which something is the matter. No names, no secrets."""
    states, (free, used), troubled = await asyncio.gather(
        context.accounts.states(), context.accounts.usable(), context.accounts.troubled(dashboard.SHOWN)
    )
    return dashboard.AccountsView(
        states, free, used, [dashboard.AccountView(a.id, str(a.state), a.rate, a.rest_until) for a in troubled]
    )


@get("/deployment/history", opt=access.READ, tags=["dashboard"], summary="What ended lately", responses=REFUSALS)
async def show_history(context: Context) -> dashboard.HistoryView:
    """Ends, items, durations and kinds of failures, by minute and by hour."""
    now = context.clock.wall()
    return dashboard.HistoryView(context.history.minutes(now), context.history.hours(now))


@get("/fleet", opt=access.OPERATE, tags=["dashboard"], summary="Other deployments", responses=REFUSALS)
async def show_fleet(context: Context) -> list[Sighting]:
    """The deployments of `CUSCUTA_FLEET`: each is asked for a second at most; of one that hangs, what was last seen."""
    return await context.fleet.look()


@get("/deployment/changes", opt=access.READ, tags=["dashboard"], summary="Follow changes", responses=REFUSALS)
async def follow_changes(
    context: Context,
    caller: Caller,
    uid: Annotated[str | None, QueryParameter(description="a job to follow as well", required=False)] = None,
) -> ServerSentEvent:
    """`overview`, and with `uid` also `job`, as server-sent events: at once, then when they change, once a second."""
    if uid is not None:
        await find(context, caller, uid)
    return ServerSentEvent(_changes(context, caller, uid), headers=_HEADERS)


async def _changes(context: Context, caller: Caller, uid: str | None) -> AsyncIterator[ServerSentEventMessage]:
    feed, clock = context.feed, context.clock
    last: dict[str, bytes] = {}
    said = clock.monotonic()
    with feed.reading():
        while not feed.closed and await context.gate.lasts(caller):
            began = clock.monotonic()
            for name, data in await _news(context, caller, uid):
                if _AT.sub(b"", last.get(name, b"")) != _AT.sub(b"", data):
                    last[name], said = data, began
                    yield ServerSentEventMessage(event=name, data=data.decode())
            if began - said >= _PING_S:
                said = began
                yield ServerSentEventMessage(data=None, comment="ping")
            await wait_for_event(feed.over, max(0.05, _EVERY_S - (clock.monotonic() - began)))


async def _news(context: Context, caller: Caller, uid: str | None) -> list[tuple[str, bytes]]:
    found = []
    try:
        found.append(("overview", encode(await _shared_overview(context, caller))))
        if uid is not None:
            tag = await find(context, caller, uid)
            make = partial(dashboard.detail, context, tag)
            found.append(("job", encode(await context.shared.get((uid, tag.status), make))))
    except (BrokerUnavailable, BrokerRefused, DatabaseUnavailable, InputError, RecordError) as error:
        found.append(("trouble", encode({"cause": str(error)})))
    return found
