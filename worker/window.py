"""Several polls of one account at once, their values in the items' order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeVar

ItemT = TypeVar("ItemT")
ValueT = TypeVar("ValueT")


async def in_order(
    items: Iterable[ItemT], ask: Callable[[ItemT], Awaitable[ValueT]], width: int
) -> AsyncGenerator[ValueT, None]:
    """Ask for every item, at most `width` at a time. The first error in order is raised; the rest is cancelled.

    An item is taken from the iterable at the moment it is asked for.
    """
    if width <= 1:
        for item in items:
            yield await ask(item)
        return
    upcoming = iter(items)
    running: deque[asyncio.Future[ValueT]] = deque()
    try:
        while True:
            for item in islice(upcoming, width - len(running)):
                running.append(asyncio.ensure_future(ask(item)))
            if not running:
                return
            yield await running[0]
            running.popleft()
    finally:
        for future in running:
            future.cancel()
        await asyncio.gather(*running, return_exceptions=True)
