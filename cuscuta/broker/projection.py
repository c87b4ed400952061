"""What lists are read from: a summary of fixed size for each tag, in memory, following the bucket by sequence.

No watch that could fall silent: the bucket keeps one message a key, so "everything after the last sequence I saw" is
exactly what changed. One direct read of 0.2 ms a second while nothing happens; a hint makes it read at once.
"""

import asyncio
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

from msgspec import Struct

from cuscuta import limits
from cuscuta.broker.kv import Bucket
from cuscuta.clock import Clock, wait_for_event
from cuscuta.codec import RecordError, decode
from cuscuta.errors import BrokerRefused, BrokerUnavailable
from cuscuta.limits import BATCH_GET_SUBJECTS
from cuscuta.logs import Logger
from cuscuta.model import JobStatus, JobTag, Priority

_EVERY_S = 1.0


class Summary(Struct, frozen=True):
    """One row of a list."""

    uid: str
    status: JobStatus
    target: str
    catalogue: str
    catalogue_hash: str
    priority: Priority
    items: int
    done: int
    lane: str | None
    labels: dict[str, str]
    failures: int
    retries: int
    created_at: datetime
    admitted_at: datetime | None
    ended_at: datetime | None
    deadline: datetime | None
    start_by: datetime | None
    after: tuple[str, ...]
    later_catalogues: tuple[str, ...] = ()  # contents that its follow-ups are about
    done_before: int = 0  # of `done`, what earlier runs had stored

    @property
    def group(self) -> str:
        """Whose job it is."""
        return self.labels.get("group", "")

    @property
    def place(self) -> tuple[datetime, str]:
        """Order of lists: by submission."""
        return (self.created_at, self.uid)


def summarise(tag: JobTag) -> Summary:
    """A tag's row."""
    return Summary(
        uid=tag.uid,
        status=tag.status,
        target=tag.essential.target,
        catalogue=tag.essential.catalogue_name,
        catalogue_hash=tag.essential.catalogue,
        priority=tag.essential.priority,
        items=tag.essential.span.size,
        done=tag.progress.done,
        lane=tag.essential.lane,
        labels=tag.essential.labels,
        failures=sum(tag.failure_counts.values()),
        retries=len(tag.run_ids) - 1,
        created_at=tag.queue.created_at,
        admitted_at=tag.queue.admitted_at,
        ended_at=tag.queue.ended_at,
        deadline=tag.essential.deadline,
        start_by=tag.essential.start_by,
        after=tag.essential.after,
        later_catalogues=tuple(
            follow.catalogue for follow in (tag.essential.on_success, tag.essential.on_failure) if follow
        ),
        done_before=tag.queue.done_before,
    )


def _text(row: Summary) -> str:
    labels = (f"{key}:{value}" for key, value in row.labels.items())
    return "\n".join((row.target, row.catalogue, row.uid, *labels)).lower()


class Projection:
    """Follows `cuscuta_tags`. `caught_up` is set once everything that stood at the start is in."""

    def __init__(self, bucket: Bucket, clock: Clock, log: Logger, retention_s: float) -> None:
        self._bucket, self._clock, self._log, self._retention_s = bucket, clock, log, retention_s
        self._rows: dict[str, Summary] = {}
        self._texts: dict[str, str] = {}  # what a search looks through: to make it for each look took 2 µs a row
        self._open: dict[str, Summary] = {}
        self._places: list[tuple[datetime, str]] = []
        self._later: dict[str, set[str]] = {}  # who runs after whom
        self._queues: Counter[tuple[Priority, str]] = Counter()  # jobs that are queueing, by priority and group
        self._revision, self._audited, self._made_at = 0, "", ""
        self._hint = asyncio.Event()
        self.caught_up = asyncio.Event()
        self.on_end: Callable[[JobTag, Summary], None] = lambda tag, row: None  # of each end that is news

    def hint(self) -> None:
        """Something changed: read at once."""
        self._hint.set()

    async def follow(self) -> None:
        """Follow for ever."""
        pruned = self._clock.monotonic()
        while True:
            self._hint.clear()
            try:
                await self.catch_up()
            except (BrokerUnavailable, BrokerRefused) as error:  # away, or deleted and about to be made anew
                self._log.debug("the projection waits", cause=str(error))
                await self._clock.sleep(0.5)
                continue
            self.caught_up.set()
            if self._clock.monotonic() - pruned > 5:
                pruned = self._clock.monotonic()
                self.prune()
                await self._audit()
            await wait_for_event(self._hint, _EVERY_S)

    async def _audit(self) -> None:
        """Forget what is no more: jobs whose tag was removed by hand, and everything if the bucket was made anew."""
        try:
            made_at = await self._bucket.made_at()
            known, self._made_at = self._made_at or made_at, made_at
            if known != made_at:
                self._log.error("the bucket of tags was made anew: its jobs are gone", jobs=len(self._rows))
                self._revision = 0
                self.drop(set(self._rows))
                return
            some = sorted(uid for uid in self._open if uid > self._audited)[: limits.BATCH_GET_SUBJECTS]
            self._audited = some[-1] if len(some) == limits.BATCH_GET_SUBJECTS else ""
            missing = set(some) - {entry.key for entry in await self._bucket.many(some)} if some else set()
            if gone := {uid for uid in missing if await self._bucket.get(uid) is None}:  # from the leader
                self._log.warning("jobs whose tags were removed are forgotten", jobs=sorted(gone)[:10])
                self.drop(gone)
        except (BrokerUnavailable, BrokerRefused) as error:
            self._log.debug("the projection waits", cause=str(error))

    async def catch_up(self) -> None:
        """Read all that was written since the last time."""
        while entries := await self._bucket.since(self._revision):
            for entry in entries:
                try:
                    self.take(decode(entry.value, JobTag))
                except RecordError as error:
                    self._log.warning("a record in cuscuta_tags is not ours", key=entry.key, cause=str(error))
                self._revision = max(self._revision, entry.revision)
            if len(entries) < BATCH_GET_SUBJECTS // 2:
                return
            await asyncio.sleep(0)  # a long catch-up must not hold up requests

    def take(self, tag: JobTag) -> None:
        """Let a tag count."""
        row = summarise(tag)
        known = self._rows.get(row.uid)
        if row.status.terminal and (known is None or known.ended_at != row.ended_at):
            self.on_end(tag, row)
        if known is None:
            insort(self._places, row.place)
            self._texts[row.uid] = _text(row)
            for before in row.after:
                self._later.setdefault(before, set()).add(row.uid)
        self._rows[row.uid] = row
        self._close(row.uid)
        if not row.status.terminal:
            self._open[row.uid] = row
            if row.status is JobStatus.QUEUEING:
                self._queues[row.priority, row.group] += 1

    def _close(self, uid: str) -> None:
        row = self._open.pop(uid, None)
        if row is not None and row.status is JobStatus.QUEUEING:
            self._queues[row.priority, row.group] -= 1
            if not self._queues[row.priority, row.group]:
                del self._queues[row.priority, row.group]

    def take_new(self, tag: JobTag) -> None:
        """Let a tag count that this replica has just written, unless a later one of the job is in already."""
        if tag.uid not in self._rows:
            self.take(tag)

    def prune(self) -> None:
        """Drop rows whose retention is over, and the oldest ended ones past the limit."""
        now = self._clock.wall()
        gone = {
            row.uid
            for row in self._rows.values()
            if row.ended_at is not None and (now - row.ended_at).total_seconds() > self._retention_s
        }
        excess = len(self._rows) - len(gone) - limits.JOBS_SUMMARISED
        if excess > 0:
            ended = (uid for _, uid in self._places if self._rows[uid].status.terminal and uid not in gone)
            gone.update(uid for uid, _ in zip(ended, range(excess), strict=False))
        if gone:
            self.drop(gone)

    def drop(self, uids: set[str]) -> None:
        """Forget rows."""
        for uid in uids:
            row = self._rows.pop(uid, None)
            self._texts.pop(uid, None)
            self._close(uid)
            for before in row.after if row else ():
                if later := self._later.get(before):
                    later.discard(uid)
                    if not later:
                        del self._later[before]
        self._places = [place for place in self._places if place[1] in self._rows]

    def get(self, uid: str) -> Summary | None:
        """A job's row."""
        return self._rows.get(uid)

    def text(self, uid: str) -> str:
        """A job's target, catalogue, labels and uid in small letters, a line each."""
        return self._texts.get(uid, "")

    def open_jobs(self) -> list[Summary]:
        """Jobs that have not ended."""
        return list(self._open.values())

    def queues(self) -> list[tuple[Priority, str]]:
        """Priorities and groups of which a job is queueing."""
        return list(self._queues)

    def later(self, uid: str) -> set[str]:
        """The jobs that run after a job."""
        return self._later.get(uid, set())

    def catalogues(self) -> set[str]:
        """The contents that kept jobs are about."""
        return {name for row in self._rows.values() for name in (row.catalogue_hash, *row.later_catalogues)}

    def newest(self, keep: Callable[[Summary], bool], before: str | None = None) -> Iterator[Summary]:
        """Rows from the newest on, those older than `before` only."""
        end = bisect_left(self._places, self._rows[before].place) if before in self._rows else len(self._places)
        for i in range(end - 1, -1, -1):
            row = self._rows[self._places[i][1]]
            if keep(row):
                yield row

    def __len__(self) -> int:
        return len(self._rows)
