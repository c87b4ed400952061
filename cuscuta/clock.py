"""The only place that knows what time it is. Handed in everywhere, so tests can hold it still."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Three kinds of time: for people, for durations, and waiting."""

    def wall(self) -> datetime:
        """Now, in UTC; for records and people, never for leases."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; goes on while the process is stopped."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clock."""

    def wall(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since boot; CLOCK_MONOTONIC goes on through SIGSTOP."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event for at most that long; whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
