"""Requests that wait for a job's end: woken by the announcement, and by a look at the tag in case it was lost."""

import asyncio

from cuscuta.broker import Bus
from cuscuta.clock import wait_for_event
from cuscuta.model import JobTag

_LOOK_S = 1.0


class Waits:
    """Who waits for which job."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def ended(self, uid: str) -> None:
        """A job was announced to have ended."""
        for event in self._waiting.get(uid, ()):
            event.set()

    async def until_ended(self, tag: JobTag, seconds: float) -> JobTag:
        """The tag once the job has ended or the time is up."""
        clock, end, event = self._bus.clock, self._bus.clock.monotonic() + seconds, asyncio.Event()
        listening = self._waiting.setdefault(tag.uid, set())
        listening.add(event)
        try:  # the tag is read once more after we began to listen: it may have ended in between
            while not (tag := await self._bus.tags.get(tag.uid) or tag).status.terminal:
                left = end - clock.monotonic()
                if left <= 0:
                    break
                await wait_for_event(event, min(left, _LOOK_S))
                event.clear()
        finally:
            listening.discard(event)
            if not listening:
                self._waiting.pop(tag.uid, None)
        return tag
