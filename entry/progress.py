"""How far running jobs are, read at most twice a second each, however many ask."""

from functools import partial

from cuscuta import limits, spans
from cuscuta.broker import Bus
from cuscuta.errors import BrokerUnavailable
from entry.shared import Shared

_FRESH_S = 0.5


class ProgressCache:
    """Items done, by uid."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._known = Shared[int | None](bus.clock, _FRESH_S, limits.PROGRESS_KEPT)

    async def done(self, uid: str) -> int | None:
        """Items that have a stored result; None while NATS is away."""
        return await self._known.get(uid, partial(self._read, uid))

    async def _read(self, uid: str) -> int | None:
        try:
            return spans.total(await self._bus.results.stored(uid))
        except BrokerUnavailable:
            return None
