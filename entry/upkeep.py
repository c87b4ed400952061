"""Streams that were deleted under a running deployment are made anew; what was in them the reaper mends from the tags.

What no tag knows is gone with its stream: results that were stored are polled again, the tags themselves are not back.
"""

from cuscuta.broker import Bus
from cuscuta.broker.assets import ensure, missing
from cuscuta.errors import CuscutaError

_LOOK_S = 2.0


async def keep_streams(bus: Bus) -> None:
    """Look for ever. A stream counts as deleted if two looks miss it: a server that starts names them one by one."""
    before: set[str] = set()
    while True:
        await bus.clock.sleep(_LOOK_S)
        try:
            gone = await missing(bus.broker, bus.settings)
            if lost := gone & before:
                bus.log.error("streams were deleted; made anew", streams=sorted(lost))
                await ensure(bus.broker, bus.settings)
            before = gone
        except CuscutaError as error:
            bus.log.debug("the streams cannot be looked at", cause=str(error))
