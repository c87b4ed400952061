"""Gauges of the whole deployment, as this replica sees it; every replica shows the same ones."""

from cuscuta import instruments
from cuscuta.errors import CuscutaError
from cuscuta.model import JobStatus
from cuscuta.transitions import AccountState
from entry import scaling
from entry.context import Context

_EVERY_S = 10.0


async def measure_for_ever(context: Context) -> None:
    """Look every 10 s; while something is away the last figures stand, and `cuscuta.ready` is 0."""
    while True:
        try:
            await look(context)
        except CuscutaError as error:
            context.bus.log.debug("the gauges wait", cause=str(error))
        await context.clock.sleep(_EVERY_S)


async def look(context: Context) -> None:
    """Set every gauge. Raises BrokerUnavailable, DatabaseUnavailable."""
    found, states = await scaling.look(context), await context.accounts.states()
    for state in AccountState:
        instruments.ACCOUNTS.set(states.get(str(state), 0), {"cuscuta.state": str(state)})
    rows = list(context.projection.open_jobs())
    for status in (JobStatus.QUEUEING, JobStatus.PENDING):
        count = sum(row.status is status for row in rows)
        instruments.JOBS.set(count, {"cuscuta.status": str(status)})
    since = min((row.created_at for row in rows if row.status is JobStatus.QUEUEING), default=None)
    instruments.OLDEST.set((context.clock.wall() - since).total_seconds() if since else 0.0)
    instruments.BACKLOG.set(found.backlog_items)
    instruments.SEATS_USEFUL.set(found.seats_useful)
    instruments.STREAM.set(context.bus.work.messages)
