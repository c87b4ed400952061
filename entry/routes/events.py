"""Events as they happen, as server-sent events: of one job until its end, or of all jobs."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from typing import Annotated, Any

from litestar import Response, get
from litestar.params import HeaderParameter
from litestar.response import ServerSentEvent
from litestar.response.sse import ServerSentEventMessage
from litestar.status_codes import HTTP_204_NO_CONTENT

from cuscuta.broker.feed import Filed
from cuscuta.clock import wait_for_event
from cuscuta.codec import encode
from cuscuta.errors import BrokerUnavailable, InputError
from cuscuta.model import Event
from entry import access
from entry.caller import Caller
from entry.context import Context
from entry.gate import BELIEVED_S
from entry.problems import REFUSALS
from entry.routes.jobs import find

_PING_S = 15.0  # proxies cut what is silent for longer
_PROGRESS_S = 0.5  # how often a job's progress is told at most
_AFTER_END_S = 5.0  # a job that has ended and whose last event does not come
_LAST_EVENT_WITHIN = timedelta(seconds=_AFTER_END_S)
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
LastId = Annotated[
    str | None, HeaderParameter(name="Last-Event-ID", required=False, description="the last event that was seen")
]


@get("/events", opt=access.READ, tags=["events"], summary="Follow all jobs", responses=REFUSALS)
async def follow_all(context: Context, caller: Caller, last_event_id: LastId = None) -> ServerSentEvent:
    """Events of all jobs that the token sees, for as long as it is good, from now on, or after `Last-Event-ID`."""
    after = _sequence(last_event_id)
    return ServerSentEvent(_all(context, caller, context.feed.last if after is None else after), headers=_HEADERS)


@get("/jobs/{uid:str}/events", opt=access.READ, tags=["events"], summary="Follow a job", responses=REFUSALS)
async def follow_job(context: Context, caller: Caller, uid: str, last_event_id: LastId = None) -> Response[Any]:
    """A job's events from its beginning, or after `Last-Event-ID`, its progress twice a second, until it has ended.

    204 if it has ended and nothing came after that event: a browser then stops asking.
    """
    tag, after = await find(context, caller, uid), _sequence(last_event_id)
    if after and tag.status.terminal:
        found = await context.feed.after(after - 1, uid)
        last = found[-1].event.status if found else None
        long_ago = context.clock.wall() - (tag.queue.ended_at or tag.queue.created_at) > _LAST_EVENT_WITHIN
        saw_the_end = len(found) == 1 and found[0].sequence == after and last is not None and last.terminal
        if saw_the_end or (long_ago and (not found or found[-1].sequence <= after)):
            return Response(None, status_code=HTTP_204_NO_CONTENT)
    return ServerSentEvent(_read(context, caller, uid, after or 0), headers=_HEADERS)


def _sequence(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InputError("Last-Event-ID", f"{text[:60]!r} is no number", "Send the `id` of the last event seen.")
    return int(text)


async def _all(context: Context, caller: Caller, after: int) -> AsyncIterator[ServerSentEventMessage]:
    feed = context.feed
    yield ServerSentEventMessage(id=after, data=None, comment="from here on")  # to come back to if nothing happens
    said = context.clock.monotonic()
    with feed.reading():
        while not feed.closed and await context.gate.lasts(caller):
            changed, now = feed.changed, context.clock.monotonic()
            filed = await _after(context, after, None)
            for one in filed or ():
                after = one.sequence
                if _shown(context, caller, one.event):
                    said = now
                    yield _message(one)
            if now - said >= _PING_S:  # with an id, because what was passed over need not be read again
                said = now
                yield ServerSentEventMessage(id=after, data=None, comment="ping")
            if not filed:
                await wait_for_event(changed, BELIEVED_S)


def _shown(context: Context, caller: Caller, event: Event) -> bool:
    """Whether an event is any of the caller's business; of one that does not say whose it is, the list may know."""
    if event.group is not None:
        return caller.sees(event.group)
    row = context.projection.get(event.uid)
    return caller.sees(row.group if row else None)


async def _read(context: Context, caller: Caller, uid: str, after: int) -> AsyncIterator[ServerSentEventMessage]:
    with context.feed.reading():
        async with aclosing(_job(context, caller, uid, after)) as messages:
            async for message in messages:
                yield message


async def _job(context: Context, caller: Caller, uid: str, after: int) -> AsyncGenerator[ServerSentEventMessage, None]:
    feed, clock = context.feed, context.clock
    told = said = ended = clock.monotonic()
    done, over = -1, False
    while not feed.closed and await context.gate.lasts(caller):
        changed, until = feed.changed, feed.last
        found = await _after(context, after, uid)
        for one in found or ():
            after, said = one.sequence, clock.monotonic()
            over = bool(one.event.status and one.event.status.terminal)
            yield _message(one)
        if found == []:
            after = max(after, until)  # nothing of it stands before that
        now, row = clock.monotonic(), context.projection.get(uid)
        if row is None and over:  # its row was dropped to make room for newer ones
            return
        if row is None or not row.status.terminal:
            ended = now
            if now - told >= _PROGRESS_S:
                told, count = now, await context.progress.done(uid)
                if count is not None and count != done:
                    done, said = count, now
                    yield ServerSentEventMessage(event="progress", data=encode({"uid": uid, "done": done}).decode())
        elif over or now - ended > _AFTER_END_S:
            return
        if now - said >= _PING_S:
            said = now
            yield ServerSentEventMessage(data=None, comment="ping")
        await wait_for_event(changed, _PROGRESS_S)


async def _after(context: Context, after: int, uid: str | None) -> list[Filed] | None:
    """Events after a sequence; None while NATS is away."""
    try:
        return await context.feed.after(after, uid)
    except BrokerUnavailable:
        await context.clock.sleep(_PROGRESS_S)
        return None


def _message(filed: Filed) -> ServerSentEventMessage:
    return ServerSentEventMessage(id=filed.sequence, event=filed.event.what, data=encode(filed.event).decode())
