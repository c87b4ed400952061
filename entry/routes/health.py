"""Health of this replica, for probes."""

from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter

from cuscuta.health import tasks
from entry import access
from entry.context import Context
from entry.views import HealthView

Exclude = Annotated[
    list[str] | None, QueryParameter(description="parts not to mind: `postgres`, `nats`", required=False)
]


@get("/livez", opt=access.OPEN, security=[{}], tags=["health"], summary="Does this process turn?")
async def live(context: Context) -> Response[HealthView]:
    """200 while its loop makes progress, else 503 with the cause."""
    return _answer(*context.health.live())


@get("/readyz", opt=access.OPEN, security=[{}], tags=["health"], summary="Does everything it needs answer?")
async def ready(context: Context, exclude: Exclude = None) -> Response[HealthView]:
    """200 if NATS and PostgreSQL answered the last time, else 503 with the cause.

    A load balancer asks with `exclude=postgres`: without it jobs go on, so entry must stay within reach.
    """
    return _answer(*context.health.ready(exclude or ()))


def _answer(good: bool, causes: dict[str, str]) -> Response[HealthView]:
    return Response(HealthView("ok" if good else "unavailable", causes, tasks()), status_code=200 if good else 503)
