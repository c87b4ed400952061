"""The last places among `max_active_jobs`: given away by one replica at a time.

The server counts consumers before it makes one: of several made at the same moment it may take one too many.
"""

from cuscuta import subjects
from cuscuta.broker.bus import Bus
from cuscuta.errors import QueueFull, Standing


class LastPlaces:
    """A message that stands once: whoever has published it may admit; for a second, should it die."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._sequence = 0

    async def take(self) -> bool:
        """Whether it is this replica's turn."""
        try:
            self._sequence = await self._bus.broker.publish(subjects.LAST_PLACES, b"{}", {"Nats-TTL": "1s"})
        except (Standing, QueueFull):
            return False
        return True

    async def leave(self) -> None:
        """Let the others; harmless if the second is over and somebody else has it."""
        await self._bus.work.delete(self._sequence)
