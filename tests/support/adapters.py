"""Adapters that misbehave, for workers of tests: the first three items are fine."""

import asyncio
import math
import os
import signal
from collections.abc import Sequence
from typing import Any

from cuscuta import errors
from cuscuta.model import Item
from worker.upstream import Capacity, Session, Target, Upstream

TOKEN_CANARY = "canary-token-Zx9"


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


class Tells(_FirstThree):
    """Says in every error what it should keep to itself; one poll answers for several targets."""

    capacity = Capacity(rate_per_s=math.inf, follow_slots=4, targets_per_poll=4)
    needs_login = True

    async def log_in(self, session: Session) -> None:
        session.token = TOKEN_CANARY
        if session.email.startswith("wrong"):
            raise errors.AuthenticationFailed(f"{session.password} is not the password of {session.email}")

    async def poll_shared(self, session: Session, targets: Sequence[Target], item: Item) -> Sequence[Any]:
        n = int(item.id.rpartition("-")[2])
        said = f"{session.password} {session.token} {item.id}"
        if n == 5:
            return [errors.ItemNotFound(said) for _ in targets]
        if n == 7 and not session.state.setdefault("tried", set()) & {n}:
            session.state["tried"].add(n)
            raise errors.UpstreamUnavailable(said)
        if n == 9:
            raise KeyError(said)
        if n == 11:
            return [errors.TargetNotFound(said) if target.name == "nobody" else n for target in targets]
        return [n for _ in targets]
