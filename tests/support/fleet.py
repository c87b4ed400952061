"""Worker processes without the process: real seats over a real nats-server, which a test can kill or freeze.

What a process would have of its own each member has: a connection, holds, a view of the jobs, seats. Leases come from
memory. Killing one cuts its connection in the middle of whatever it says and drops its tasks; freezing one stops its
touches and its calls, so that it wakes up with holds that are somebody else's by now.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from cuscuta.broker import Bus
from cuscuta.clock import SystemClock
from cuscuta.db import Lease
from cuscuta.db.leases import Return
from cuscuta.logs import get
from cuscuta.model import Item
from cuscuta.settings import Settings
from worker.failures import Failures
from worker.finisher import Finisher
from worker.holds import Holds
from worker.jobs import Jobs
from worker.kit import Kit
from worker.leaser import Leaser
from worker.seat import Seat
from worker.tail import Tail
from worker.upstream import Capacity, Session, Target, Upstream


def value(target: str, item: str) -> str:
    return f"{target} knows {item}"


class Scripted(Upstream):
    """Answers after each account's own latency; some items are stuck the first time; every poll is remembered."""

    needs_follow = True

    def __init__(self, capacity: Capacity, latency_s: dict[int, float], stuck: dict[str, float]) -> None:
        self.capacity, self._latency_s, self._stuck = capacity, latency_s, dict(stuck)
        self.polls: list[tuple[str, str, float]] = []  # target, item, when the answer was fixed
        self.calls = 0
        self.frozen: dict[int, asyncio.Event] = {}  # by account, what it waits for

    async def follow(self, session: Session, target: str) -> str | None:
        return target

    async def poll(self, session: Session, target: Target, item: Item) -> Any:
        return (await self.poll_shared(session, [target], item))[0]

    async def poll_shared(self, session: Session, targets: Any, item: Item) -> Any:
        account, now = int(session.email), asyncio.get_running_loop().time()
        self.calls += 1
        self.polls += [(target.name, item.id, now) for target in targets]
        await asyncio.sleep(self._latency_s[account] + self._stuck.pop(item.id, 0.0))
        if event := self.frozen.get(account):
            await event.wait()
        return [value(target.name, item.id) for target in targets]


class _Leaser:
    """One account for each seat, for ever."""

    def __init__(self, accounts: list[int]) -> None:
        self._free = asyncio.Queue[int]()
        for account in accounts:
            self._free.put_nowait(account)

    async def acquire(self) -> Lease:
        account = await self._free.get()
        return Lease(account=account, email=str(account), password="p", user_id=None, token=None, rate=1.0, term=1,
                     trusted_until=float("inf"))  # fmt: skip

    async def give_back(self, lease: Lease, how: Return) -> None:
        self._free.put_nowait(lease.account)

    async def save_token(self, lease: Lease, token: str, user_id: str | None) -> None:
        return


class Member:
    """One worker process of the fleet."""

    def __init__(self, settings: Settings, upstream: Scripted, accounts: list[int], name: str) -> None:
        self._settings, self._upstream, self.accounts, self._name = settings, upstream, list(accounts), name
        self._bus = Bus(settings, SystemClock(), get("test"), name)
        self._duties: list[asyncio.Task[Any]] = []
        self._touching: asyncio.Task[Any] | None = None
        self._ended = asyncio.Event()
        self._main: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._bus.broker.connect()
        self._main = asyncio.create_task(self._run())

    async def _run(self) -> None:
        clock, bus = self._bus.clock, self._bus
        with contextlib.suppress(BaseExceptionGroup, asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                jobs = Jobs(bus)
                self._kit = kit = Kit(
                    name=self._name, settings=self._settings, bus=bus, log=get("test"), upstream=self._upstream,
                    leaser=cast(Leaser, _Leaser(list(self.accounts))), jobs=jobs,
                    holds=Holds(clock, self._settings.ack_wait_s), failures=Failures(bus, self._name),
                    finisher=Finisher(group), halt=asyncio.Event(),
                    tail=Tail(bus, jobs, self._settings, self._upstream.capacity.repeatable),
                )  # fmt: skip
                seats = [Seat(kit, n) for n in range(len(self.accounts))]
                jobs.on_idle = kit.tail.hint
                jobs.on_end = partial(_end, seats)
                self._touching = group.create_task(_quietly(kit.holds.tick))
                for duty in (jobs.follow, kit.tail.watch, kit.failures.flush_for_ever):
                    group.create_task(_quietly(duty))
                for seat in seats:
                    group.create_task(_quietly(seat.run))
                await self._ended.wait()
                raise asyncio.CancelledError

    async def kill(self) -> None:
        """As kill -9 would: nothing more is said, nothing is handed back."""
        self._bus.broker.nc._transport._io_writer.transport.abort()  # type: ignore[union-attr]
        if self._main:
            self._main.cancel()
        await asyncio.sleep(0)
        self._bus.broker.nc.options["allow_reconnect"] = False
        with contextlib.suppress(Exception):
            await self._bus.broker.nc.close()

    async def freeze(self, seconds: float) -> None:
        """As SIGSTOP and SIGCONT would for its holds and calls."""
        event = asyncio.Event()
        for account in self.accounts:
            self._upstream.frozen[account] = event
        if self._touching:
            self._touching.cancel()
        await asyncio.sleep(seconds)
        for account in self.accounts:
            self._upstream.frozen.pop(account, None)
        event.set()

    async def stop(self) -> None:
        if self._main and not self._main.done():
            self._kit.halt.set()
            self._kit.jobs.poke()
            self._main.cancel()
            await asyncio.wait({self._main}, timeout=5)
        with contextlib.suppress(Exception):
            await self._bus.broker.close()


def _end(seats: list[Seat], uid: str) -> None:
    for seat in seats:
        seat.ended(uid)


async def _quietly(work: Callable[[], Awaitable[None]]) -> None:
    with contextlib.suppress(Exception):
        await work()
