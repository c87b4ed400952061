"""Lifecycle events for many readers: one reader of the stream a process, the newest events in memory for all of them.

Nobody has a queue of his own that could fill up: a reader keeps the sequence of the last event it saw, and whoever
falls behind what is in memory reads the rest from the stream.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from cuscuta import limits, subjects
from cuscuta.broker.connection import Broker
from cuscuta.clock import wait_for_event
from cuscuta.codec import RecordError, decode
from cuscuta.errors import BrokerUnavailable
from cuscuta.logs import Logger
from cuscuta.model import Event

_EVERY_S = 1.0  # without a hint
_BATCH = 256


class Filed(NamedTuple):
    """An event and its sequence in the stream."""

    sequence: int
    event: Event


class Feed:
    """Follows `CUSCUTA_EVENTS`. `changed` is set, and replaced, when there is something new, and at the end."""

    def __init__(self, broker: Broker, log: Logger) -> None:
        self._broker, self._log = broker, log
        self._recent: deque[Filed] = deque(maxlen=limits.EVENTS_RECENT)
        self._hint = asyncio.Event()
        self._readers = 0
        self._begin: int | None = None  # what came up to here is in the stream only
        self.last = 0
        self.closed = False
        self.over = asyncio.Event()  # as `closed`, to wait for
        self.begun = asyncio.Event()
        self.changed = asyncio.Event()

    async def follow(self) -> None:
        """Follow for ever."""
        end = await self._broker.subscribe(subjects.EVENTS, self._on_event)
        try:
            while True:
                self._hint.clear()
                try:
                    await self._catch_up()
                except BrokerUnavailable as error:
                    self._log.debug("the event feed waits", cause=str(error))
                await wait_for_event(self._hint, _EVERY_S)
        finally:
            await end()

    async def _on_event(self, _: object) -> None:
        if self._readers:  # nobody else minds a second
            self._hint.set()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Somebody reads: events are wanted at once."""
        self._readers += 1
        self._hint.set()
        try:
            yield
        finally:
            self._readers -= 1

    async def _catch_up(self) -> None:
        if self._begin is None:
            state = (await self._broker.api(f"STREAM.INFO.{subjects.EVENTS_STREAM}"))["state"]
            self.last = self._begin = int(state["last_seq"])
            self.begun.set()
        while True:
            found, last = await self._read(self.last, subjects.EVENTS)
            if last == self.last:
                return
            self._recent.extend(found)
            self.last = last
            self._wake()

    def _wake(self) -> None:
        event, self.changed = self.changed, asyncio.Event()
        event.set()

    def close(self) -> None:
        """Let all readers end."""
        self.closed = True
        self.over.set()
        self._wake()

    async def after(self, sequence: int, uid: str | None = None) -> list[Filed]:
        """Events after a sequence, oldest first, of one job or of all; at most one batch. Raises BrokerUnavailable."""
        if self._begin is None:
            return []
        known_from = self._recent[0].sequence if len(self._recent) == self._recent.maxlen else self._begin + 1
        if sequence + 1 < known_from:
            older, _ = await self._read(sequence, subjects.events_of(uid) if uid else subjects.EVENTS)
            if older:
                return older
        newer = list(takewhile(lambda filed: filed.sequence > sequence, reversed(self._recent)))[::-1]
        return [filed for filed in newer if uid is None or filed.event.uid == uid][:_BATCH]

    async def _read(self, sequence: int, subject: str) -> tuple[list[Filed], int]:
        """One batch, and the sequence of its last message."""
        found = []
        body = {"seq": sequence + 1, "batch": _BATCH, "next_by_subj": subject}
        async for msg in self._broker.batch_get(subjects.EVENTS_STREAM, body):
            sequence = int((msg.headers or {})["Nats-Sequence"])
            with contextlib.suppress(RecordError):  # published by hand
                found.append(Filed(sequence, decode(msg.data, Event)))
        return found, sequence
