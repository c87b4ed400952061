"""Results: what there is so far while a job runs, everything when it has ended; streamed, never gathered."""

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from litestar import Request, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import QueryParameter
from litestar.response import Stream

from cuscuta import spans
from cuscuta.codec import encode
from cuscuta.errors import BrokerUnavailable, InputError
from cuscuta.model import ChunkResult, JobTag
from cuscuta.spans import Span
from entry import access, tables
from entry.caller import Caller
from entry.context import Context
from entry.problems import REFUSALS
from entry.routes.jobs import Wait, find
from entry.views import ResultItem, ResultsView

NDJSON = "application/x-ndjson"
_ELECTED_S = 3.0
_FOLLOW_S = 0.3  # how often new results are looked for
_LAST_LOOKS = 20  # at what a lagging replica does not have yet, or nobody can read


@get(
    "/jobs/{uid:str}/results",
    opt=access.READ,
    tags=["jobs"],
    summary="Read a job's results",
    description=(
        "200 with everything once the job has ended; 206 with what there is so far, the missing spans and "
        "`Retry-After` while it runs. Send `Accept: application/x-ndjson` for one item a line, `text/csv` or "
        "`application/vnd.apache.parquet` for a table. "
        "With `follow=true` items come one a line as they are stored, until the job has ended."
    ),
    responses={
        **REFUSALS,
        200: ResponseSpec(ResultsView, description="Everything: the job has ended.", generate_examples=False),
        206: ResponseSpec(ResultsView, description="So far, and what is missing.", generate_examples=False),
    },
)
async def read_results(
    context: Context,
    caller: Caller,
    request: Request[Any, Any, Any],
    uid: str,
    start: Annotated[int | None, QueryParameter(name="from", ge=0, required=False, description="first item")] = None,
    stop: Annotated[
        int | None, QueryParameter(name="to", ge=1, required=False, description="one past the last")
    ] = None,
    follow: Annotated[bool, QueryParameter(description="go on until the job has ended", required=False)] = False,
    wait_s: Wait = 0.0,
) -> Stream:
    """Items in the catalogue's order; in the order in which they come when followed."""
    tag = await find(context, caller, uid, wait_s)
    whole = tag.essential.span
    within = Span(whole.start if start is None else start, whole.stop if stop is None else stop)
    if within.start < whole.start or within.stop > whole.stop or not within.size:
        raise InputError("from", f"{within} is not inside of the job's span", f"Send a span inside of {whole}.")
    if follow:
        return Stream(_follow(context, caller, tag, within), media_type=NDJSON)
    stored = await _stored(context, tag)
    missing = spans.gaps(within, stored)
    headers = {"Cuscuta-Status": str(tag.status), "Cuscuta-Missing-Items": str(spans.total(missing))}
    if not tag.status.terminal:
        headers["Retry-After"] = "2"
    accept = request.headers.get("accept", "")
    if NDJSON in accept:
        media_type, body = NDJSON, _ndjson(context, tag, within, stored)
    elif tables.CSV in accept:
        media_type, body = tables.CSV, tables.as_csv(_items(context, tag, within, stored))
        headers["Content-Disposition"] = f'attachment; filename="{uid}.csv"'
    elif tables.PARQUET in accept:
        kinds = await _kinds(context, tag, within, stored)
        media_type, body = tables.PARQUET, tables.as_parquet(_items(context, tag, within, stored), kinds)
        headers["Content-Disposition"] = f'attachment; filename="{uid}.parquet"'
    else:
        media_type, body = "application/json", _json(context, tag, within, stored, missing)
    return Stream(body, status_code=200 if tag.status.terminal else 206, media_type=media_type, headers=headers)


async def _stored(context: Context, tag: JobTag) -> list[Span]:
    """What is stored of a job. What its end counted is waited for: a leader just elected may not know all of it yet."""
    until = context.clock.monotonic() + _ELECTED_S
    while True:
        stored = await context.bus.results.stored(tag.uid)
        counted = not tag.status.terminal or spans.total(stored) >= tag.progress.done
        if counted or context.clock.monotonic() >= until:  # else removed by hand
            return stored
        await context.clock.sleep(0.1)


async def _json(
    context: Context, tag: JobTag, within: Span, stored: list[Span], missing: list[Span]
) -> AsyncIterator[bytes]:
    head = encode(
        {
            "uid": tag.uid,
            "status": tag.status,
            "target": tag.essential.target,
            "catalogue": tag.essential.catalogue_name,
            "span": within,
            "done": within.size - spans.total(missing),
            "missing": missing,
        }
    )
    yield head[:-1] + b',"items":['
    first = True
    async for items in _items(context, tag, within, stored):
        yield (b"" if first else b",") + b",".join(items)
        first = False
    yield b"]}\n"


async def _ndjson(context: Context, tag: JobTag, within: Span, stored: list[Span]) -> AsyncIterator[bytes]:
    async for items in _items(context, tag, within, stored):
        yield b"\n".join(items) + b"\n"


async def _kinds(context: Context, tag: JobTag, within: Span, stored: list[Span]) -> set[str]:
    found: set[str] = set()
    async for items in _items(context, tag, within, stored):
        found |= tables.kinds(items)
        if "json" in found:
            break
    return found


async def _follow(context: Context, caller: Caller, tag: JobTag, within: Span) -> AsyncIterator[bytes]:
    """What was read counts as sent, not what is said to be stored: a replica may know of a key before its value."""
    bus = context.bus
    sent: list[Span] = []
    last = 0
    while True:
        over = tag.status.terminal  # known before the look at what is stored: the last look then sees all
        new: list[Span] = []
        try:
            stored = await bus.results.stored(tag.uid)
            inner = (spans.clip(span, within) for span in spans.union(stored))
            new = [gap for span in inner if span.size for gap in spans.gaps(span, sent)]
            for part in new:
                async for span, result in bus.results.read(tag.uid, part, stored):
                    yield b"\n".join(await _lines(context, tag, span, result)) + b"\n"
                    sent = spans.union([*sent, span])
            left = any(spans.gaps(part, sent) for part in new)
        except BrokerUnavailable:  # what was sent is not sent again
            left = True
        if over:
            last += left
            if not left or last > _LAST_LOOKS:
                return
            await context.clock.sleep(_FOLLOW_S)
        if context.feed.closed or not await context.gate.lasts(caller):
            why = "this replica stops; the job goes on" if context.feed.closed else "the token is good no longer"
            yield encode({"error": {"type": "Interrupted", "message": why}}) + b"\n"
            return
        with contextlib.suppress(BrokerUnavailable):
            tag = await context.waits.until_ended(tag, _FOLLOW_S)


async def _items(context: Context, tag: JobTag, within: Span, stored: list[Span]) -> AsyncIterator[list[bytes]]:
    async for span, result in context.bus.results.read(tag.uid, within, stored):
        yield await _lines(context, tag, span, result)


async def _lines(context: Context, tag: JobTag, span: Span, result: ChunkResult) -> list[bytes]:
    catalogue = await context.bus.catalogues.items(tag.essential.catalogue, span)
    return [
        _item(i, item.id, value, result) for i, item, value in zip(range(*span), catalogue, result.values, strict=False)
    ]


def _item(index: int, name: str, value: msgspec.Raw, result: ChunkResult) -> bytes:
    if error := result.errors.get(str(index)):
        return encode(ResultItem(index, name, error=error))
    return encode({"index": index, "id": name, "value": value})
