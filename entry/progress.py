"""How far running jobs are, read at most twice a second each, however many ask."""

from cuscuta import limits, spans
from cuscuta.broker import Bus

_FRESH_S = 0.5


class ProgressCache:
    """Items done, by uid; the newest questions only."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._known: dict[str, tuple[float, int]] = {}

    async def done(self, uid: str) -> int:
        """Items that have a stored result."""
        now = self._bus.clock.monotonic()
        at, count = self._known.get(uid, (-_FRESH_S, 0))
        if now - at < _FRESH_S:
            return count
        count = spans.total(await self._bus.results.stored(uid))
        self._known.pop(uid, None)
        self._known[uid] = now, count
        while len(self._known) > limits.PROGRESS_KEPT:
            del self._known[next(iter(self._known))]
        return count
