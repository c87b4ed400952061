"""How many seats would have work: what an autoscaler asks for."""

from litestar import get

from entry import access, scaling
from entry.context import Context
from entry.problems import REFUSALS
from entry.scaling import Scaling


@get("/scaling", opt=access.READ, tags=["queue"], summary="How many seats would have work", responses=REFUSALS)
async def show_scaling(context: Context) -> Scaling:
    """What waits and runs in items and seconds, seats alive, seats that would have work, accounts free.

    For an autoscaler: `seats_useful` divided by the seats of a worker process is the number of processes to run. With
    nothing to do it is 0. A replica that has just started answers 503 until it knows all jobs, never a wrong 0.
    """
    return await scaling.look(context)
