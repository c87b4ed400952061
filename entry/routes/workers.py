"""Worker processes that are alive."""

from litestar import get
from msgspec.structs import replace

from cuscuta.model import Presence
from cuscuta.uids import is_uid
from entry import access
from entry.caller import Caller
from entry.context import Context
from entry.problems import REFUSALS


@get("/workers", opt=access.READ, tags=["queue"], summary="List workers", responses=REFUSALS)
async def list_workers(context: Context, caller: Caller) -> list[Presence]:
    """Every worker process: its seats, the accounts it holds with their rates, and what each seat is doing."""

    def shown(doing: str) -> str:
        uid = doing.partition(" ")[0]
        row = context.projection.get(uid)
        return doing if not is_uid(uid) or caller.sees(row.group if row else None) else "a job of another group"

    workers = sorted(await context.bus.workers(), key=lambda worker: worker.worker)
    return [replace(worker, working=[shown(doing) for doing in worker.working]) for worker in workers]
