"""Answers that many ask for at once: made once, and shared by whoever asks within the time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from cuscuta.clock import Clock

AnswerT = TypeVar("AnswerT")


class Shared(Generic[AnswerT]):
    """The answers asked for last, at most `kept`; each is as old as `fresh_s` at the most when it is asked for."""

    def __init__(self, clock: Clock, fresh_s: float, kept: int) -> None:
        self._clock, self._fresh_s, self._kept = clock, fresh_s, kept
        self._known: dict[Hashable, tuple[float, asyncio.Task[AnswerT]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """The answer; whoever asks while it is being made waits for the same one, its failure included."""
        now = self._clock.monotonic()
        at, making = self._known.get(key, (0.0, None))
        if making is None or now - at >= self._fresh_s:
            making = asyncio.ensure_future(make())
            self._known.pop(key, None)
            self._known[key] = now, making
            while len(self._known) > self._kept:
                del self._known[next(iter(self._known))]
        return await asyncio.shield(making)
