"""Worker processes that are alive."""

from litestar import get

from cuscuta.model import Presence
from entry.context import Context
from entry.problems import REFUSALS


@get("/workers", tags=["queue"], summary="List workers", responses=REFUSALS)
async def list_workers(context: Context) -> list[Presence]:
    """Every worker process: its seats, the accounts it holds with their rates, and what each seat is doing."""
    return sorted(await context.bus.workers(), key=lambda worker: worker.worker)
