"""What can happen to a process, its connections and its servers. Each strike lets the trip go and returns when over."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

from tests.faults.moments import Moment
from tests.faults.stage import Stage, lasts
from tests.support.proxy import Proxy, Trip

FROZEN_S = 7.0  # past ack-wait (3 s) and lease (6 s) of tests/support/quick.py
SLOW_S = 6.0


async def kill(stage: Stage, moment: Moment, trip: Trip) -> None:
    stage.parts[moment.part].kill()
    trip.go.set()


async def term(stage: Stage, moment: Moment, trip: Trip) -> None:
    proc = stage.parts[moment.part]
    proc.send(signal.SIGTERM)
    trip.go.set()
    code = await asyncio.to_thread(proc.popen.wait, 20)
    at_once = 130  # what a second SIGTERM means; at the moment of a release the first one was given
    assert code == 0 or (code == at_once and moment.name == "release"), f"{moment.part}: {code}\n{proc.text()[-2000:]}"


async def freeze(stage: Stage, moment: Moment, trip: Trip) -> None:
    proc = stage.parts[moment.part]
    proc.send(signal.SIGSTOP)
    trip.go.set()
    await lasts(FROZEN_S)
    proc.send(signal.SIGCONT)


async def cut(stage: Stage, moment: Moment, trip: Trip) -> None:
    _proxy(stage, moment).cut()
    trip.go.set()


async def stall(stage: Stage, moment: Moment, trip: Trip) -> None:
    """For good, without a word: whoever is at the other end must notice by himself."""
    _proxy(stage, moment).stall()
    trip.go.set()


async def slow(stage: Stage, moment: Moment, trip: Trip) -> None:
    proxy = _proxy(stage, moment)
    proxy.delay_s = 2.0
    trip.go.set()
    await lasts(SLOW_S)
    proxy.delay_s = 0.0


async def nats_restart(stage: Stage, moment: Moment, trip: Trip) -> None:
    stage.h.nats.kill()
    trip.go.set()
    await asyncio.to_thread(stage.h.nats.start)


async def postgres_restart(stage: Stage, moment: Moment, trip: Trip) -> None:
    stage.h.postgres.kill()
    trip.go.set()
    await asyncio.to_thread(stage.h.postgres.start)


async def backends(stage: Stage, moment: Moment, trip: Trip) -> None:
    every = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()"
    await stage.h.sql(every, stage.h.database)
    trip.go.set()


Strike = Callable[[Stage, Moment, Trip], Awaitable[None]]
STRIKES: dict[str, Strike] = {
    "kill -9": kill,
    "SIGTERM": term,
    "SIGSTOP 7 s": freeze,
    "connection cut": cut,
    "connection stalled": stall,
    "2 s slow": slow,
    "NATS killed": nats_restart,
    "PostgreSQL killed": postgres_restart,
    "backends terminated": backends,
}


def _proxy(stage: Stage, moment: Moment) -> Proxy:
    return stage.proxies[moment.part, moment.server]
