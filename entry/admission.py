"""Admission, a task in every replica: while fewer than `max_active_jobs` jobs are active, let the next one out.

High goes before normal before low, but every `SHARES` admissions the lower ones get their turns, so none starves; and a
tenth of the places is for high only, so that it need not wait for another job's end. While nothing waits, a job that
this replica has just accepted goes past the queue.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from cuscuta import limits, subjects
from cuscuta.broker import Bus, Delivery, Puller
from cuscuta.broker.activate import activate
from cuscuta.broker.assets import ADMISSION_ACK_WAIT_S, ensure_admission
from cuscuta.broker.tags import Known
from cuscuta.clock import wait_for_event
from cuscuta.errors import BrokerUnavailable, CuscutaError, NoRoom
from cuscuta.logs import Logger
from cuscuta.model import JobTag, Priority
from cuscuta.settings import Settings

SHARES = {Priority.HIGH: 12, Priority.NORMAL: 3, Priority.LOW: 1}  # of 16 admissions while all three have a backlog
_LOOK_S = 2.0  # how often to look without a hint
_FREE_S = 0.03  # a place is free when its consumer is gone, which is a moment after the job's end was told
_SEATS_S = 0.25  # for so long the number of seats alive is not asked for again
Start = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


def preference(turn: int) -> Sequence[Priority]:
    """Which priorities to try, in order, at the n-th admission: the turn's owner first, then by urgency."""
    place = turn % sum(SHARES.values())
    for priority, share in SHARES.items():
        if place < share:
            return [priority, *(p for p in Priority if p is not priority)]
        place -= share
    return list(Priority)


class Admission:
    """Pulls admit messages and activates their jobs."""

    def __init__(self, bus: Bus, settings: Settings, log: Logger) -> None:
        self._bus, self._settings, self._log = bus, settings, log
        self._puller = Puller(bus.broker, self._stray)
        self._hint = asyncio.Event()
        self._turn = 0
        self._offered: deque[Known] = deque()
        self._room = 0  # places that were free when nothing waited at the last look
        self._seen_seats = (-_SEATS_S, 0)
        self._look = self._halting = False
        self._looked_at = 0.0
        self._slots = asyncio.Semaphore(limits.OFFERS)
        self._admitting: set[asyncio.Task[None]] = set()  # one takes a dozen round trips, so several go at once
        self._full = False  # no room at the last look, those being admitted counted
        self._ended_at = 0.0

    def halt(self) -> None:
        """End after the job in hand, so that its message need not wait for ack-wait to be admitted elsewhere."""
        self._halting = True
        self._hint.set()

    def offer(self, known: Known) -> bool:
        """Take a job that was accepted here, if nothing else waits; else others should be told that it waits."""
        if self._halting or self._room <= limits.OFFERS or len(self._offered) >= limits.OFFERS:
            self._room = 0  # one that waits goes before those that are yet to come
            return False
        self._room -= 1
        self._offered.append(known)
        self._hint.set()
        return True

    def hint(self) -> None:
        """A job waits."""
        self._look, self._room = True, 0
        self._hint.set()

    def ended(self) -> None:
        """A job has ended: its place is free."""
        self._ended_at = self._bus.clock.monotonic()
        if self._room > 0:  # nothing waits for it
            self._room = min(self._room + 1, self._settings.max_active_jobs)
        else:
            self.hint()

    def _stray(self, delivery: Delivery) -> None:
        """Nothing to do: pulls here never wait, and what is lost on the way comes again after ack-wait."""

    async def run(self, start: Start) -> None:
        """Until `halt`. `start` begins a task in the service's task group."""
        self._start = start
        await self._puller.start()
        try:
            while not self._halting:
                self._hint.clear()
                try:
                    while self._offered and not self._halting:
                        await self._slots.acquire()
                        self._launch(self._admit_offered(self._offered.popleft()))
                    now = self._bus.clock.monotonic()
                    look = self._look or self._room <= 0 or now - self._looked_at >= _LOOK_S
                    self._look, self._looked_at = False, now if look else self._looked_at
                    while look and not self._halting and await self._admit_next():
                        pass
                except BrokerUnavailable as error:
                    self._log.info("admission waits", cause=str(error))
                    await self._bus.clock.sleep(0.3)
                    continue
                if not self._halting and not self._offered and not await wait_for_event(self._hint, self._wait_s()):
                    self._look = True
        finally:
            try:
                if self._admitting:
                    await asyncio.wait(self._admitting)
                while self._offered:  # for another replica
                    await self._queue(self._offered.popleft().tag)
            finally:
                for task in self._admitting:
                    task.cancel()
                await self._puller.stop()

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

    async def _admit_offered(self, known: Known) -> None:
        tag = known.tag
        try:
            await self._activate(tag.uid, known)
        except (CuscutaError, ValueError) as error:  # mostly: another replica took the last place, or NATS is away
            self._room = 0
            self._log.info("a job goes through the queue after all", uid=tag.uid, cause=str(error))
            await self._queue(tag)
            self.hint()

    async def _queue(self, tag: JobTag) -> None:
        try:
            await self._bus.broker.insist(lambda: self._bus.work.admit(tag.uid, tag.essential.priority))
        except CuscutaError as error:  # the queue is full: the reaper sends it to admission later
            self._log.error("a job could not be queued", uid=tag.uid, cause=str(error))

    async def _admit_next(self) -> bool:
        """Begin to admit one job; False if none waits or there is no room."""
        self._room = 0
        await self._slots.acquire()
        delivery = None
        try:
            delivery = await self._next()
        finally:
            if delivery is None:
                self._slots.release()
            else:
                self._launch(self._admit(delivery))
        return delivery is not None

    async def _next(self) -> Delivery | None:
        most, self._full = self._settings.max_active_jobs, False
        active = await self._bus.work.active_consumers() + len(self._admitting)
        # Of many consumers that are made at the same moment the server may take one too many: the last go one by one.
        if self._admitting and active + limits.OFFERS > most:
            self._full = True
            return None
        for priority in preference(self._turn):
            reserved = 0 if priority is Priority.HIGH else most // limits.URGENT_PLACES
            if active >= most - reserved:
                self._full = True
                continue
            consumer = subjects.ADMISSION_CONSUMERS[priority]
            pulled = await self._puller.take(self._bus.work.stream, consumer, 1)
            if pulled.deliveries:
                self._turn += 1
                return pulled.deliveries[0]
            if pulled.gone:  # deleted by hand, or NATS is away
                await ensure_admission(self._bus.broker)
        self._room = most - most // limits.URGENT_PLACES - active
        return None

    async def _admit(self, delivery: Delivery) -> None:
        try:
            _, uid = subjects.parse_admit(delivery.subject)
        except ValueError as error:
            self._log.error("not an admit message", subject=delivery.subject, cause=str(error))
            with contextlib.suppress(BrokerUnavailable):
                await delivery.term("malformed")
            return
        try:
            await self._touching(delivery, self._activate(uid))
        except NoRoom:  # another replica took the last place
            await delivery.nak(0.5)
        except BrokerUnavailable as error:
            self._log.info("an admission waits", uid=uid, cause=str(error))
        except (CuscutaError, ValueError) as error:
            self._log.error("a job cannot be admitted; trying again", uid=uid, cause=str(error))
            await delivery.nak(5.0)
        else:
            with contextlib.suppress(BrokerUnavailable):  # it comes again, and is found admitted
                await delivery.ack_sync()

    async def _activate(self, uid: str, known: Known | None = None) -> bool:
        return await activate(self._bus, uid, await self._seats(), known)

    async def _touching(self, delivery: Delivery, work: Coroutine[Any, Any, bool]) -> None:
        """Admit a job, telling the server that we are at it: a million chunks take longer than ack-wait."""
        doing = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({doing}, timeout=ADMISSION_ACK_WAIT_S / 3))[0]:
                with contextlib.suppress(BrokerUnavailable):
                    await delivery.touch()
            doing.result()
        finally:
            if not doing.done():
                doing.cancel()
                await asyncio.wait({doing})

    async def _seats(self) -> int:
        now = self._bus.clock.monotonic()
        if now - self._seen_seats[0] >= _SEATS_S:
            self._seen_seats = now, sum(presence.seats for presence in await self._bus.workers())
        return self._seen_seats[1] or self._settings.default_seats
