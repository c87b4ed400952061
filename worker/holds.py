"""Chunks in hand. One ticker tells the server of all of them that they are still at work, at a third of ack-wait.

A hold may be trusted until *start of the last touch that was answered* + ack-wait - margin on the monotonic clock.
Past that the chunk may be somebody else's, and whatever is not stored yet is thrown away.
"""

import asyncio
from collections.abc import Sequence

from cuscuta.broker import Delivery
from cuscuta.clock import Clock
from cuscuta.errors import BrokerUnavailable

_MARGIN = 0.1  # of ack-wait: covers the way of the last write


class Hold:
    """One chunk in hand."""

    __slots__ = ("_clock", "delivery", "since", "touched", "trusted_until")

    def __init__(self, delivery: Delivery, clock: Clock, since: float, trusted_until: float) -> None:
        self.delivery, self._clock, self.since, self.trusted_until = delivery, clock, since, trusted_until
        self.touched = clock.monotonic()

    def trusted(self) -> bool:
        """Whether the chunk is still ours for certain."""
        return self._clock.monotonic() < self.trusted_until


class Trust:
    """Whether all of several chunks are still ours; asked before every call, so the earliest end is remembered."""

    def __init__(self, held: Sequence[Hold], clock: Clock) -> None:
        self._held, self._clock, self._until = held, clock, 0.0

    def holds(self) -> bool:
        """Whether they are. A later touch is noticed when the remembered end has come."""
        now = self._clock.monotonic()
        if now >= self._until:
            self._until = min(hold.trusted_until for hold in self._held)
        return now < self._until


class Holds:
    """All chunks in this process's hands."""

    def __init__(self, clock: Clock, ack_wait_s: float) -> None:
        self._clock, self._ack_wait_s = clock, ack_wait_s
        self._trust_s = ack_wait_s * (1 - _MARGIN)
        self._held: set[Hold] = set()

    def take(self, delivery: Delivery, received: float) -> Hold:
        """A chunk that was received, and delivered no earlier than a monotonic time."""
        hold = Hold(delivery, self._clock, received, received + self._trust_s)
        self._held.add(hold)
        return hold

    def drop(self, hold: Hold) -> None:
        """The chunk is acknowledged, handed back or lost."""
        self._held.discard(hold)

    def __len__(self) -> int:
        return len(self._held)

    async def tick(self) -> None:
        """Touch what needs it, for ever."""
        every = self._ack_wait_s / 3
        while True:
            await self._clock.sleep(every / 3)
            now = self._clock.monotonic()
            due = [hold for hold in self._held if now - hold.touched >= every * 2 / 3 and now < hold.trusted_until]
            if due:
                await asyncio.gather(*(self._touch(hold) for hold in due))

    async def _touch(self, hold: Hold) -> None:
        asked = self._clock.monotonic()
        try:
            await hold.delivery.touch()
        except BrokerUnavailable:
            return  # tried again at the next tick
        hold.touched = asked
        hold.trusted_until = max(hold.trusted_until, asked + self._trust_s)
