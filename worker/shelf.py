"""Answers for one job on their way into the store: gathered in order, written in spans, each write awaited once."""

import asyncio
import random
from collections.abc import Callable

import msgspec

from cuscuta import backoff
from cuscuta.clock import wait_for_event
from cuscuta.errors import BrokerRefused, BrokerUnavailable
from cuscuta.model import ChunkResult, ItemError
from cuscuta.spans import Span
from worker.kit import Kit

FLUSH_BYTES = 512 << 10  # half of NATS's default max_payload, so that a flush is one message
_NULL = msgspec.Raw(b"null")

Answer = msgspec.Raw | ItemError


class Shelf:
    """One job's answers. `trusted` says whether they may still be written.

    `shared`: somebody else may be storing items of the same span, so only what is not there yet is written.
    """

    def __init__(self, kit: Kit, uid: str, account: int, trusted: Callable[[], bool], *, shared: bool = False) -> None:
        self._kit, self.uid, self._account, self._trusted, self._shared = kit, uid, account, trusted, shared
        self.cursor = self._start = 0
        self._values: list[msgspec.Raw] = []
        self._errors: dict[str, ItemError] = {}
        self._bytes = 0
        self._flushed_at = kit.bus.clock.monotonic()
        self._writes: list[asyncio.Task[bool]] = []
        self._alone: set[int] = set()

    def begin(self, at: int) -> None:
        """The next answer is for this item; whatever was added before has been flushed."""
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
        self._flushed_at = self._kit.bus.clock.monotonic()
        if not self._values:
            return
        span = Span(self._start, self._start + len(self._values))
        result = ChunkResult(self._values, self._kit.bus.clock.wall(), self._kit.name, self._account, self._errors)
        self._start, self._values, self._errors, self._bytes = span.stop, [], {}, 0
        self._writes.append(await self._kit.finisher.start(self.uid, self._write(span, result)))

    async def _write(self, span: Span, result: ChunkResult) -> bool:
        """Store results for as long as they are ours to store; whether they are stored."""
        broker, results, tries = self._kit.bus.broker, self._kit.bus.results, 0
        while self._trusted():
            try:
                await (results.fill if self._shared else results.write)(self.uid, span, result)
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

    async def stored(self) -> bool:
        """Wait for all writes; whether everything that was flushed is stored."""
        return all([await write for write in self._writes])
