"""Everything on the bus, wired: one connection and the typed stores over it."""

import contextlib
from datetime import datetime

from cuscuta import instruments, subjects
from cuscuta.broker.catalogues import Catalogues
from cuscuta.broker.connection import Broker
from cuscuta.broker.kv import Bucket
from cuscuta.broker.lanes import Lanes
from cuscuta.broker.results import Results
from cuscuta.broker.schedules import Schedules
from cuscuta.broker.tags import Tags
from cuscuta.broker.work import Work
from cuscuta.clock import Clock
from cuscuta.codec import RecordError, decode, encode
from cuscuta.errors import BrokerUnavailable
from cuscuta.logs import Logger
from cuscuta.model import ActiveJob, Announcement, DeadChunk, Event, JobStatus, JobTag, Presence, Priority
from cuscuta.settings import Settings

__all__ = ["Bus"]

_NEWS_S = 100.0  # an end that is filed once more later than this is old: the server knows a repeated one for 120 s


class Bus:
    """One process's view of the bus."""

    def __init__(self, settings: Settings, clock: Clock, log: Logger, name: str) -> None:
        self.settings, self.clock, self.log = settings, clock, log
        self.broker = Broker(settings, clock, log, name)
        self.tag_bucket = Bucket(self.broker, subjects.TAGS)
        self.active_bucket = Bucket(self.broker, subjects.ACTIVE)
        self.worker_bucket = Bucket(self.broker, subjects.WORKERS)
        self.tags = Tags(self.tag_bucket, settings.retention_s)
        self.results = Results(self.broker, Bucket(self.broker, subjects.RESULTS))
        self.catalogues = Catalogues(Bucket(self.broker, subjects.CATALOGUES))
        self.schedules = Schedules(self.broker, Bucket(self.broker, subjects.SCHEDULE_RECORDS), settings.retention_s)
        self.work = Work(self.broker, settings)
        self.lanes = Lanes(self.broker, self.work)

    async def announce(
        self, kind: str, uid: str, active: ActiveJob | None = None, queue: tuple[Priority, str] | None = None
    ) -> None:
        """Hint at a change; nothing depends on it."""
        await self.broker.tell(subjects.ANNOUNCE, encode(Announcement(kind, uid, active, queue)))

    async def event(self, tag: JobTag, what: str, status: JobStatus) -> None:
        """File a step in a job's life; the server drops one that is repeated within the same run."""
        why = tag.failures[-1].type if status is JobStatus.FAILED and tag.failures else None
        event = Event(tag.uid, what, self.clock.wall(), status, why, tag.run_ids[-1], tag.essential.group)
        named = {"Nats-Msg-Id": f"{tag.run_ids[-1]}.{what}"}
        if await self.broker.publish_once(subjects.event(tag.uid, what), encode(event), named):
            _count(tag, what, event.at)

    async def bury(self, dead: DeadChunk, sequence: int = 0) -> None:
        """File a chunk that was given up; with no span it was malformed."""
        subject = subjects.dead(dead.uid, dead.span) if dead.span else subjects.dead_malformed(dead.uid, sequence)
        await self.broker.publish(subject, encode(dead))

    async def active_jobs(self) -> list[ActiveJob]:
        """The active jobs, best first; read directly."""
        jobs = []
        for entry in await self.active_bucket.many([">"]):
            try:
                jobs.append(decode(entry.value, ActiveJob))
            except RecordError as error:
                self.log.warning("a record in cuscuta_active is not ours", key=entry.key, cause=str(error))
        return sorted(jobs, key=lambda job: job.order)

    async def workers(self) -> list[Presence]:
        """The worker processes that are alive; read directly."""
        found = []
        for entry in await self.worker_bucket.many([">"]):
            try:
                found.append(decode(entry.value, Presence))
            except RecordError as error:
                self.log.warning("a record in cuscuta_workers is not ours", key=entry.key, cause=str(error))
        return found

    async def workers_ahead(self) -> dict[str, float]:
        """By worker, how many seconds its clock was ahead of the NATS server's at its last heartbeat."""
        ahead = {}
        for entry in await self.worker_bucket.many([">"]):
            with contextlib.suppress(RecordError):
                found = decode(entry.value, Presence)
                ahead[found.worker] = (found.at - entry.at).total_seconds() if entry.at else 0.0
        return ahead

    async def ahead(self) -> float:
        """How many seconds this process's clock is ahead of the NATS server's. Raises BrokerUnavailable."""
        began = self.clock.wall()
        told = (await self.broker.api(f"STREAM.INFO.{self.work.stream}"))["ts"]
        return (began - datetime.fromisoformat(told)).total_seconds() + (self.clock.wall() - began).total_seconds() / 2

    async def ping(self) -> str | None:
        """A round trip to JetStream; the cause if it fails."""
        try:
            await self.broker.api("INFO")
        except BrokerUnavailable as error:
            return str(error)
        return None


def _count(tag: JobTag, what: str, now: datetime) -> None:
    """A step in a job's life, counted by whoever filed it first."""
    created, queue, first = tag.queue.created_at, tag.queue, len(tag.run_ids) == 1
    if what == "admitted" and queue.admitted_at:
        instruments.JOBS_ADMITTED.add(1)
        if first:  # a further run begins long after its job was accepted
            instruments.JOB_WAIT.record((queue.admitted_at - created).total_seconds())
    elif tag.status.terminal and queue.ended_at and (now - queue.ended_at).total_seconds() < _NEWS_S:
        status = {"cuscuta.status": str(tag.status)}
        instruments.JOBS_ENDED.add(1, status)
        if first:
            instruments.JOB_DURATION.record((queue.ended_at - created).total_seconds(), status)
