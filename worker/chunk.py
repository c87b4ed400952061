"""Chunks in a seat's hands: poll item by item, flush, write, acknowledge; or store what is done and hand back.

Nothing here decides what an error means: `cuscuta.errors` says it by type, and `run` is the table of DESIGN §5.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from cuscuta import backoff, errors, limits, spans, telemetry
from cuscuta.broker.settle import close
from cuscuta.clock import wait_for_event
from cuscuta.db.leases import Return
from cuscuta.errors import BrokerUnavailable, CuscutaError, Verdict, verdict_of
from cuscuta.model import ChunkResult, DeadChunk, Item, ItemError, JobStatus, encode
from cuscuta.spans import Span
from worker import choice, pieces, window
from worker.account import Account, Cut, LeaseLost
from worker.failures import describe, where
from worker.handback import put_back
from worker.jobs import Job
from worker.kit import Kit
from worker.pieces import Piece
from worker.upstream.protocol import Target

AnswerT = TypeVar("AnswerT")

FLUSH_BYTES = 512 << 10  # half of NATS's default max_payload, so that a flush is one message
_NULL = msgspec.Raw(b"null")


class HoldLost(CuscutaError):
    """Ack-wait may have passed: the chunk may be somebody else's by now."""


class Resting(CuscutaError):
    """The upstream asked for a rest that is longer than this chunk."""

    def __init__(self, seconds: float, cause: str) -> None:
        super().__init__(cause)
        self.seconds = seconds


class ChunkRun:
    """A stretch of neighbouring chunks, mostly a single one. `todo` are the parts of it that are not stored yet."""

    def __init__(self, kit: Kit, account: Account, job: Job, held: list[Piece], todo: list[Span]) -> None:
        self._kit, self._account, self._job, self._held, self._todo = kit, account, job, held, todo
        self._span = pieces.whole(held)
        self._cursor = todo[0].start if todo else self._span.stop  # everything before it is polled
        self._start = self._cursor  # of the values that are not flushed yet
        self._values: list[msgspec.Raw] = []
        self._errors: dict[str, ItemError] = {}
        self._bytes = 0
        self._flushed_at = kit.bus.clock.monotonic()
        self._writes: list[asyncio.Task[bool]] = []
        self._target = Target("")

    async def run(self) -> Return | None:
        """Work it off. None: go on with this account; else how to give the account back."""
        kit, job, account, first = self._kit, self._job, self._account, self._held[0]
        if first.hold.delivery.delivered > 1:
            self._fail("WorkerHalting", "its last holder died or was silent for too long")
        if first.attempts >= kit.settings.max_attempts:
            await self._give_up(first, "attempts used up by holders that died")
            return None
        parent = first.hold.delivery.headers.get("traceparent")
        try:
            with telemetry.span("chunk", parent, **{"cuscuta.job": job.uid, "cuscuta.span": str(self._span)}):
                await self._poll_all()
            account.succeeded()
            await kit.finisher.start(job.uid, self._finish())
        except (Cut, HoldLost) as error:
            await self._interrupted(error)
        except LeaseLost as error:
            await self._hand_back("LeaseLost", str(error), another=False)
            return Return(account.rate)
        except Resting as rest:
            await self._hand_back("Throttled", str(rest), another=False)
            return Return(account.rate, rest_s=rest.seconds)
        except Exception as error:  # noqa: BLE001 - an adapter may raise anything; the verdict decides
            return await self._judge(error)
        return None

    async def _judge(self, error: Exception) -> Return | None:
        kind, message = type(error).__name__, self._describe(error)
        verdict = verdict_of(error)
        if verdict is Verdict.JOB:
            self._drop()
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
        kit, account, body = self._kit, self._account, self._held[0].body
        if not self._todo:
            return  # all of it is stored: nobody is asked, not even whether the target is still there
        began = kit.bus.clock.monotonic()
        self._target = await self._patiently(lambda: account.target(self._job.uid, body.target))
        width = kit.upstream.capacity.concurrency
        for gap in self._todo:
            self._cursor = self._start = gap.start
            items = await kit.bus.broker.insist(lambda: kit.bus.catalogues.items(body.catalogue, gap))  # noqa: B023
            async with contextlib.aclosing(window.in_order(items, self._ask, width)) as values:
                async for value in values:
                    await self._add(value)
            await self._flush()
        self._cursor = self._span.stop
        took = kit.bus.clock.monotonic() - began
        account.item_s = choice.smooth(account.item_s, took / sum(gap.size for gap in self._todo))

    async def _ask(self, item: Item) -> msgspec.Raw | ItemError:
        try:
            return await self._patiently(lambda: self._value(item))
        except errors.UpstreamError as error:
            if error.verdict is not Verdict.ITEM:
                raise
            return ItemError(type(error).__name__, self._describe(error))

    async def _value(self, item: Item) -> msgspec.Raw:
        value = await self._account.poll(self._target, item)
        if isinstance(value, msgspec.Raw):
            msgspec.json.decode(value)  # an adapter's own JSON must be JSON
            return value
        return msgspec.Raw(encode(value))

    async def _patiently(self, call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """A call of the upstream: short rests and failures that may pass are waited out in place."""
        settings, tries = self._kit.settings, 0
        while True:
            await self._guard()
            try:
                answer = await call()
            except errors.Throttled as error:
                seconds = self._account.rest_s(error)
                in_place = max(1.0, (self._account.item_s or 0.0) * self._span.size)
                if seconds > in_place or self._account.lease.throttled > limits.THROTTLED_IN_PLACE:
                    raise Resting(seconds, self._describe(error)) from error
                await self._account.pause(seconds)
            except errors.UpstreamError as error:
                tries += 1
                if error.verdict is not Verdict.TRANSIENT or tries > settings.transient_retries:
                    raise
                wait = backoff.exponential(tries, settings.backoff_base_s, settings.backoff_cap_s, random.random())
                await self._account.pause(wait)
            else:
                return answer

    async def _guard(self) -> None:
        """Before each call: go on only if the result will count, and can be written."""
        kit = self._kit
        while not kit.bus.broker.connected.is_set() and not kit.halt.is_set():
            await wait_for_event(kit.bus.broker.connected, 0.2)
        if kit.halt.is_set() or self._job.ended:
            raise Cut("halting" if kit.halt.is_set() else "the job has ended")
        if not self._trusted():
            raise HoldLost("ack-wait passed")

    # --- storing -------------------------------------------------------------------------------------------------

    async def _add(self, value: msgspec.Raw | ItemError) -> None:
        if isinstance(value, ItemError):
            self._errors[str(self._cursor)] = value
            value = _NULL
        size = len(memoryview(value))
        if self._values and self._bytes + size > FLUSH_BYTES:
            await self._flush()
        self._values.append(value)
        self._bytes += size
        self._cursor += 1
        if self._kit.bus.clock.monotonic() - self._flushed_at >= self._kit.settings.flush_s:
            await self._flush()

    async def _flush(self) -> None:
        self._flushed_at = self._kit.bus.clock.monotonic()
        if not self._values:
            return
        span = Span(self._start, self._start + len(self._values))
        result = ChunkResult(
            self._values, self._kit.bus.clock.wall(), self._kit.name, self._account.lease.account, self._errors
        )
        self._start, self._values, self._errors, self._bytes = span.stop, [], {}, 0
        self._writes.append(await self._kit.finisher.start(self._job.uid, self._write(span, result)))

    async def _write(self, span: Span, result: ChunkResult) -> bool:
        """Store results for as long as the chunk is ours; whether they are stored."""
        broker, tries = self._kit.bus.broker, 0
        while self._trusted():
            try:
                await self._kit.bus.results.write(self._job.uid, span, result)
                return True
            except BrokerUnavailable:
                tries += 1
                await self._kit.bus.clock.sleep(backoff.exponential(tries, 0.1, 1.0, random.random()))
            except errors.BrokerRefused as error:
                self._kit.log.error("a result was refused", uid=self._job.uid, span=str(span), cause=str(error))
                await self._kit.bus.clock.sleep(1.0)
            if not broker.connected.is_set():
                await wait_for_event(broker.connected, 0.5)
        return False

    async def _stored(self) -> bool:
        """Wait for all writes; whether everything polled so far is stored."""
        return all([await write for write in self._writes])

    def _trusted(self) -> bool:
        return all(piece.hold.trusted() for piece in self._held)

    async def _finish(self) -> bool:
        """Acknowledge after the writes' own acknowledgement."""
        stored = await self._stored()
        if stored:
            for piece in self._held:
                await piece.hold.delivery.ack()
            self._job.unsettled = self._held[-1].hold.delivery
        self._drop()
        return stored

    # --- ending otherwise ----------------------------------------------------------------------------------------

    async def _interrupted(self, error: CuscutaError) -> None:
        if isinstance(error, Cut) and not self._job.ended:
            await self._hand_back("WorkerHalting", "the worker stops; the rest was handed back", another=False)
            return
        self._drop()  # of an ended job too: whoever ended it removes its messages, and if it has not, they come again

    async def _hand_back(self, kind: str, message: str, *, another: bool) -> None:
        """Store what is done, publish the rest as the next incarnations, acknowledge: in this order."""
        await self._flush()
        if not await self._stored() or not self._trusted() or self._job.ended:
            self._drop()
            return
        for piece in self._held:
            where = pieces.place(piece, self._cursor)
            if where < 0:
                await piece.hold.delivery.ack()
                continue
            attempts = piece.attempts + (1 if another and where == 0 else 0)
            if where == 0:
                self._fail(kind, message, attempts)
                if attempts >= self._kit.settings.max_attempts:
                    await self._give_up(piece, f"{kind}: {message}")
                    continue
            await put_back(self._kit, piece, pieces.rest(piece, self._cursor), attempts)
        self._job.unsettled = self._held[-1].hold.delivery
        self._drop()

    async def _give_up(self, piece: Piece, reason: str) -> None:
        """File what is not stored under CUSCUTA_DEAD, then end the message with the reason."""
        kit, uid, delivery = self._kit, self._job.uid, piece.hold.delivery
        stored = await kit.bus.broker.insist(lambda: kit.bus.results.stored(uid))
        for gap in spans.gaps(piece.name.span, stored):
            dead = DeadChunk(uid, gap, reason, piece.attempts + 1, kit.bus.clock.wall(), kit.name)
            await kit.bus.broker.insist(lambda: kit.bus.bury(dead))  # noqa: B023 - awaited before the loop goes on
        self._fail("GivenUp", reason)
        try:
            await delivery.term(reason[:200])
        except BrokerUnavailable as error:
            kit.log.debug("a term was not heard; the chunk comes again and is given up again", cause=str(error))
        self._job.unsettled = delivery
        kit.holds.drop(piece.hold)

    def _describe(self, error: BaseException) -> str:
        session = self._account.session
        return describe(error, session.password, session.token)

    def _fail(self, kind: str, message: str, attempts: int | None = None) -> None:
        account = self._account.lease.account
        failure = self._kit.failures.make(kind, message, self._span, account, attempts)
        self._kit.failures.note(self._job.uid, failure)

    def _drop(self) -> None:
        for piece in self._held:
            self._kit.holds.drop(piece.hold)
