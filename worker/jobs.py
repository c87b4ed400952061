"""The active jobs as this process sees them: hints at once, truth every second, an end after two truths."""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from cuscuta import subjects
from cuscuta.broker import Bus, Delivery
from cuscuta.clock import wait_for_event
from cuscuta.codec import RecordError, decode
from cuscuta.errors import BrokerUnavailable
from cuscuta.model import ActiveJob, Announcement
from cuscuta.spans import Span
from worker import choice

_TRUTH_S = 1.0
_ANCHOR_S = 0.25  # long enough for every seat of a quick fleet to have taken a chunk
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
        self.rides_until = 0.0  # until then nothing of it need be pulled: it rides along
        self.rides_next, self.rides_since = 0, 0.0  # the chunk that was next on board, and since when it is
        self.no_rides_until = 0.0
        self.ridden = False  # whether something of it was stored by a ride since the job was last checked
        self.plan: list[Span] | None = None  # its division, for rides
        self.frontier = active.span.start  # all chunks before it were dealt out at least once
        self._anchor: tuple[float, int] | None = None
        self.dealt_per_s: float | None = None  # how many items a second the queue deals out to all seats together

    @property
    def uid(self) -> str:
        """The job's uid."""
        return self.active.uid

    @property
    def left(self) -> int:
        """Items whose chunks were not dealt out yet, as far as this process has seen."""
        return self.active.span.stop - self.frontier

    def dealt(self, span: Span, now: float) -> None:
        """A chunk came for the first time. They come in order, so this tells how far the whole fleet is."""
        if span.stop <= self.frontier:
            return
        self.frontier = span.stop
        if self._anchor is None:
            self._anchor = now, span.stop
        elif now - self._anchor[0] >= _ANCHOR_S:
            speed = (span.stop - self._anchor[1]) / (now - self._anchor[0])
            self.dealt_per_s = choice.smooth(self.dealt_per_s, speed)
            self._anchor = now, span.stop


class Jobs:
    """All active jobs. `changed` is set, and replaced, whenever there may be something new to do."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._jobs: dict[str, Job] = {}
        self._stale = asyncio.Event()
        self._absent: set[str] = set()
        self.changed = asyncio.Event()
        self.shares = choice.Shares()
        self.joined = 0  # how many jobs have become active so far
        self.on_end: Callable[[str], None] = lambda uid: None
        self.on_idle: Callable[[str], None] = lambda uid: None

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

    def in_turn(self) -> list[Job]:
        """Jobs that have not ended, the one that a free seat joins first."""
        return self.shares.in_turn(self._jobs.values())

    def end(self, uid: str) -> None:
        """The job has ended: nobody polls for it any more."""
        if job := self._jobs.pop(uid, None):
            job.ended = True
            self._share()
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
            known = self._jobs.get(hint.uid)  # whose target never changes, whoever hints at it
            self._add(replace(hint.active, target=known.active.target) if known else hint.active)
        elif hint.kind == "ended":
            self.end(hint.uid)
        elif hint.kind == "idle":
            self.on_idle(hint.uid)
        elif hint.kind == "chunk" and (job := self._jobs.get(hint.uid)):
            job.dry_until = 0.0
            self.poke()

    def _add(self, active: ActiveJob) -> None:
        job = self._jobs.get(active.uid)
        if job is not None and job.active.run != active.run:  # we missed the end of the run before
            self.end(active.uid)
            job = None
        if job is None:
            self._jobs[active.uid] = Job(active)
            self.joined += 1
            self._share()
        else:
            job.active, job.dry_until = active, 0.0
        self.poke()

    def _share(self) -> None:
        self.shares.see({job.active.group for job in self._jobs.values()})

    def _take(self, truth: list[ActiveJob], known: set[str]) -> None:
        absent = known - {active.uid for active in truth}
        for uid in absent & self._absent:  # twice in a row: one read may come from a replica that lags
            self.end(uid)
        self._absent = absent - self._absent
        for active in truth:
            if (job := self._jobs.get(active.uid)) is None or job.active != active:
                self._add(active)
