"""Answers for one job on their way into the store: gathered in order, written in spans, each write awaited once."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from cuscuta import backoff, spans
from cuscuta.broker.results import sliced
from cuscuta.clock import wait_for_event
from cuscuta.errors import BrokerRefused, BrokerUnavailable
from cuscuta.model import ChunkResult, ItemError
from cuscuta.spans import Span
from worker import traced
from worker.kit import Kit

FLUSH_BYTES = 512 << 10  # half of NATS's default max_payload, so that a flush is one message
_NULL = msgspec.Raw(b"null")

Answer = msgspec.Raw | ItemError


Missing = Callable[[Span, list[Span]], Awaitable[list[Span]]]


class Shelf:
    """One job's answers. `trusted` says whether they may still be written, `missing` what of a span is to be stored,
    and `cuts` where a result must begin.

    `shared`: somebody else may be storing items of the same span, so only what is missing is written. So it is from
    the moment on when somebody else turns out to have begun where we go on.
    """

    def __init__(
        self,
        kit: Kit,
        uid: str,
        account: int,
        trusted: Callable[[], bool],
        missing: Missing,
        cuts: Callable[[], Sequence[int]] = tuple,
        *,
        start: int = 0,
        claim: int = 0,
        shared: bool = False,
    ) -> None:
        self._kit, self.uid, self._account, self._trusted, self._shared = kit, uid, account, trusted, shared
        self._missing, self._cuts = missing, cuts
        self._going_on = asyncio.Lock()  # the place where we go on moves with every flush
        self._claims = {start: claim}  # revisions by first item
        self._given: list[Span] = []
        self._met = False  # somebody else has begun where we went on
        self.cursor = self._start = start
        self._values: list[msgspec.Raw] = []
        self._errors: dict[str, ItemError] = {}
        self._bytes = 0
        self._flushed_at = kit.bus.clock.monotonic()
        self._writes: list[asyncio.Task[bool]] = []
        self._alone: set[int] = set()

    async def begin(self, at: int) -> None:
        """The next answer is for this item; whatever was added before has been flushed."""
        async with self._going_on:
            self.cursor = self._start = at

    def alone(self, index: int) -> None:
        """Another seat may store this item as well: ours must be a result of its own, so that the first write wins."""
        self._alone.add(index)

    async def add(self, answer: Answer) -> None:
        """Take the next item's answer."""
        alone = self.cursor in self._alone
        if isinstance(answer, ItemError):
            self._errors[str(self.cursor)] = answer
            answer = _NULL
        size = len(memoryview(answer))
        if self._values and (alone or self._bytes + size > FLUSH_BYTES):
            await self._flush_but(self.cursor)
        self._values.append(answer)
        self._bytes += size
        self.cursor += 1
        if alone or self._kit.bus.clock.monotonic() - self._flushed_at >= self._kit.settings.flush_s:
            await self.flush()

    async def _flush_but(self, index: int) -> None:
        """Flush what came before an item whose error, if it is one, is noted already."""
        error = self._errors.pop(str(index), None)
        await self.flush()
        if error:
            self._errors[str(index)] = error

    async def flush(self) -> None:
        """Send what is gathered on its way."""
        async with self._going_on:
            self._flushed_at = self._kit.bus.clock.monotonic()
            if not self._values:
                return
            span = Span(self._start, self._start + len(self._values))
            result = ChunkResult(self._values, self._kit.bus.clock.wall(), self._kit.name, self._account, self._errors)
            self._start, self._values, self._errors, self._bytes = span.stop, [], {}, 0
            before = self._writes[-1] if self._writes else None
            self._writes.append(await self._kit.finisher.start(self.uid, self._write(span, result, before)))

    @contextlib.asynccontextmanager
    async def giving(self, parts: Sequence[Span]) -> AsyncIterator[dict[int, int]]:
        """Nothing is flushed inside. Our claim by the place where we go on; none if somebody else has begun there.

        With it, everybody who begins there will notice what we give away. Only then may others be let in behind that
        place: else a third, who knows of neither us nor them, could store all of it as one.
        """
        async with self._going_on:
            if await self.stored() and not self._met:
                at, self._given = self._start, [*self._given, *parts]
                try:
                    revision = await self._kit.bus.results.claim(self.uid, at, self._given, self._claims.get(at, 0))
                except (BrokerUnavailable, BrokerRefused):
                    revision = 0  # or only the answer was lost; in both cases nothing is given any more
                self._claims[at], self._met = revision, not revision
            yield {} if self._met else {self._start: self._claims[self._start]}

    async def _write(self, span: Span, result: ChunkResult, before: asyncio.Task[bool] | None) -> bool:
        """Store results, after those before them, for as long as they are ours to store; whether they are stored."""
        if before:
            await before  # what is learnt of others there counts here
        with traced.write(self.uid, span):
            return await self._insist(span, result)

    async def _insist(self, span: Span, result: ChunkResult) -> bool:
        broker, tries = self._kit.bus.broker, 0
        while self._trusted():
            try:
                for part in spans.cut(span, self._cuts()):
                    await self._store(part, sliced(result, span, part))
                return True
            except BrokerUnavailable:
                tries += 1
                await self._kit.bus.clock.sleep(backoff.exponential(tries, 0.1, 1.0, random.random()))
            except BrokerRefused as error:
                self._kit.log.error("a result was refused", uid=self.uid, span=str(span), cause=str(error))
                await self._kit.bus.clock.sleep(1.0)
            if not broker.connected.is_set():
                await wait_for_event(broker.connected, 0.5)
        return False

    async def _store(self, span: Span, result: ChunkResult) -> None:
        results = self._kit.bus.results
        if not (self._met or self._shared):
            self._met = not await results.write(self.uid, span, result, self._claims.get(span.start, 0))
            if not self._met:
                traced.stored(result)
        if self._met or self._shared:
            for part in await results.fill(self.uid, span, result, self._lacks):
                traced.stored(part)

    async def _lacks(self, span: Span, given: list[Span]) -> list[Span]:
        if not self._trusted():
            raise BrokerUnavailable("these results are not ours to store any more")
        return await self._missing(span, given)

    async def stored(self) -> bool:
        """Wait for all writes; whether everything that was flushed is stored."""
        return all([await write for write in self._writes])
