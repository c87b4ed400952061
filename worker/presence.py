"""The process's heartbeat in `cuscuta_workers`: who is here, with which accounts, doing what."""

from collections.abc import Sequence

from cuscuta import __version__, instruments
from cuscuta.broker import Bus
from cuscuta.clock import wait_for_event
from cuscuta.codec import encode
from cuscuta.errors import BrokerUnavailable
from cuscuta.health import Health
from cuscuta.model import Presence
from cuscuta.service import Process
from worker.reach import Reach
from worker.seat import Seat


class Heartbeat:
    """Beats every `heartbeat_s`, and sooner when the number of seats at work changes."""

    def __init__(self, process: Process, bus: Bus, seats: Sequence[Seat], health: Health, reach: Reach) -> None:
        self._process, self._bus, self._seats, self._health, self._reach = process, bus, seats, health, reach
        self._started_at = process.clock.wall()

    def presence(self) -> Presence:
        """The heartbeat as it would be sent now."""
        busy = [seat for seat in self._seats if seat.account]
        return Presence(
            worker=self._process.name,
            boot=self._process.boot,
            version=__version__,
            seats=len(busy),
            working=[seat.doing for seat in busy],
            accounts={str(seat.account.lease.account): seat.account.rate for seat in busy if seat.account},
            started_at=self._started_at,
            at=self._process.clock.wall(),
            item_s={
                str(seat.account.lease.account): round(seat.account.item_s, 4)
                for seat in busy
                if seat.account and seat.account.item_s
            },
            upstream=self._reach.cause,
            riding={
                str(seat.account.lease.account): riding
                for seat in busy
                if seat.account
                and (riding := [f"{rider.job.uid} {span}" for rider in seat.account.riding for span in rider.ahead])
            },
        )

    async def beat(self) -> None:
        """For ever, until the process halts."""
        clock, every = self._process.clock, self._process.settings.heartbeat_s
        last, seats = -every, 0
        while not self._process.halt.is_set():
            self._health.beat()
            presence = self.presence()
            self._measure(presence)
            if presence.seats != seats or clock.monotonic() - last >= every:
                try:
                    await self._bus.worker_bucket.put(self._process.name, encode(presence))
                    last, seats = clock.monotonic(), presence.seats
                except BrokerUnavailable as error:
                    self._process.log.debug("the heartbeat waits", cause=str(error))
            await wait_for_event(self._process.halt, min(0.25, every))

    def _measure(self, presence: Presence) -> None:
        working = sum(doing != "idle" for doing in presence.working)
        states = {"working": working, "idle": presence.seats - working, "no account": len(self._seats) - presence.seats}
        for state, count in states.items():
            instruments.SEATS.set(count, {"cuscuta.state": state})

    async def leave(self) -> None:
        """Say goodbye."""
        try:
            await self._bus.worker_bucket.purge(self._process.name)
        except BrokerUnavailable:
            return  # the heartbeat runs out by itself
