"""What every seat of a process works with."""

import asyncio
from dataclasses import dataclass

from cuscuta.broker import Bus
from cuscuta.logs import Logger
from cuscuta.settings import Settings
from worker.failures import Failures
from worker.finisher import Finisher
from worker.holds import Holds
from worker.jobs import Jobs
from worker.leaser import Leaser
from worker.tail import Tail
from worker.upstream.protocol import Upstream


@dataclass(frozen=True)
class Kit:
    """Wiring, made once in `run`."""

    name: str
    settings: Settings
    bus: Bus
    log: Logger
    upstream: Upstream
    leaser: Leaser
    jobs: Jobs
    holds: Holds
    failures: Failures
    finisher: Finisher
    tail: Tail
    halt: asyncio.Event

    @property
    def shared(self) -> bool:
        """Whether one poll can answer for several jobs."""
        return self.upstream.capacity.targets_per_poll > 1
