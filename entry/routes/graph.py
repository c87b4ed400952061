"""A job among those before and after it."""

from collections import deque

from litestar import get

from cuscuta import limits
from entry import access, views
from entry.caller import Caller
from entry.context import Context
from entry.problems import REFUSALS
from entry.routes.jobs import find


@get("/jobs/{uid:str}/graph", opt=access.READ, tags=["jobs"], summary="Show what a job depends on", responses=REFUSALS)
async def show_graph(context: Context, caller: Caller, uid: str) -> views.Graph:
    """Every job that this one runs after or that runs after it, and theirs; a follow-up once it has been submitted."""
    await find(context, caller, uid)
    rows = context.projection
    seen, queue = {uid}, deque([uid])
    edges: set[tuple[str, str]] = set()
    while queue and len(seen) < limits.GRAPH_JOBS:
        one = queue.popleft()
        row = rows.get(one)
        befores = [uid for uid in (row.after if row else ()) if _seen(context, caller, uid)]
        later = [uid for uid in rows.later(one) if _seen(context, caller, uid)]
        edges.update((before, one) for before in befores)
        edges.update((one, other) for other in later)
        for other in (*befores, *later):
            if other not in seen:
                seen.add(other)
                queue.append(other)
    jobs = [views.GraphJob(one, row.status, row.target) for one in sorted(seen) if (row := rows.get(one))]
    return views.Graph(jobs, sorted(edges))


def _seen(context: Context, caller: Caller, uid: str) -> bool:
    row = context.projection.get(uid)
    return caller.sees(row.group if row else None)
