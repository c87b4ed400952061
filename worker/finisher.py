"""Writes and acknowledgements on their way: a seat goes on with its next chunk while the last one is being finished."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from cuscuta import limits
from cuscuta.errors import CuscutaError


class Finisher:
    """Runs the ends of chunks in the service's task group, at most WRITES_IN_FLIGHT at a time."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._room = asyncio.Semaphore(limits.WRITES_IN_FLIGHT)
        self._running: Counter[str] = Counter()
        self._moved = asyncio.Event()
        self._tasks: set[asyncio.Task[bool]] = set()

    async def start(self, uid: str, work: Coroutine[Any, Any, bool]) -> asyncio.Task[bool]:
        """Start work for a job, waiting for room; the task says whether it succeeded and never raises."""
        try:
            await self._room.acquire()
        except BaseException:
            work.close()
            raise
        return self._launch(uid, work, bounded=True)

    def soon(self, uid: str, work: Coroutine[Any, Any, None]) -> None:
        """Start something small that nobody waits for; not bounded by room, but awaited by `drained`."""

        async def quiet() -> bool:
            try:
                await work
            except CuscutaError:
                return False  # a message that is left alone comes again after ack-wait
            return True

        self._launch(uid, quiet(), bounded=False)

    def _launch(self, uid: str, work: Coroutine[Any, Any, bool], *, bounded: bool) -> asyncio.Task[bool]:
        self._running[uid] += 1
        run = self._run(uid, work, bounded)
        try:
            task = self._group.create_task(run)
        except RuntimeError:  # the process is being torn down
            run.close()
            work.close()
            raise
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Give up what is on its way."""
        for task in self._tasks:
            task.cancel()

    async def _run(self, uid: str, work: Coroutine[Any, Any, bool], bounded: bool) -> bool:
        try:
            return await work
        finally:
            if bounded:
                self._room.release()
            self._running[uid] -= 1
            if not self._running[uid]:
                del self._running[uid]
                event, self._moved = self._moved, asyncio.Event()
                event.set()

    async def drained(self, uid: str | None = None) -> None:
        """Wait until nothing of a job (or nothing at all) is on its way."""
        while self._running[uid] if uid is not None else self._running:
            await self._moved.wait()
