"""The skeleton of every duty: when it runs, for how long at most, and what it says afterwards."""

import asyncio
import random
from dataclasses import dataclass
from typing import Protocol

from cuscuta import instruments
from cuscuta.broker import Bus
from cuscuta.broker.projection import Projection
from cuscuta.clock import Clock
from cuscuta.db import Leases
from cuscuta.errors import BrokerUnavailable, DatabaseUnavailable
from cuscuta.health import Health
from cuscuta.logs import Logger
from cuscuta.settings import Settings

DEADLINE_S = 30.0  # one round of a duty; what it did not reach is left for the next one
_SHARE = 0.1  # of the time that a duty may take: a backlog of 100,000 jobs takes seconds to look through
_PAUSE_MOST_S = 60.0


@dataclass(frozen=True)
class Scene:
    """What duties work on."""

    settings: Settings
    clock: Clock
    log: Logger
    bus: Bus
    leases: Leases
    projection: Projection


class Duty(Protocol):
    """One thing that the reaper does, over and over. Idempotent and bounded."""

    name: str

    async def round(self, scene: Scene) -> int:
        """Look once and mend; how many things were mended."""
        ...


class Patience:
    """Since when something looks wrong. It counts only once it has looked so for long enough."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._since: dict[str, float] = {}

    def over(self, suspects: set[str]) -> set[str]:
        """Of what looks wrong now, what has looked wrong for long enough; whatever looks right again is forgotten."""
        now = self._clock.monotonic()
        self._since = {key: self._since.get(key, now) for key in suspects}
        return {key for key, since in self._since.items() if now - since >= self._seconds}


async def run(duty: Duty, scene: Scene, health: Health) -> None:
    """A duty for ever, every `reap_s` with jitter, and more rarely if a round takes long."""
    while True:
        began, took_s = scene.clock.monotonic(), 0.0
        try:
            async with asyncio.timeout(DEADLINE_S):
                mended = await duty.round(scene)
            instruments.ROUND.record(scene.clock.monotonic() - began, {"cuscuta.duty": duty.name})
            if mended:
                instruments.MENDED.add(mended, {"cuscuta.duty": duty.name})
                scene.log.info("mended", duty=duty.name, count=mended)
            health.good(duty.name)
            took_s = scene.clock.monotonic() - began  # of a round that failed it says nothing: the next one is due
        except TimeoutError:
            took_s = DEADLINE_S
            scene.log.warning("a duty did not end in time", duty=duty.name)
        except (BrokerUnavailable, DatabaseUnavailable) as error:
            health.bad(duty.name, str(error))
            scene.log.debug("a duty waits", duty=duty.name, cause=str(error))
        except Exception as error:  # noqa: BLE001 - refused, or a record that is not ours: the other duties go on
            scene.log.warning("a duty met something that it does not understand", duty=duty.name, cause=str(error))
        health.beat()
        pause_s = pause(took_s, scene.settings.reap_s)
        await scene.clock.sleep(pause_s * (0.9 + 0.2 * random.random()))


def pause(took_s: float, every_s: float) -> float:
    """Seconds until the next round of a duty whose last one took so long."""
    return max(every_s, min(_PAUSE_MOST_S, took_s / _SHARE))
