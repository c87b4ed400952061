"""Catalogues: immutable content under a name."""

import asyncio
from typing import Annotated

from litestar import get, put
from litestar.params import QueryParameter

from cuscuta import limits
from cuscuta.errors import InputError
from cuscuta.model import CatalogueName
from cuscuta.spans import Span
from entry import access, requests, views
from entry.context import Context
from entry.problems import REFUSALS
from entry.requests import CatalogueRequest
from entry.routes.jobs import Limit


@put(
    "/catalogues/{name:str}",
    opt=access.OPERATE,
    tags=["catalogues"],
    summary="Store a catalogue",
    request_max_body_size=limits.CATALOGUE_BODY_BYTES,
    responses=REFUSALS,
)
async def put_catalogue(context: Context, name: str, data: CatalogueRequest) -> views.CatalogueView:
    """Store items and let the name mean them. Jobs that run keep the content that they were submitted with."""
    name = requests.catalogue_name(name)
    items = await asyncio.to_thread(requests.items, data.items)
    while True:
        head = await context.bus.catalogues.put(items)
        pointer = CatalogueName(name, head.hash, head.items, head.weight, context.clock.wall())
        if await context.bus.catalogues.point(pointer):  # else the reaper has just removed it, as in nobody's use
            return views.catalogue(pointer)


@get("/catalogues", opt=access.READ, tags=["catalogues"], summary="List catalogues", responses=REFUSALS)
async def list_catalogues(context: Context) -> list[views.CatalogueView]:
    """All catalogues by name."""
    return [views.catalogue(name) for name in await context.bus.catalogues.names()]


@get("/catalogues/{name:str}", opt=access.READ, tags=["catalogues"], summary="Show a catalogue", responses=REFUSALS)
async def show_catalogue(
    context: Context,
    name: str,
    start: Annotated[int, QueryParameter(name="from", ge=0, description="first item of the page")] = 0,
    limit: Limit = 100,
) -> views.CatalogueDetail:
    """A catalogue and a page of its items."""
    pointer = await context.bus.catalogues.resolve(name)
    if pointer is None:
        raise InputError("name", f"there is no catalogue {name[:80]!r}", "GET /catalogues lists them.", status=404)
    head = await context.bus.catalogues.head(pointer.hash)
    span = Span(min(start, head.items), min(start + limit, head.items))
    page = await context.bus.catalogues.items(pointer.hash, span) if span.size else []
    return views.detail(pointer, head, list(page), span.stop if span.stop < head.items else None)
