"""A clock that stands still until a test moves it."""

import asyncio
from datetime import UTC, datetime, timedelta


class HandClock:
    """Time moves by `move` only; who sleeps is woken when its time has come."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.seconds + seconds, future))
        await future

    async def move(self, seconds: float) -> None:
        """Let time pass, and everybody act on it."""
        self.seconds += seconds
        for due, future in list(self._sleepers):
            if due <= self.seconds:
                self._sleepers.remove((due, future))
                if not future.done():
                    future.set_result(None)
        for _ in range(20):
            await asyncio.sleep(0)
