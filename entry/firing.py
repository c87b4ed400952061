"""What schedules fire becomes jobs; a task in every replica. NATS keeps the time, and one that was missed for us.

A message that has fired names its job by schedule and moment, so one that comes twice makes one job.
"""

import asyncio
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from cuscuta import subjects
from cuscuta.broker import Delivery, Puller
from cuscuta.broker.assets import ensure_fires
from cuscuta.errors import BrokerUnavailable, CuscutaError, InputError
from cuscuta.schedule import Schedule
from cuscuta.uids import uid_from
from entry.accepting import accept
from entry.context import Context
from entry.requests import JobRequest

_PULL_S = 5.0
_AGAIN_S = 5.0


class Firing:
    """Pulls what has fired and submits its jobs."""

    def __init__(self, context: Context) -> None:
        self._context, self._bus = context, context.bus
        self._halt = asyncio.Event()

    def halt(self) -> None:
        """End after the one in hand."""
        self._halt.set()

    async def run(self) -> None:
        """Until `halt`."""
        await self._context.projection.caught_up.wait()  # what is unique must see what runs
        schedules = self._bus.schedules
        puller = Puller(self._bus.broker, lambda delivery: None)  # what comes too late comes again
        await puller.start()
        try:
            while not self._halt.is_set():
                pulled = await puller.wait(schedules.stream, schedules.consumer, _PULL_S, self._halt)
                for delivery in pulled.deliveries:
                    await self._fire(delivery)
                if pulled.gone:
                    await self._mend()
        finally:
            await puller.stop()

    async def _mend(self) -> None:
        try:
            await ensure_fires(self._bus.broker)
        except CuscutaError as error:
            self._bus.log.debug("schedules wait", cause=str(error))
        await self._bus.clock.sleep(0.5)

    async def _fire(self, delivery: Delivery) -> None:
        name = subjects.parse_fire(delivery.subject)
        try:
            schedule = await self._bus.schedules.get(name)
            if schedule is None or schedule.paused or schedule.done:
                await self._bus.schedules.stop(name)
            else:
                await self._submit(schedule, delivery)
            await delivery.ack_sync()
        except BrokerUnavailable as error:  # it comes again after ack-wait
            self._bus.log.debug("a schedule waits", schedule=name, cause=str(error))
        except CuscutaError as error:  # the queue is full, or a record that is not ours
            self._bus.log.error("a schedule has fired in vain; trying again", schedule=name, cause=str(error))
            await delivery.nak(_AGAIN_S)
        except Exception as error:  # noqa: BLE001 - a record that says what none of ours can: the API goes on
            self._bus.log.error("a schedule cannot fire", schedule=name, cause=type(error).__name__)
            await delivery.nak(_AGAIN_S)

    async def _submit(self, schedule: Schedule, delivery: Delivery) -> None:
        moment = f"{schedule.created_at} once" if schedule.once else str(delivery.stamp_ns)
        uid, error = uid_from("schedule", schedule.id, moment), None
        try:
            request = msgspec.convert(schedule.job, JobRequest)
            tag, _ = await accept(self._context, uid, request, named=True)
            uid = tag.uid
        except (InputError, msgspec.ValidationError) as fault:  # its catalogue is gone, mostly
            uid, error = schedule.uid or "", str(fault)
            self._bus.log.warning("a schedule made no job", schedule=schedule.id, cause=error)
        fired_at = datetime.fromtimestamp(delivery.stamp_ns / 1e9, UTC)

        def note(now: Schedule) -> Schedule:
            return replace(now, fired_at=fired_at, uid=uid or None, error=error, done=now.once is not None)

        await self._bus.schedules.change(schedule.id, note)
