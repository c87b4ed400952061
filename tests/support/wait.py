"""Waiting for facts, never for seconds."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

FactT = TypeVar("FactT")


async def until(fact: Callable[[], Awaitable[FactT]], timeout: float, what: str, every: float = 0.05) -> FactT:
    """The first true value of `fact`; fails with `what` when the time is up."""
    end = time.monotonic() + timeout
    while True:
        value = await fact()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {timeout:g} s still not: {what} (last: {value!r})")
        await asyncio.sleep(every)
