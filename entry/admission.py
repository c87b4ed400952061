"""Admission, a task in every replica: while fewer than `max_active_jobs` jobs are active, let the next one out.

High goes before normal before low, but every `SHARES` admissions the lower ones get their turns, so none starves.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any

from cuscuta import subjects
from cuscuta.broker import Bus, Delivery, Puller
from cuscuta.broker.activate import activate
from cuscuta.broker.assets import ADMISSION_ACK_WAIT_S, ensure_admission
from cuscuta.clock import wait_for_event
from cuscuta.errors import BrokerUnavailable, CuscutaError, NoRoom
from cuscuta.logs import Logger
from cuscuta.model import Announcement, Priority, RecordError, decode
from cuscuta.settings import Settings

SHARES = {Priority.HIGH: 12, Priority.NORMAL: 3, Priority.LOW: 1}  # of 16 admissions while all three have a backlog
_LOOK_S = 2.0  # how often to look without a hint


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
        self._halting = False

    def halt(self) -> None:
        """End after the job in hand, so that its message need not wait for ack-wait to be admitted elsewhere."""
        self._halting = True
        self._hint.set()

    def hint(self) -> None:
        """A job was submitted, or one has ended."""
        self._hint.set()

    def _stray(self, delivery: Delivery) -> None:
        """Nothing to do: pulls here never wait, and what is lost on the way comes again after ack-wait."""

    async def on_announcement(self, data: bytes) -> None:
        """Hints from the bus."""
        try:
            hint = decode(data, Announcement)
        except RecordError:
            return
        if hint.kind in ("submitted", "ended"):
            self.hint()

    async def run(self) -> None:
        """Until `halt`."""
        await self._puller.start()
        try:
            while not self._halting:
                self._hint.clear()
                try:
                    while not self._halting and await self._admit_next():
                        pass
                except BrokerUnavailable as error:
                    self._log.info("admission waits", cause=str(error))
                    await self._bus.clock.sleep(0.3)
                    continue
                if not self._halting:
                    await wait_for_event(self._hint, _LOOK_S)
        finally:
            await self._puller.stop()

    async def _admit_next(self) -> bool:
        """Admit one job; False if none waits or there is no room."""
        if await self._bus.work.active_consumers() >= self._settings.max_active_jobs:
            return False
        for priority in preference(self._turn):
            consumer = subjects.ADMISSION_CONSUMERS[priority]
            pulled = await self._puller.take(self._bus.work.stream, consumer, 1)
            if pulled.deliveries:
                self._turn += 1
                return await self._admit(pulled.deliveries[0])
            if pulled.gone:  # deleted by hand, or NATS is away
                await ensure_admission(self._bus.broker)
        return False

    async def _admit(self, delivery: Delivery) -> bool:
        try:
            _, uid = subjects.parse_admit(delivery.subject)
        except ValueError as error:
            self._log.error("not an admit message", subject=delivery.subject, cause=str(error))
            await delivery.term("malformed")
            return True
        try:
            await self._touching(delivery, activate(self._bus, uid, await self._seats()))
        except NoRoom:  # another replica took the last place
            await delivery.nak(0.5)
            return False
        except BrokerUnavailable:
            raise
        except (CuscutaError, ValueError) as error:
            self._log.error("a job cannot be admitted; trying again", uid=uid, cause=str(error))
            await delivery.nak(5.0)
            return True
        await delivery.ack_sync()
        return True

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
        alive = sum(presence.seats for presence in await self._bus.workers())
        return alive or self._settings.default_seats
