"""The active jobs as this process sees them: hints at once, truth every second, an end after two truths."""

import asyncio
from collections.abc import Callable

from cuscuta import subjects
from cuscuta.broker import Bus, Delivery
from cuscuta.clock import wait_for_event
from cuscuta.errors import BrokerUnavailable
from cuscuta.model import ActiveJob, Announcement, RecordError, decode
from worker import choice

_TRUTH_S = 1.0
DRY_S = 1.0  # an empty queue is asked again after this; a hint or an open pull is quicker


class Job:
    """One active job."""

    def __init__(self, active: ActiveJob) -> None:
        self.active = active
        self.ended = False
        self.dry_until = 0.0
        self.pulling = asyncio.Lock()  # the server deals chunks out among open pulls, and neighbours are cheaper
        self.chunk_s: float | None = None  # how long a chunk takes here
        self.unsettled: Delivery | None = None  # the last chunk acknowledged here since the job was last checked

    @property
    def uid(self) -> str:
        """The job's uid."""
        return self.active.uid


class Jobs:
    """All active jobs. `changed` is set, and replaced, whenever there may be something new to do."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._jobs: dict[str, Job] = {}
        self._stale = asyncio.Event()
        self._absent: set[str] = set()
        self.changed = asyncio.Event()
        self.on_end: Callable[[str], None] = lambda uid: None

    def poke(self) -> None:
        """Wake whoever waits for a change."""
        event, self.changed = self.changed, asyncio.Event()
        event.set()

    def get(self, uid: str) -> Job | None:
        """A job by uid."""
        return self._jobs.get(uid)

    def in_order(self) -> list[Job]:
        """Jobs that have not ended, best first."""
        return choice.in_order(self._jobs.values())

    def end(self, uid: str) -> None:
        """The job has ended: nobody polls for it any more."""
        if job := self._jobs.pop(uid, None):
            job.ended = True
            self.on_end(uid)
            self.poke()

    def doubt(self) -> None:
        """Something does not fit: look at the truth soon."""
        self._stale.set()

    async def follow(self) -> None:
        """Follow hints and truth for ever."""
        end = await self._bus.broker.subscribe(subjects.ANNOUNCE, self._hint)
        try:
            while True:
                self._stale.clear()
                known = set(self._jobs)  # a job announced while the list is on its way is not in it
                try:
                    self._take(await self._bus.active_jobs(), known)
                except BrokerUnavailable as error:
                    self._bus.log.debug("the list of active jobs waits", cause=str(error))
                await wait_for_event(self._stale, _TRUTH_S)
        finally:
            await end()

    async def _hint(self, msg: object) -> None:
        try:
            hint = decode(getattr(msg, "data", b""), Announcement)
        except RecordError:
            return
        if hint.kind == "active" and hint.active:
            self._add(hint.active)
        elif hint.kind == "ended":
            self.end(hint.uid)
        elif hint.kind == "chunk" and (job := self._jobs.get(hint.uid)):
            job.dry_until = 0.0
            self.poke()

    def _add(self, active: ActiveJob) -> None:
        job = self._jobs.get(active.uid)
        if job is None:
            self._jobs[active.uid] = Job(active)
        else:
            job.active, job.dry_until = active, 0.0
        self.poke()

    def _take(self, truth: list[ActiveJob], known: set[str]) -> None:
        absent = known - {active.uid for active in truth}
        for uid in absent & self._absent:  # twice in a row: one read may come from a replica that lags
            self.end(uid)
        self._absent = absent - self._absent
        for active in truth:
            if (job := self._jobs.get(active.uid)) is None or job.active != active:
                self._add(active)
