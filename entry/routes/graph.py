"""A job among those before and after it."""

from collections import deque

from litestar import get

from cuscuta import limits
from entry import views
from entry.context import Context
from entry.problems import REFUSALS
from entry.routes.jobs import find


@get("/jobs/{uid:str}/graph", tags=["jobs"], summary="Show what a job depends on", responses=REFUSALS)
async def show_graph(context: Context, uid: str) -> views.Graph:
    """Every job that this one runs after or that runs after it, and theirs; a follow-up once it has been submitted."""
    await find(context, uid)
    rows = context.projection
    seen, queue = {uid}, deque([uid])
    edges: set[tuple[str, str]] = set()
    while queue and len(seen) < limits.GRAPH_JOBS:
        one = queue.popleft()
        befores, later = (row.after if (row := rows.get(one)) else ()), rows.later(one)
        edges.update((before, one) for before in befores)
        edges.update((one, other) for other in later)
        for other in (*befores, *later):
            if other not in seen:
                seen.add(other)
                queue.append(other)
    jobs = [views.GraphJob(one, row.status, row.target) for one in sorted(seen) if (row := rows.get(one))]
    return views.Graph(jobs, sorted(edges))
