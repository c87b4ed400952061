"""A TCP proxy in front of one server, for one process: cuts, stalls and slows, and stops the world at a message."""

import asyncio
import contextlib
import re
from typing import Self

_READ_BYTES = 1 << 20
_ANSWER_S = 0.5  # a message without an answer is done after this


class Trip:
    """Fires at the n-th message that matches, before the server has it, or after it was done but not yet answered.

    `skip`: so many messages later on the same connection, as for a statement that is prepared, then executed.

    Until `go`, nothing more passes on that connection: what is done to the process or the server meanwhile is done in
    exactly that gap.
    """

    def __init__(self, pattern: bytes, side: str, nth: int = 1, skip: int = 0) -> None:
        self.pattern, self.side, self.left, self.skip = re.compile(pattern), side, nth, skip
        self.hit, self.go = asyncio.Event(), asyncio.Event()

    def at(self, data: bytes) -> int | None:
        """Where the message begins that it fires at; None if it is not in the data."""
        for match in self.pattern.finditer(data):
            self.left -= 1
            if self.left == 0:
                return match.start()
        return None


class _Pair:
    """One client's connection and its own to the server."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        self.answers, self.answered = asyncio.Event(), asyncio.Event()
        self.answers.set()
        self.stalled, self.over = False, asyncio.Event()
        self.due: Trip | None = None  # has matched on this connection, and is yet to fire

    def abort(self) -> None:
        self.over.set()
        for writer in (self.client, self.server):
            writer.transport.abort()


class Proxy:
    """Listens on a free port and passes everything on to another one, until told otherwise."""

    def __init__(self, port: int) -> None:
        self.target, self.port = port, 0
        self.delay_s = self.bytes_per_s = 0.0  # of every piece that passes; 0 bytes a second are no limit
        self.trip: Trip | None = None
        self._halted: Trip | None = None
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_READ_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.resume()
        self.cut()
        if self._halted:
            self._halted.go.set()
        await asyncio.gather(*self._tasks)

    def arm(self, trip: Trip) -> Trip:
        """Wait for a message."""
        self.trip = trip
        return trip

    def cut(self) -> None:
        """Reset every connection; new ones are taken."""
        for pair in list(self._pairs):
            pair.abort()

    def stall(self) -> None:
        """Nothing passes any more on the connections that stand, and nobody is told; new ones work."""
        for pair in self._pairs:
            pair.stalled = True

    def pause(self) -> None:
        """Nothing passes on any connection, new ones included, until `resume`."""
        self._flows.clear()

    def resume(self) -> None:
        self._flows.set()

    @property
    def connections(self) -> int:
        return len(self._pairs)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            try:
                from_server, to_server = await asyncio.open_connection("127.0.0.1", self.target, limit=_READ_BYTES)
            except OSError:
                return
            pair = _Pair(writer, to_server)
            self._pairs.add(pair)
            try:
                ways = [
                    asyncio.ensure_future(self._upwards(pair, reader)),
                    asyncio.ensure_future(self._downwards(pair, from_server)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
            finally:
                self._pairs.discard(pair)
                to_server.close()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _upwards(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                await self._may_pass(pair, len(data))
                trip, start = self._fires(pair, data)
                if trip is not None:
                    data = await self._halt_at(pair, trip, data, start)
                pair.server.write(data)
                await pair.server.drain()

    def _fires(self, pair: _Pair, data: bytes) -> tuple[Trip | None, int]:
        """What fires at these data, and where."""
        trip, start = pair.due, 0
        if trip is None and self.trip is not None and (found := self.trip.at(data)) is not None:
            trip, start, self.trip = self.trip, found, None
        elif trip is not None:
            trip.skip -= 1
        pair.due = trip if trip and trip.skip else None
        return (None if pair.due else trip), start

    async def _halt_at(self, pair: _Pair, trip: Trip, data: bytes, start: int) -> bytes:
        """Stop at a message; what of the data is still to be passed on."""
        if trip.side == "before":
            pair.server.write(data[:start])
            rest = data[start:]
        else:
            pair.answers.clear()
            pair.answered.clear()
            pair.server.write(data)
            rest = b""
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    await pair.answered.wait()
        self._halted = trip
        trip.hit.set()
        await trip.go.wait()
        pair.answers.set()
        await self._may_pass(pair)
        return rest

    async def _downwards(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                pair.answered.set()
                await pair.answers.wait()
                await self._may_pass(pair, len(data))
                pair.client.write(data)
                await pair.client.drain()

    async def _may_pass(self, pair: _Pair, size: int = 0) -> None:
        if self.delay_s or self.bytes_per_s:
            # The fault itself, not a wait for anything: a slow link.
            await asyncio.sleep(self.delay_s + (size / self.bytes_per_s if self.bytes_per_s else 0.0))
        if pair.stalled:
            await pair.over.wait()
            raise ConnectionAbortedError
        await self._flows.wait()
