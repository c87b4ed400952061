"""Schedules: jobs that are submitted again and again, or at a time to come."""

from typing import Annotated

from litestar import Response, delete, get, patch, post
from litestar.params import HeaderParameter, QueryParameter
from litestar.status_codes import HTTP_200_OK, HTTP_201_CREATED, HTTP_204_NO_CONTENT
from msgspec.structs import replace

from cuscuta import limits
from cuscuta.broker.schedules import BAD_SPEC
from cuscuta.errors import BrokerRefused, InputError
from cuscuta.schedule import Schedule
from cuscuta.uids import is_uid, new_uid, uid_from
from entry import access, requests, times, views
from entry.accepting import resolve
from entry.caller import Caller
from entry.context import Context
from entry.problems import REFUSALS
from entry.requests import ScheduleChange, ScheduleRequest

Limit = Annotated[int, QueryParameter(ge=1, le=limits.PAGE_ROWS, description="rows of a page")]


@post(
    "/schedules",
    opt=access.SUBMIT,
    status_code=HTTP_201_CREATED,
    tags=["schedules"],
    summary="Make a schedule",
    responses=REFUSALS,
)
async def make_schedule(
    context: Context,
    caller: Caller,
    data: ScheduleRequest,
    idempotency_key: Annotated[
        str | None,
        HeaderParameter(name="Idempotency-Key", required=False, max_length=256, description="names one schedule"),
    ] = None,
) -> Response[views.ScheduleView]:
    """Submit `job` whenever `when` says so, from now on. The catalogue is that of its name at that time."""
    store, now = context.bus.schedules, context.clock.wall()
    data = replace(data, job=caller.own(data.job))
    uid = uid_from("schedule", caller.token, idempotency_key) if idempotency_key else new_uid(now)
    schedule = Schedule(
        id=uid,
        when=data.when.strip(),
        job=requests.scheduled(data.job),
        created_at=now,
        time_zone=data.time_zone,
        digest=requests.digest(data),
        began_at=now,
    )
    if idempotency_key and (standing := await store.get(uid)):
        return _made(context, _alike(standing, schedule))
    times.check(schedule, now)
    names = await resolve(context, data.job)
    requests.essential(requests.as_job(data.job), names, context.clock)  # what would be refused then is refused now
    if len(await store.ids()) >= limits.SCHEDULES:
        raise InputError("when", f"there are {limits.SCHEDULES:,} schedules", "Remove some first.", 409)
    if not await store.create(schedule):
        return _made(context, _alike(await store.get(uid) or schedule, schedule))
    try:
        await store.run(schedule)
    except BrokerRefused as error:
        await store.remove(uid)
        if error.code not in BAD_SPEC:
            raise
        field = "time_zone" if error.code == BAD_SPEC[1] else "when"
        raise InputError(field, f"NATS does not understand it: {error}", "See docs/jobs.md for examples.") from error
    return _made(context, schedule)


def _alike(standing: Schedule, asked: Schedule) -> Schedule:
    if standing.digest != asked.digest:
        raise InputError(
            "Idempotency-Key",
            f"was used for another request (schedule {standing.id})",
            "Use a new key for a new schedule, or send the same body again.",
            status=409,
        )
    return standing


def _made(context: Context, schedule: Schedule) -> Response[views.ScheduleView]:
    view = views.schedule(schedule, times.upcoming(schedule, context.clock.wall()))
    return Response(view, headers={"Location": view.url})


async def _find(context: Context, caller: Caller, uid: str) -> Schedule:
    schedule = await context.bus.schedules.get(uid) if is_uid(uid) else None
    if schedule is None or not caller.sees(schedule.group):
        raise InputError("uid", f"there is no schedule {uid[:60]!r}", "GET /schedules lists those there are.", 404)
    return schedule


@get("/schedules", opt=access.READ, tags=["schedules"], summary="List schedules", responses=REFUSALS)
async def list_schedules(
    context: Context,
    caller: Caller,
    after: Annotated[str | None, QueryParameter(description="`next` of the page before", required=False)] = None,
    limit: Limit = 50,
) -> views.SchedulePage:
    """Schedules in order of their ids, which mostly is that of their making, each with its next times."""
    ids = [uid for uid in await context.bus.schedules.ids() if after is None or uid > after]
    now, mine = context.clock.wall(), []
    for i in range(0, len(ids), limits.PAGE_ROWS):
        some = await context.bus.schedules.some(ids[i : i + limits.PAGE_ROWS])
        mine += [one for one in some if caller.sees(one.group)]
        if len(mine) > limit:
            break
    page = mine[:limit]
    rows = [views.schedule(schedule, times.upcoming(schedule, now)) for schedule in page]
    return views.SchedulePage(rows, page[-1].id if len(mine) > limit else None)


@get("/schedules/{uid:str}", opt=access.READ, tags=["schedules"], summary="Show a schedule", responses=REFUSALS)
async def show_schedule(context: Context, caller: Caller, uid: str) -> views.ScheduleView:
    """A schedule, its next times, and what became of the last one."""
    schedule = await _find(context, caller, uid)
    return views.schedule(schedule, times.upcoming(schedule, context.clock.wall()))


@patch(
    "/schedules/{uid:str}",
    opt=access.SUBMIT,
    status_code=HTTP_200_OK,
    tags=["schedules"],
    summary="Pause",
    responses=REFUSALS,
)
async def change_schedule(context: Context, caller: Caller, uid: str, data: ScheduleChange) -> views.ScheduleView:
    """Pause it or let it go on. Times that pass meanwhile are not made up for, but a single one comes at once."""
    store, schedule = context.bus.schedules, await _find(context, caller, uid)
    now = context.clock.wall()
    if data.paused == schedule.paused or schedule.done:
        return views.schedule(schedule, times.upcoming(schedule, now))
    if data.paused:
        changed = await store.change(uid, lambda old: replace(old, paused=True))
        await store.stop(uid)
    else:
        changed = await store.change(uid, lambda old: replace(old, paused=False, began_at=now, fired_at=None))
        await store.run(schedule)
    return views.schedule(changed or schedule, times.upcoming(changed or schedule, now))


@delete(
    "/schedules/{uid:str}",
    opt=access.SUBMIT,
    status_code=HTTP_204_NO_CONTENT,
    tags=["schedules"],
    summary="End",
    responses=REFUSALS,
)
async def remove_schedule(context: Context, caller: Caller, uid: str) -> None:
    """End a schedule; the jobs that it has made go on."""
    await _find(context, caller, uid)
    await context.bus.schedules.remove(uid)
