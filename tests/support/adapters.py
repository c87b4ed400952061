"""Adapters that misbehave, for workers of tests: the first three items are fine."""

import asyncio
import math
import os
import signal
from typing import Any

from cuscuta.model import Item
from worker.upstream import Capacity, Session, Target, Upstream


class _FirstThree(Upstream):
    capacity = Capacity(rate_per_s=math.inf)

    async def poll(self, session: Session, target: Target, item: Item) -> Any:
        if int(item.id.rpartition("-")[2]) < 3:
            return item.id
        return await self.misbehave(session)

    async def misbehave(self, session: Session) -> Any:
        raise AssertionError("a subclass does it")


class Raises(_FirstThree):
    async def misbehave(self, session: Session) -> Any:
        raise KeyError(f"no such key {session.password}")


class Unserialisable(_FirstThree):
    async def misbehave(self, session: Session) -> Any:
        return object()


class Hangs(_FirstThree):
    async def misbehave(self, session: Session) -> Any:
        await asyncio.Event().wait()


class Cancels(_FirstThree):
    async def misbehave(self, session: Session) -> Any:
        raise asyncio.CancelledError


class Kills(_FirstThree):
    async def misbehave(self, session: Session) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)
