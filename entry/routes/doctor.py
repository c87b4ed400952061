"""A look at the whole deployment."""

from litestar import get

from entry import access
from entry.checkup import Finding, examine
from entry.context import Context
from entry.problems import REFUSALS


@get("/doctor", opt=access.OPERATE, tags=["health"], summary="Examine the deployment", responses=REFUSALS)
async def show_findings(context: Context) -> list[Finding]:
    """What was looked at: good, doubtful or bad, with what to do. Relaxed syncing of NATS the command line looks at."""
    return await examine(context)
