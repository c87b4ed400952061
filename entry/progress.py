"""How far running jobs are, read at most twice a second each, however many ask."""

import asyncio

from cuscuta import limits, spans
from cuscuta.broker import Bus
from cuscuta.errors import BrokerUnavailable

_FRESH_S = 0.5


class ProgressCache:
    """Items done, by uid; those asked for last only. Whoever asks while somebody reads waits for the same answer."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._known: dict[str, tuple[float, asyncio.Task[int | None]]] = {}

    async def done(self, uid: str) -> int | None:
        """Items that have a stored result; None while NATS is away."""
        now = self._bus.clock.monotonic()
        at, reading = self._known.get(uid, (now - _FRESH_S, None))
        if reading is None or now - at >= _FRESH_S:
            reading = asyncio.ensure_future(self._read(uid))
            self._known.pop(uid, None)
            self._known[uid] = now, reading
            while len(self._known) > limits.PROGRESS_KEPT:
                del self._known[next(iter(self._known))]
        return await asyncio.shield(reading)

    async def _read(self, uid: str) -> int | None:
        try:
            return spans.total(await self._bus.results.stored(uid))
        except BrokerUnavailable:
            return None
