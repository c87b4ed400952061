"""A job's tail: seats with much left share it with idle ones, and stuck items are asked for a second time.

An idle seat opens a pull at a job whose queue is empty and says so. Every process that holds chunks of that job then
asks the server how many pulls wait there, which is the truth, and gives away from its own chunks; nobody decides for
another process. What is given away is published before it is let go, so a crash at any line loses nothing.
"""

import asyncio
import random
from collections.abc import Iterable
from typing import Protocol

from cuscuta.broker import Bus
from cuscuta.clock import wait_for_event
from cuscuta.errors import BrokerRefused, BrokerUnavailable
from cuscuta.model import JobTag
from cuscuta.settings import Settings
from cuscuta.spans import Policy
from worker import balance
from worker.balance import Gift, Load
from worker.jobs import Job, Jobs

_AGAIN_S = 0.03  # as long as seats wait, how often to look again: about an item's time of a quick upstream
_SETTLE_S = 0.002  # all processes hear the same hint; up to four times this lets what one gave be seen by the others


class Run(Protocol):
    """Chunks at work, as the tail sees them."""

    @property
    def uid(self) -> str:
        """The job."""
        ...

    @property
    def rest(self) -> int:
        """How many items were not asked for yet."""
        ...

    def load(self, now: float, typical_s: float) -> Load:
        """What is left of it."""
        ...

    def asked_since(self) -> dict[int, float]:
        """Items in flight that were not asked for twice yet, and since when."""
        ...

    async def give(self, gift: Gift) -> int:
        """Give away all but some of what is not begun; how many chunks were published."""
        ...

    async def hedge(self, index: int) -> bool:
        """Let another seat ask for an item in flight too; whether that was published."""
        ...


class Tail:
    """The runs of this process, and how quick its accounts are."""

    def __init__(self, bus: Bus, jobs: Jobs, settings: Settings, repeatable: bool) -> None:
        self._bus, self._jobs, self._settings = bus, jobs, settings
        self._hedging = settings.hedging and repeatable
        self._runs: set[Run] = set()
        self._due: dict[str, float] = {}  # by uid, when to look
        self._idle: set[str] = set()  # jobs at which seats of this process have begun to wait
        self._poked = asyncio.Event()
        self.item_s: dict[int, float] = {}  # by account

    def donates(self, job: Job) -> bool:
        """Whether chunks of a job may be shared out."""
        return self._settings.donation and job.active.policy is Policy.CHUNK

    def busy(self, uid: str) -> bool:
        """Whether this process still works on items of a job that nobody else was asked for."""
        return any(run.uid == uid and (run.rest or run.asked_since()) for run in self._runs)

    def enter(self, run: Run) -> None:
        """A run begins."""
        self._runs.add(run)

    def leave(self, run: Run) -> None:
        """A run has nothing left to give."""
        self._runs.discard(run)

    def fleet_per_s(self, job: Job) -> float | None:
        """How many items a second all seats together do, as far as this process can tell."""
        known = [job.dealt_per_s] if job.dealt_per_s else []
        if self.item_s:
            known.append(job.active.seats * sum(1 / s for s in self.item_s.values()) / len(self.item_s))
        return max(known, default=None)

    def hint(self, uid: str) -> None:
        """Somebody waits at a job."""
        if any(run.uid == uid for run in self._runs):
            self._due.setdefault(uid, self._bus.clock.monotonic() + _SETTLE_S * (1 + 3 * random.random()))
            self._poked.set()

    def idle(self, uid: str) -> None:
        """A seat of this process has begun to wait at a job; several that do so at once are announced together."""
        if self._settings.donation or self._hedging:
            self._idle.add(uid)
            self._poked.set()

    async def watch(self) -> None:
        """Look after tails, for ever."""
        clock = self._bus.clock
        while True:
            self._poked.clear()
            if self._idle:
                await clock.sleep(_SETTLE_S)
                while self._idle:
                    await self._bus.announce("idle", self._idle.pop())
            now = clock.monotonic()
            for uid in [uid for uid, at in self._due.items() if at <= now]:
                del self._due[uid]
                try:
                    again_s = await self._look(uid)
                except (BrokerUnavailable, BrokerRefused) as error:
                    self._bus.log.debug("a tail waits", uid=uid, cause=str(error))
                    again_s = _AGAIN_S * 10
                if again_s is not None:
                    self._due[uid] = clock.monotonic() + again_s
            wait_s = min(self._due.values(), default=now + 60.0) - clock.monotonic()
            if wait_s > 0:
                await wait_for_event(self._poked, wait_s)

    def typical_s(self, job: Job) -> float | None:
        """How long an item takes a usual seat, as far as this process can tell."""
        fleet = self.fleet_per_s(job)
        return job.active.seats / fleet if fleet else None

    async def _look(self, uid: str) -> float | None:
        """Share a job's work with those who wait for it; seconds until it is worth looking again, None if it is not."""
        job = self._jobs.get(uid)
        runs = [run for run in self._runs if run.uid == uid]
        if job is None or job.ended or not runs or job.active.policy is not Policy.CHUNK:
            return None
        pending, waiting = await self._bus.work.waiters(uid)
        waiting -= pending
        if waiting <= 0:
            return None if not pending else _AGAIN_S
        typical_s = self.typical_s(job) or 1.0
        if self._settings.donation:
            now = self._bus.clock.monotonic()
            gifts = balance.share_out([run.load(now, typical_s) for run in runs], waiting, typical_s)
            for run, gift in zip(runs, gifts, strict=True):
                if gift.parts:
                    waiting -= await run.give(gift)
        if self._hedging and waiting > 0:
            return min(_AGAIN_S, await self._hedge(job, runs, waiting, typical_s))
        return _AGAIN_S

    async def _hedge(self, job: Job, runs: Iterable[Run], waiting: int, typical_s: float) -> float:
        """Ask twice for what has been asked for too long; seconds until the next item is due."""
        now = self._bus.clock.monotonic()
        found = []
        for run in runs:
            item_s = run.load(now, typical_s).item_s
            for index, since in run.asked_since().items():
                found.append((balance.ask_twice_in_s(now - since, item_s, typical_s), index, run))
        found.sort(key=lambda entry: entry[0])
        for in_s, index, run in found:
            if in_s > 0:
                return in_s
            if waiting <= 0 or not await self._ticket(job):
                break
            if await run.hedge(index):
                waiting -= 1
        return _AGAIN_S

    async def _ticket(self, job: Job) -> bool:
        """Count one more hedge in the job's tag, so that all processes together stay within the bound."""
        allowed, got = balance.hedges_allowed(job.active.span.size), False

        def edit(tag: JobTag) -> bool:
            nonlocal got
            got = tag.queue.hedges < allowed
            tag.queue.hedges += got
            return got

        if allowed:
            await self._bus.tags.change(job.uid, edit)
        return got
