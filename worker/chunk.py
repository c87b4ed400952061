"""Chunks in a seat's hands: poll item by item, flush, write, acknowledge; or store what is done and hand back.

Nothing here decides what an error means: `cuscuta.errors` says it by type, and `run` is the table of DESIGN §5.
"""

import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from cuscuta import backoff, errors, limits, telemetry
from cuscuta.broker.settle import close
from cuscuta.clock import wait_for_event
from cuscuta.codec import encode
from cuscuta.db.leases import Return
from cuscuta.errors import CuscutaError, Verdict, verdict_of
from cuscuta.model import Item, ItemError, JobStatus
from cuscuta.spans import Span
from worker import balance, choice, gaps, pieces, traced, window
from worker.account import Account, Cut, LeaseLost
from worker.ending import settle_if_done
from worker.failures import where
from worker.gift import Gifts
from worker.handback import give_up, put_back
from worker.holds import Trust
from worker.jobs import Job
from worker.kit import Kit
from worker.pieces import Piece
from worker.rides import Rider, board, land
from worker.shelf import Answer, Shelf
from worker.stops import HoldLost, Resting

AnswerT = TypeVar("AnswerT")


class ChunkRun:
    """A stretch of neighbouring chunks, mostly a single one. `todo` are the parts of it that are not stored yet."""

    def __init__(self, kit: Kit, account: Account, job: Job, held: list[Piece], todo: list[Span]) -> None:
        self._kit, self._account, self._job, self._held, self._todo = kit, account, job, held, todo
        self._span = pieces.whole(held)
        self._trust = Trust([piece.hold for piece in held], kit.bus.clock)
        cuts = partial(gaps.cuts, kit, job, held)
        lacks = partial(gaps.missing, kit, [piece.name for piece in held])
        self._shelf = Shelf(
            kit, job.uid, account.lease.account, self._trusted, lacks, cuts,
            start=todo[0].start if todo else self._span.stop, shared=kit.shared,
            claim=held[0].body.claim if todo and todo[0].start == self._span.start else 0,
        )  # fmt: skip
        self._gifts = Gifts(kit, account, held, todo, self._shelf, self._trust)
        self._answered_at = 0.0
        self._riders: list[Rider] = []
        self._joined = 0
        self._first = todo == [self._span] and held[0].fresh

    async def run(self) -> Return | None:
        """Work it off. None: go on with this account; else how to give the account back."""
        kit, job, account, first = self._kit, self._job, self._account, self._held[0]
        if first.hold.delivery.delivered > 1:
            self._fail("WorkerHalting", "its last holder died or was silent for too long")
        if first.attempts >= kit.settings.max_attempts:
            self._fail("GivenUp", "attempts used up by holders that died")
            job.unsettled = await give_up(kit, first, "attempts used up by holders that died")
            return None
        try:
            with traced.stretch(self._held, kit.jobs, kit.bus.clock) as self._gifts.traceparent:
                kit.tail.enter(self._gifts)
                try:
                    await self._poll_all()
                finally:
                    kit.tail.leave(self._gifts)
            account.succeeded()
            with telemetry.below(self._gifts.traceparent):
                await kit.finisher.start(job.uid, self._finish())
        except Exception as error:  # noqa: BLE001 - an adapter may raise anything; the verdict decides
            with telemetry.below(self._gifts.traceparent):
                return await self._judge(error)
        return None

    async def _judge(self, error: Exception) -> Return | None:
        match error:
            case Cut() | HoldLost():
                await self._interrupted(error)
                return None
            case LeaseLost():
                await self._hand_back("LeaseLost", str(error), another=False)
                return Return(self._account.rate)
            case Resting():
                await self._hand_back("Throttled", str(error), another=False)
                return Return(self._account.rate, rest_s=error.seconds)
        kind, message = type(error).__name__, self._account.describe(error)
        if (verdict := verdict_of(error)) is Verdict.JOB:
            await self._abandon()
            failure = self._kit.failures.make(kind, message, self._span, self._account.lease.account, None)
            await self._kit.bus.broker.insist(lambda: close(self._kit.bus, self._job.uid, JobStatus.FAILED, [failure]))
            self._kit.jobs.end(self._job.uid)
            return None
        if verdict in (Verdict.ACCOUNT, Verdict.LOGIN):
            await self._hand_back("AccountFailed", message, another=False)
            return self._account.blamed(message)
        if verdict is Verdict.BUG:
            self._kit.log.error("adapter bug", uid=self._job.uid, error=kind, cause=message, at=where(error))
        await self._hand_back(kind, message, another=True)
        return None

    # --- polling -------------------------------------------------------------------------------------------------

    async def _poll_all(self) -> None:
        kit, account, job, gifts = self._kit, self._account, self._job, self._gifts
        if not self._todo:
            return  # all of it is stored: nobody is asked, not even whether the target is still there
        self._target = await self._patiently(lambda: account.target(job.uid, job.active.target))
        await self._shrink()
        await self._board()
        self._answered_at = kit.bus.clock.monotonic()
        for gap in self._todo:
            await self._shelf.begin(gap.start)
            while await gifts.left(gap, self._shelf.cursor):
                part = Span(self._shelf.cursor, gap.stop)
                items = await kit.bus.broker.insist(lambda: kit.bus.catalogues.items(job.active.catalogue, part))  # noqa: B023
                upcoming = self._upcoming(part, items)
                async with contextlib.aclosing(
                    window.in_order(upcoming, self._ask, kit.upstream.capacity.concurrency)
                ) as answers:
                    async for answer, others in answers:
                        await self._add(answer, others)
            await self._shelf.flush()
        for rider in self._riders:
            await rider.leave()

    async def _board(self) -> None:
        """Take along what other jobs want of the items not begun; again when a job has joined since."""
        if self._kit.shared:
            self._joined = self._kit.jobs.joined
            seat, unbegun = (self._kit, self._account, self._job), self._gifts.unbegun()
            self._riders = await board(*seat, unbegun, self._trust, self._riders, first=self._first)
            self._account.riding = self._riders

    async def _shrink(self) -> None:
        """A slow seat keeps of a chunk what it can do before the job ends; the rest is for quicker ones."""
        kit, job = self._kit, self._job
        rest = self._gifts.rest
        left = job.active.span.stop - self._span.start
        keep = balance.fair_size(rest, left, kit.tail.fleet_per_s(job), job.active.seats, self._account.item_s)
        if kit.tail.donates(job) and keep < rest:
            await self._gifts.give(balance.Gift(keep, 1))

    def _upcoming(self, part: Span, items: Sequence[Item]) -> Iterator[tuple[int, Item]]:
        for index, item in zip(range(part.start, part.stop), items, strict=True):
            if not self._gifts.begin(index):
                return
            yield index, item

    async def _ask(self, entry: tuple[int, Item]) -> tuple[Answer, Sequence[tuple[Rider, object]]]:
        index, item = entry
        self._gifts.asked[index] = self._kit.bus.clock.monotonic()
        try:
            return await self._patiently(lambda: self._values(index, item))
        except errors.UpstreamError as error:
            if error.verdict is not Verdict.ITEM:
                raise
            others = [(rider, error) for rider in self._riders if rider.takes(index)]
            return ItemError(type(error).__name__, self._account.describe(error)), others
        finally:
            del self._gifts.asked[index]

    async def _values(self, index: int, item: Item) -> tuple[Answer, Sequence[tuple[Rider, object]]]:
        """The job's own value, and those of the riders that want theirs."""
        if not self._kit.shared:
            return self._raw(await self._account.poll(self._target, item)), ()
        riding = [rider for rider in self._riders if rider.takes(index)]
        targets = [self._target, *(rider.target for rider in riding)]
        own, *others = await self._account.poll_shared(targets, item)
        for_others = list(zip(riding, others, strict=True))
        if not isinstance(own, errors.UpstreamError):
            return self._raw(own), for_others
        if own.verdict is not Verdict.ITEM:
            raise own
        return ItemError(type(own).__name__, self._account.describe(own)), for_others

    def _raw(self, value: object) -> msgspec.Raw:
        if isinstance(value, msgspec.Raw):
            msgspec.json.decode(value)  # an adapter's own JSON must be JSON
            return value
        return msgspec.Raw(encode(value))

    async def _add(self, answer: Answer, others: Sequence[tuple[Rider, object]]) -> None:
        now, account = self._kit.bus.clock.monotonic(), self._account
        account.item_s = choice.smooth(account.item_s, now - self._answered_at, 0.2)
        self._kit.tail.item_s[account.lease.account] = account.item_s
        self._answered_at = now
        index = self._shelf.cursor
        await self._shelf.add(answer)
        for rider, value in others:
            await rider.take(index, value)
        if self._kit.shared and self._joined != self._kit.jobs.joined:
            await self._board()

    async def _patiently(self, call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """A call of the upstream: short rests and failures that may pass are waited out in place."""
        settings, tries = self._kit.settings, 0
        while True:
            if not self._fine():
                await self._guard()
            try:
                return await call()
            except errors.Throttled as error:
                seconds = self._account.rest_s(error)
                in_place = max(1.0, (self._account.item_s or 0.0) * self._span.size)
                if seconds > in_place or self._account.lease.throttled > limits.THROTTLED_IN_PLACE:
                    raise Resting(seconds, self._account.describe(error)) from error
                await self._account.pause(seconds)
            except errors.UpstreamError as error:
                tries += 1
                if error.verdict is not Verdict.TRANSIENT or tries > settings.transient_retries:
                    raise
                wait = backoff.exponential(tries, settings.backoff_base_s, settings.backoff_cap_s, random.random())
                await self._account.pause(wait)

    def _fine(self) -> bool:
        """Whether the result of a call will count, and can be written."""
        kit = self._kit
        return kit.bus.broker.connected.is_set() and not kit.halt.is_set() and not self._job.ended and self._trusted()

    async def _guard(self) -> None:
        """When something is not fine: wait while NATS is gone, stop for everything else."""
        kit = self._kit
        while not kit.bus.broker.connected.is_set() and not kit.halt.is_set():
            await wait_for_event(kit.bus.broker.connected, 0.2)
        if kit.halt.is_set() or self._job.ended:
            raise Cut("halting" if kit.halt.is_set() else "the job has ended")
        if not self._trusted():
            raise HoldLost("ack-wait passed")

    # --- ending --------------------------------------------------------------------------------------------------

    def _trusted(self) -> bool:
        return self._trust.holds()

    async def _finish(self) -> bool:
        """Acknowledge after the writes' own acknowledgement."""
        stored = await self._shelf.stored()
        if stored:
            for piece in self._held:
                await piece.hold.delivery.ack()
            last = self._job.unsettled = self._held[-1].hold.delivery
            if not last.pending or not self._job.left:  # it looks like the job's end: the sooner it is seen, the better
                self._kit.finisher.soon("", settle_if_done(self._kit, self._job))
        self._drop()
        await land(self._riders, settle=not self._job.left)
        return stored

    async def _interrupted(self, error: CuscutaError) -> None:
        if isinstance(error, Cut) and not self._job.ended:
            await self._hand_back("WorkerHalting", "the worker stops; the rest was handed back", another=False)
            return
        await self._abandon()  # of an ended job too: who ended it removes its messages, else they come again

    async def _hand_back(self, kind: str, message: str, *, another: bool) -> None:
        """Store what is done, publish the rest as the next incarnations, acknowledge: in this order."""
        await self._shelf.flush()
        await land(self._riders)
        stop = await self._gifts.close()
        if not await self._shelf.stored() or not self._trusted() or self._job.ended:
            self._drop()
            return
        cursor = self._shelf.cursor
        for piece in self._held:
            rest = pieces.rest(piece, cursor, stop)
            if not rest.size:
                await piece.hold.delivery.ack()
                continue
            in_hand = piece.name.span.start <= cursor
            attempts = piece.attempts + (1 if another and in_hand else 0)
            if in_hand:
                self._fail(kind, message, attempts)
                if attempts >= self._kit.settings.max_attempts:
                    self._fail("GivenUp", f"{kind}: {message}")
                    await give_up(self._kit, piece, f"{kind}: {message}")
                    continue
            await put_back(self._kit, piece, rest, attempts)
        self._job.unsettled = self._held[-1].hold.delivery
        self._drop()

    def _fail(self, kind: str, message: str, attempts: int | None = None) -> None:
        account = self._account.lease.account
        failure = self._kit.failures.make(kind, message, self._span, account, attempts)
        self._kit.failures.note(self._job.uid, failure)

    async def _abandon(self) -> None:
        await self._gifts.close()
        await land(self._riders)
        self._drop()

    def _drop(self) -> None:
        for piece in self._held:
            self._kit.holds.drop(piece.hold)
