"""Admission, a task in every replica: while fewer than `max_active_jobs` jobs are active, let the next one out.

Whose turn it is says `turns`: high goes before normal before low, but every `SHARES` admissions the lower ones get
theirs, and of a priority the group that has fewest active jobs comes first. A tenth of the places is for high only, so
that it need not wait for another job's end, and a tenth for groups that have no active job. While nothing waits, a job
that this replica has just accepted goes past the queue.

A job is taken by deleting its admit message, which succeeds once; the queue has no consumer, because a consumer hands
out in order of submission only.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from cuscuta import limits
from cuscuta.broker import Bus
from cuscuta.broker.activate import activate
from cuscuta.broker.lanes import Waiting
from cuscuta.broker.places import LastPlaces
from cuscuta.broker.projection import Projection
from cuscuta.broker.tags import Known
from cuscuta.clock import wait_for_event
from cuscuta.errors import BrokerUnavailable, CuscutaError, NoRoom
from cuscuta.logs import Logger
from cuscuta.model import Announcement
from cuscuta.settings import Settings
from entry.turns import Turns

_LOOK_S = 2.0  # how often to look without a hint
_FREE_S = 0.03  # a place is free when its consumer is gone, which is a moment after the job's end was told
_SEATS_S = 0.25  # for so long the number of seats alive is not asked for again
_REFUSED_S = 1.0  # before a job that cannot be admitted goes back to its queue
Start = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Admission:
    """Takes jobs that wait and activates them."""

    def __init__(self, bus: Bus, settings: Settings, log: Logger, projection: Projection) -> None:
        self._bus, self._settings, self._log, self._projection = bus, settings, log, projection
        self._turns, self._last = Turns(), LastPlaces(bus)
        self._hint = asyncio.Event()
        self._offered: deque[tuple[Known, Waiting]] = deque()
        self._refused: deque[Waiting] = deque()  # taken out of their queue, but there was no place
        self._room = 0  # places that were free when nothing waited at the last look
        self._seen_seats = (-_SEATS_S, 0)
        self._look = self._halting = False
        self._looked_at = self._saw_at = 0.0
        self._slots = asyncio.Semaphore(limits.OFFERS)
        self._admitting: set[asyncio.Task[None]] = set()  # one takes a dozen round trips, so several go at once
        self._full = False  # no room at the last look, those being admitted counted
        self._ended_at = 0.0

    def halt(self) -> None:
        """End after the jobs in hand, so that they need not wait for the reaper to be admitted elsewhere."""
        self._halting = True
        self._hint.set()

    def offer(self, known: Known, waiting: Waiting) -> bool:
        """Take a job that was accepted here, if nothing else waits; else others should be told that it waits."""
        if self._halting or self._room <= limits.OFFERS or len(self._offered) >= limits.OFFERS:
            self._room = 0  # one that waits goes before those that are yet to come
            return False
        self._room -= 1
        self._offered.append((known, waiting))
        self._hint.set()
        return True

    def hint(self) -> None:
        """A job waits."""
        self._look, self._room = True, 0
        self._hint.set()

    def heard(self, hint: Announcement) -> None:
        """Something has happened to a job."""
        if hint.kind == "submitted":
            if hint.queue:
                self._turns.waits(hint.queue)
            self.hint()
        elif hint.kind == "active" and hint.active:
            self._turns.began(hint.uid, (hint.active.priority, hint.active.group))
        elif hint.kind == "ended":
            self._turns.ended(hint.uid)
            self._ended()

    def _ended(self) -> None:
        """A job has ended: its place is free."""
        self._ended_at = self._bus.clock.monotonic()
        if self._room > 0:  # nothing waits for it
            self._room = min(self._room + 1, self._settings.max_active_jobs)
        else:
            self.hint()

    async def run(self, start: Start) -> None:
        """Until `halt`. `start` begins a task in the service's task group."""
        self._start = start
        try:
            while not self._halting:
                self._hint.clear()
                try:
                    await self._admit_all_offered()
                    now = self._bus.clock.monotonic()
                    look = self._look or self._room <= 0 or now - self._looked_at >= _LOOK_S
                    self._look, self._looked_at = False, now if look else self._looked_at
                    if now - self._saw_at >= _LOOK_S:
                        self._saw_at = now
                        await self._see()
                    while look and not self._halting and await self._admit_next():
                        await self._admit_all_offered()  # taken before the queue filled up, which may stay full
                except CuscutaError as error:  # NATS is away, or full
                    self._log.info("admission waits", cause=str(error))
                    await self._bus.clock.sleep(0.3 if isinstance(error, BrokerUnavailable) else 1.0)
                    continue
                if not self._halting and not self._offered and not await wait_for_event(self._hint, self._wait_s()):
                    self._look = True
        finally:
            try:
                if self._admitting:
                    await asyncio.wait(self._admitting)
                for waiting in (*self._refused, *(waiting for _, waiting in self._offered)):  # for another replica
                    await self._queue(waiting)
            finally:
                for task in self._admitting:
                    task.cancel()

    def _wait_s(self) -> float:
        """Until the next look without a hint; soon when a job's end was told but its place is not free yet."""
        told_s = self._bus.clock.monotonic() - self._ended_at
        return _FREE_S if self._full and told_s < _LOOK_S / 2 else _LOOK_S

    def _launch(self, work: Coroutine[Any, Any, None]) -> None:
        """Admit a job beside others; its slot is taken already."""
        task = self._start(work)
        self._admitting.add(task)
        task.add_done_callback(self._admitted)

    def _admitted(self, task: asyncio.Task[None]) -> None:
        self._admitting.discard(task)
        self._slots.release()
        if self._full:  # it may have been counted twice, as being admitted and as active
            self.hint()

    async def _see(self) -> None:
        """Which groups may have jobs that wait, and what is active."""
        active = await self._bus.active_jobs()
        self._turns.see(self._projection.queues(), ((job.uid, (job.priority, job.group)) for job in active))

    async def _admit_all_offered(self) -> None:
        while self._offered and not self._halting:
            await self._slots.acquire()
            self._launch(self._admit_offered(*self._offered.popleft()))

    async def _admit_next(self) -> bool:
        """Begin to admit one job; False if none waits or there is no room."""
        self._room = 0
        await self._slots.acquire()
        waiting, last = None, False
        try:
            waiting, last = await self._next()
        finally:
            if waiting is None:
                self._slots.release()
            else:
                self._launch(self._admit_last(waiting) if last else self._admit(waiting))
        return waiting is not None

    async def _next(self) -> tuple[Waiting | None, bool]:
        """A job to admit, and whether it gets one of the last places."""
        work, most, self._full = self._bus.work, self._settings.max_active_jobs, False
        active = await work.active_consumers() + len(self._admitting)
        if active + limits.OFFERS <= most:
            return await self._choose(active, most), False
        if not (self._refused or self._turns.order()):
            return None, False
        # The last places are given away one by one, by one replica at a time.
        if self._admitting or active >= most or not await self._last.take():
            self._full = True
            return None, False
        waiting = None
        try:
            waiting = await self._choose(await work.active_consumers(), most)
        finally:
            if waiting is None:
                await self._last.leave()
        return waiting, True

    async def _choose(self, active: int, most: int) -> Waiting | None:
        if self._refused and active < most:  # it keeps its place before the others of its queue
            return self._refused.popleft()
        order = self._turns.order()
        open_to = [queue for queue in order if self._turns.room(queue, active, most)]
        self._full = self._full or len(open_to) < len(order)
        for queue in open_to[: limits.QUEUES_LOOKED_AT]:
            self._turns.asked(queue)
            if waiting := await self._bus.lanes.claim(*queue):
                self._turns.waits(queue)  # there may be more
                self._turns.served(queue[1])
                self._turns.began(waiting.uid, queue)
                return waiting
        if len(open_to) > limits.QUEUES_LOOKED_AT:  # the others' turn is next
            self.hint()
            return None
        self._room = most - most // limits.URGENT_PLACES - most // limits.NEWCOMER_PLACES - active
        return None

    async def _admit_offered(self, known: Known, waiting: Waiting) -> None:
        try:
            await self._activate(waiting, known)
        except (CuscutaError, ValueError) as error:  # mostly: another replica took the last place, or NATS is away
            self._room = 0
            self._log.info("a job goes through the queue after all", uid=waiting.uid, cause=str(error))
            await self._queue(waiting)

    async def _admit_last(self, waiting: Waiting) -> None:
        try:
            await self._admit(waiting)
        finally:
            with contextlib.suppress(CuscutaError):  # it is over in a second anyway
                await self._last.leave()

    async def _admit(self, waiting: Waiting) -> None:
        try:
            await self._activate(waiting)
        except NoRoom:  # another replica took the last place
            self._turns.ended(waiting.uid)
            await self._bus.clock.sleep(_FREE_S)
            self._refused.append(waiting)
            self.hint()
        except (CuscutaError, ValueError) as error:
            self._turns.ended(waiting.uid)
            if not isinstance(error, BrokerUnavailable):
                self._log.error("a job cannot be admitted; trying again", uid=waiting.uid, cause=str(error))
                await self._bus.clock.sleep(_REFUSED_S)
            await self._queue(waiting)

    async def _queue(self, waiting: Waiting) -> None:
        """Send a job back to admission, here or in another replica."""
        try:
            await self._bus.broker.insist(lambda: self._bus.lanes.admit(waiting))
        except CuscutaError as error:  # the queue is full: the reaper sends it to admission later
            self._log.error("a job could not be queued", uid=waiting.uid, cause=str(error))
        self._turns.waits((waiting.priority, waiting.group))
        self.hint()

    async def _activate(self, waiting: Waiting, known: Known | None = None) -> bool:
        return await activate(self._bus, waiting, await self._seats(), known)

    async def _seats(self) -> int:
        now = self._bus.clock.monotonic()
        if now - self._seen_seats[0] >= _SEATS_S:
            self._seen_seats = now, sum(presence.seats for presence in await self._bus.workers())
        return self._seen_seats[1] or self._settings.default_seats
