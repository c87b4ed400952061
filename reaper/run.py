"""The reaper's composition root: one active replica, by an advisory lock that dies with its connection."""

import asyncio
import sys

from cuscuta import health, instruments, service
from cuscuta.broker import Bus
from cuscuta.broker.assets import await_ready
from cuscuta.broker.projection import Projection
from cuscuta.clock import wait_for_event
from cuscuta.db import Database, Leases, Vault
from cuscuta.db.database import REAPER_LOCK
from cuscuta.db.vault import VaultError
from cuscuta.errors import DatabaseUnavailable
from cuscuta.service import Process
from reaper import duty
from reaper.catalogues import UnusedCatalogues
from reaper.deadlines import Deadlines
from reaper.duty import Duty, Patience, Scene
from reaper.leases import ExpiredLeases
from reaper.leftovers import Leftovers
from reaper.retention import Retention
from reaper.running import LostRunning
from reaper.schedules import LostSchedules
from reaper.waiting import LostWaiting

TAKE_OVER_S = 2.0  # how often a standby tries, and the active one checks that it still is: fail-over within 5 s


async def reap(process: Process) -> None:
    """Run a reaper replica until it is told to stop."""
    settings, clock, log = process.settings, process.clock, process.log
    try:
        vault = Vault(settings.secret_keys)
    except VaultError as error:
        print(f"reaper: {error}", file=sys.stderr)
        sys.exit(2)
    state = health.Health(clock)
    bus = Bus(settings, clock, log, f"cuscuta.reaper {process.name}")
    database = Database(settings, clock, log)
    leases = Leases(database, vault, settings, clock)
    async with health.serving(health.app(state), settings, settings.health_host, settings.health_port):
        try:
            if await service.unless_halted(process, state.beating(_start(bus, database))):
                state.good("start")
                log.info("ready")
                pings = {"nats": bus.ping, "postgres": database.ping}
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(state.watch(pings))
                    await service.unless_halted(process, _take_turns(process, bus, database, leases, state))
                    watching.cancel()
        finally:
            await database.close()
            await bus.broker.close()


async def _start(bus: Bus, database: Database) -> None:
    await bus.broker.connect()
    await database.connect()
    await await_ready(bus.broker, bus.log)
    await database.await_schema()


async def _take_turns(process: Process, bus: Bus, database: Database, leases: Leases, state: health.Health) -> None:
    """Be the active one whenever the lock is free."""
    instruments.ACTIVE.set(0)
    while True:
        state.beat()
        try:
            async with database.exclusive(REAPER_LOCK) as check:
                state.good("lock")
                if check:
                    process.log.info("active")
                    instruments.ACTIVE.set(1)
                    async with asyncio.TaskGroup() as group:
                        tasks = _duties(group, process, bus, leases, state)
                        try:
                            while True:
                                await wait_for_event(process.halt, TAKE_OVER_S)
                                await check()
                        finally:
                            for task in tasks:
                                task.cancel()
        except* DatabaseUnavailable as errors:
            instruments.ACTIVE.set(0)
            cause = str(errors.exceptions[0])
            state.bad("lock", cause)
            process.log.warning("the lock is lost or cannot be asked for", cause=cause)
        if await wait_for_event(process.halt, TAKE_OVER_S):
            return


def _duties(
    group: asyncio.TaskGroup, process: Process, bus: Bus, leases: Leases, state: health.Health
) -> list[asyncio.Task[None]]:
    settings, clock = process.settings, process.clock

    def patience() -> Patience:
        return Patience(clock, settings.mend_after_s)

    def longer() -> Patience:
        return Patience(clock, settings.ack_wait_s + settings.mend_after_s)

    projection = Projection(bus.tag_bucket, clock, process.log, settings.retention_s)
    scene = Scene(settings, clock, process.log, bus, leases, projection)
    duties: list[Duty] = [
        ExpiredLeases(),
        LostWaiting(patience()),
        LostRunning(patience(), longer(), longer()),
        Leftovers(patience()),
        Retention(patience()),
        Deadlines(),
        LostSchedules(patience()),
        # Much longer than a submit takes from reading a name to writing the tag.
        UnusedCatalogues(Patience(clock, settings.mend_after_s * 12)),
    ]

    async def when_caught_up(one: Duty) -> None:
        await projection.caught_up.wait()
        await duty.run(one, scene, state)

    return [group.create_task(projection.follow()), *(group.create_task(when_caught_up(one)) for one in duties)]


def main() -> None:
    """The `cuscuta-reaper` command."""
    service.run("reaper", reap, needs=("postgres_url", "secret_keys"))


if __name__ == "__main__":
    main()
