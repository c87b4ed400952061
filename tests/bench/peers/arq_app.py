"""arq with Redis; one job at a time in a process, its own poll delay as it comes."""

import os
from typing import Any, ClassVar

from arq.connections import RedisSettings

from tests.bench.peers.work import Poller


async def poll(context: dict[str, Any], target: str, items: list[str]) -> list[Any]:
    """One task."""
    values: list[Any] = await context["poller"].poll(target, items)
    return values


async def startup(context: dict[str, Any]) -> None:
    """Log in."""
    context["poller"] = Poller()


class WorkerSettings:
    """What `arq` reads."""

    functions: ClassVar = [poll]
    on_startup = startup
    max_jobs = 1
    redis_settings = RedisSettings.from_dsn(os.environ.get("PEER_REDIS", "redis://127.0.0.1"))
