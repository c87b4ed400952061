"""Shared polls: while a seat works on a chunk of one job, other jobs on the same catalogue ride along.

A ride takes only spans whose chunk of the other job nobody has pulled yet, as the other job's consumer tells. The
chunk stays in the queue until all of it is stored, and is then removed by its sequence, so a crash loses nothing: the
other job's chunk is simply pulled later. Where two hold the same item after all, only what is not stored is written.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial

import msgspec
from opentelemetry.trace import Span as TraceSpan

from cuscuta import spans, subjects
from cuscuta.broker.settle import close
from cuscuta.codec import encode
from cuscuta.errors import BrokerUnavailable, CuscutaError, Throttled, UpstreamError, Verdict, verdict_of
from cuscuta.model import ItemError, JobStatus
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from worker import balance, traced
from worker.account import Account, Cut, LeaseLost
from worker.ending import settle_if_done
from worker.holds import Trust
from worker.jobs import Job
from worker.kit import Kit
from worker.shelf import Shelf
from worker.upstream.protocol import Target

LEFT_ALONE_S, _LEFT_ALONE_MOST_S = 0.1, 3.0  # a job whose next chunk rides along is looked at again after this
_FORGIVEN_S = 10.0  # for so long a job whose target could not be followed is not taken along


class Rider:
    """One other job on board: its target, the spans it takes part in, and the chunks that they belong to."""

    def __init__(
        self,
        kit: Kit,
        account: Account,
        job: Job,
        target: Target,
        shelf: Shelf,
        taken: list[Span],
        chunks: dict[Span, int],
    ) -> None:
        self._kit, self._account, self.job, self.target, self._shelf = kit, account, job, target, shelf
        self._ahead, self._chunks = taken, chunks
        self._begun = False
        self._stored: list[Span] = []
        self._traced: TraceSpan | None = None  # from the first item on

    @property
    def ahead(self) -> Sequence[Span]:
        """What it still takes part in."""
        return self._ahead

    def takes(self, index: int) -> bool:
        """Whether an item's answer is wanted."""
        return not self.job.ended and any(span.start <= index < span.stop for span in self._ahead)

    async def take(self, index: int, value: object) -> None:
        """Take an item's answer, an UpstreamError included; whatever cannot be stored ends the ride."""
        if not self.takes(index):
            return
        answer = await self._answer(value)
        if answer is None or index != (self._shelf.cursor if self._begun else self._ahead[0].start):
            await self.leave()  # an item before it has no answer: whatever follows must not take its place
            return
        self._traced = self._traced or traced.ride(self.job.active.traceparent, self.job.uid)
        if not self._begun:
            await self._shelf.begin(index)
            self._begun = True
        await self._shelf.add(answer)
        if index + 1 == self._ahead[0].stop:
            await self._shelf.flush()
            self._stored.append(self._ahead.pop(0))
            self._begun = False

    async def _answer(self, value: object) -> msgspec.Raw | ItemError | None:
        if isinstance(value, UpstreamError):
            if value.verdict is Verdict.ITEM:
                return ItemError(type(value).__name__, self._account.describe(value))
            if value.verdict is Verdict.JOB:
                await _fail(self._kit, self._account, self.job, value)
            return None
        try:
            return msgspec.Raw(encode(value))
        except (TypeError, ValueError):  # its own run will find the bug of the adapter and judge it
            return None

    async def leave(self) -> None:
        """Take nothing more; what was taken is on its way to the store."""
        if self._traced:
            self._traced.end()
        ahead, self._ahead = self._ahead, []
        if self._begun:
            self._begun = False
            self._stored.append(Span(ahead[0].start, self._shelf.cursor))
            await self._shelf.flush()

    async def finish(self, settle: bool) -> None:
        """Wait until what was taken is stored, then remove the chunks that are done by it."""
        await self.leave()
        if not self._stored or not await self._shelf.stored() or self.job.ended:
            return
        work, results, uid = self._kit.bus.work, self._kit.bus.results, self.job.uid
        try:
            done = self._stored
            if any(spans.gaps(chunk, done) for chunk in self._chunks):
                done = await results.stored(uid)
            for chunk, sequence in self._chunks.items():
                if not spans.gaps(chunk, done):
                    await work.delete(sequence)
        except CuscutaError as error:
            self._kit.log.debug("a ridden chunk stays; it is found done when it is pulled", uid=uid, cause=str(error))
        self.job.ridden = True
        if settle:
            self._kit.finisher.soon("", settle_if_done(self._kit, self.job))


async def land(riders: Sequence[Rider], *, settle: bool = False) -> None:
    """The run is over: what its riders took is stored, and their chunks that are done go."""
    for rider in riders:
        await rider.finish(settle)


async def board(
    kit: Kit, account: Account, job: Job, todo: Sequence[Span], trust: Trust, aboard: Sequence[Rider], *, first: bool
) -> list[Rider]:
    """The jobs that ride along on some spans of a job, those on board first. Errors of the account are raised.

    `first`: nobody of this job has worked on these spans before, and so nobody of it has taken others along.
    """
    capacity = kit.upstream.capacity
    room = min(capacity.targets_per_poll, capacity.follow_slots) - 1
    riders = [rider for rider in aboard if not rider.job.ended]
    known = {job.uid, *(rider.job.uid for rider in riders)}
    others = [o for o in kit.jobs.in_order() if o.uid not in known and o.active.catalogue == job.active.catalogue]
    first = first and len(known) + len(others) == 2  # a third job's ride may have had a part of what is the second's
    others = others[: room - len(riders)]
    if not others or not todo:
        return list(aboard)
    try:
        free = await asyncio.gather(*(_free(kit, other, todo, first) for other in others))
    except BrokerUnavailable:
        return list(aboard)
    keep = set(known)
    riders = list(aboard)
    for other, (chunks, taken) in zip(others, free, strict=True):
        left = other.active.span.stop - todo[0].start
        if kit.halt.is_set() or job.ended:
            break
        if not taken or kit.bus.clock.monotonic() < other.no_rides_until:
            continue
        if not account.follows(other.uid) and not balance.worth_following(left, *account.costs):
            continue
        try:
            target = await account.target(other.uid, other.active.target, keep)
        except (Cut, LeaseLost):
            raise
        except Exception as error:
            verdict = verdict_of(error)
            if verdict in (Verdict.ACCOUNT, Verdict.LOGIN):
                raise
            if verdict is Verdict.JOB:
                await _fail(kit, account, other, error)
            if isinstance(error, Throttled):
                break  # the job at hand will rest for it
            other.no_rides_until = kit.bus.clock.monotonic() + _FORGIVEN_S  # its own run will judge it
            continue
        keep.add(other.uid)
        missing = partial(kit.bus.results.missing, other.uid)
        shelf = Shelf(kit, other.uid, account.lease.account, _trusted(trust, other), missing, shared=True)
        riders.append(Rider(kit, account, other, target, shelf, taken, chunks))
    return riders


def _trusted(trust: Trust, job: Job):  # type: ignore[no-untyped-def]
    return lambda: trust.holds() and not job.ended


async def _fail(kit: Kit, account: Account, job: Job, error: Exception) -> None:
    failure = kit.failures.make(type(error).__name__, account.describe(error), None, None, None)
    await kit.bus.broker.insist(lambda: close(kit.bus, job.uid, JobStatus.FAILED, [failure]))
    kit.jobs.end(job.uid)


async def _free(kit: Kit, job: Job, todo: Sequence[Span], first: bool) -> tuple[dict[Span, int], list[Span]]:
    """A job's chunks that overlap some spans and that nobody has pulled, by sequence; what a ride may take of them."""
    active = job.active
    if job.plan is None:
        grid = await kit.bus.catalogues.grid(active.catalogue)
        job.plan = spans.divide(grid, active.span, active.seats, active.policy, active.chunk_items)
    near = [chunk for gap in todo for chunk in spans.overlapping(job.plan, gap)]
    if not near:
        return {}, []
    work = kit.bus.work
    standing = await work.sequences([ChunkName(job.uid, chunk, 1) for chunk in near])
    dealt = await work.dealt_until(job.uid)  # after the other read: what is dealt meanwhile is not taken
    chunks = {chunk: standing[chunk] for chunk in near if dealt is not None and standing.get(chunk, 0) > dealt}
    taken = spans.union(part for gap in todo for chunk in chunks if (part := spans.clip(gap, chunk)).size)
    if taken and not (first and spans.total(chunks) == spans.total(taken)):  # an earlier ride may have had a part of it
        stored = await kit.bus.results.stored(job.uid)
        taken = [gap for span in taken for gap in spans.gaps(span, stored)]
    return chunks, taken


async def rides_along(kit: Kit, job: Job) -> bool:
    """Whether what is next of a job is polled along with another one, so that nobody need pull it; asked rarely."""
    now = kit.bus.clock.monotonic()
    if job.rides_until <= now:
        with contextlib.suppress(BrokerUnavailable):
            sequence = await _ridden_elsewhere(kit, job)
            if sequence != job.rides_next:
                job.rides_next, job.rides_since = sequence, now
            if sequence and now - job.rides_since < _LEFT_ALONE_MOST_S:  # else it is on board of nothing that moves
                job.rides_until = now + LEFT_ALONE_S
    return job.rides_until > now


async def _ridden_elsewhere(kit: Kit, job: Job) -> int:
    """The sequence of a job's next chunk if it is very likely on board of an older job's chunk at work, else 0."""
    older = []
    for other in kit.jobs.in_order():
        if other is job:
            break
        if other.active.catalogue == job.active.catalogue:
            older.append(other)
    if not older:
        return 0
    work = kit.bus.work
    if (found := await work.next_chunk(job.uid)) is None:
        return 0
    try:
        span = subjects.parse_chunk(found.subject).span
    except ValueError:
        return 0
    for other in older:
        if any(spans.clip(name.span, span).size for name in await work.queued(other.uid)):
            return found.sequence
    return 0
