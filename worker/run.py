"""The worker's composition root: wiring, task groups, and the order of stopping.

Stop order: no new pull; seats finish the item in hand, hand back the rest and return their accounts; the heartbeat is
taken down; writes on their way are awaited and finished jobs settled; background tasks end; connections close. Seats
get two thirds of `halt_grace_s`, the writes a third.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from cuscuta import health, service
from cuscuta.broker import Bus
from cuscuta.broker.assets import await_ready
from cuscuta.db import Database, Leases, Vault
from cuscuta.db.vault import VaultError
from cuscuta.errors import CuscutaError
from cuscuta.service import Process
from worker.ending import settle_if_done
from worker.failures import Failures
from worker.finisher import Finisher
from worker.holds import Holds
from worker.jobs import Jobs
from worker.kit import Kit
from worker.leaser import Leaser
from worker.presence import Heartbeat
from worker.reach import Reach
from worker.seat import Seat
from worker.tail import Tail
from worker.upstream.loader import AdapterError, load
from worker.upstream.protocol import Upstream
from worker.upstream.schema import AdapterFileError


async def work(process: Process) -> None:
    """Run a worker until it is told to stop."""
    settings, clock, log = process.settings, process.clock, process.log
    try:
        upstream, vault = load(settings.upstream, settings.upstream_url), Vault(settings.secret_keys)
    except (AdapterError, AdapterFileError, VaultError) as error:
        for line in str(error).splitlines():
            print(f"worker: {line}", file=sys.stderr)
        sys.exit(2)
    state = health.Health(clock)
    bus = Bus(settings, clock, log, f"cuscuta.worker {process.name}")
    database = Database(settings, clock, log)
    leases = Leases(database, vault, settings, clock)
    async with health.serving(health.app(state), settings, settings.health_host, settings.health_port):
        try:
            if await service.unless_halted(process, state.beating(_start(bus, database, upstream))):
                state.good("start")
                log.info("ready", upstream=upstream.name, seats=settings.seats)
                await _run(process, bus, database, leases, upstream, state)
        finally:
            await upstream.close()
            await database.close()
            await bus.broker.close()


async def _start(bus: Bus, database: Database, upstream: Upstream) -> None:
    await upstream.open()
    await bus.broker.connect()
    await database.connect()
    await await_ready(bus.broker, bus.log)
    await database.await_schema()


async def _run(
    process: Process, bus: Bus, database: Database, leases: Leases, upstream: Upstream, state: health.Health
) -> None:
    settings, clock = process.settings, process.clock
    async with asyncio.TaskGroup() as background, asyncio.TaskGroup() as finishing:
        jobs = Jobs(bus)
        kit = Kit(
            name=process.name,
            settings=settings,
            bus=bus,
            log=process.log,
            upstream=upstream,
            leaser=Leaser(leases, process.name, settings.lease_term_s, clock, process.log),
            jobs=jobs,
            holds=Holds(clock, settings.ack_wait_s),
            failures=Failures(bus, process.name),
            finisher=Finisher(finishing),
            tail=Tail(bus, jobs, settings, upstream.capacity.repeatable),
            halt=process.halt,
        )
        seats = [Seat(kit, index) for index in range(settings.seats)]
        reach = Reach(upstream, clock)
        heartbeat = Heartbeat(process, bus, seats, state, reach)
        kit.jobs.on_end = _Ending(seats)
        kit.jobs.on_idle = kit.tail.hint
        duties = (
            kit.leaser.hand_out,
            kit.leaser.renew,
            kit.jobs.follow,
            kit.holds.tick,
            kit.tail.watch,
            kit.failures.flush_for_ever,
            partial(state.watch, {"nats": bus.ping, "postgres": database.ping}),
            heartbeat.beat,
            reach.watch,
        )
        tasks = [background.create_task(_tireless(kit, duty)) for duty in duties]
        try:
            async with asyncio.TaskGroup() as working:
                running = [working.create_task(seat.run()) for seat in seats]
                working.create_task(_watch_seats(process, running))
                await process.halt.wait()
                kit.jobs.poke()
                for seat in seats:
                    seat.halting()
                await asyncio.wait(running, timeout=settings.halt_grace_s * 2 / 3)
                for task in running:
                    task.cancel()
        finally:
            await asyncio.shield(_wind_up(kit, heartbeat, settings.halt_grace_s / 3))
            for task in tasks:
                task.cancel()


async def _tireless(kit: Kit, duty: Callable[[], Awaitable[None]]) -> None:
    """A background duty, begun again when JetStream refuses something or a record is not ours."""
    while not kit.halt.is_set():
        try:
            await duty()
        except CuscutaError as error:
            kit.log.error("a duty failed; it goes on", cause=str(error))
            await kit.bus.clock.sleep(1.0)


async def _watch_seats(process: Process, seats: list[asyncio.Task[None]]) -> None:
    """A seat that ends before the process halts is a fault of ours: end the process, so that it is started anew."""
    halting = asyncio.ensure_future(process.halt.wait())
    try:
        await asyncio.wait({halting, *seats}, return_when=asyncio.FIRST_COMPLETED)
        if not process.halt.is_set():
            raise RuntimeError("a seat ended by itself")
    finally:
        halting.cancel()


class _Ending:
    """Tells all seats that a job has ended."""

    def __init__(self, seats: list[Seat]) -> None:
        self._seats = seats

    def __call__(self, uid: str) -> None:
        for seat in self._seats:
            seat.ended(uid)


async def _wind_up(kit: Kit, heartbeat: Heartbeat, grace_s: float) -> None:
    """What the seats left on its way is awaited; jobs that they may have finished are settled."""
    try:
        async with asyncio.timeout(grace_s):
            await heartbeat.leave()
            await kit.finisher.drained()
            for job in kit.jobs.in_order():
                await settle_if_done(kit, job)
            await kit.failures.flush()
    except TimeoutError:
        kit.log.warning("not everything could be written before the end; it will be done again elsewhere")
        kit.finisher.cancel()


def main() -> None:
    """The `cuscuta-worker` command."""
    service.run("worker", work, needs=("postgres_url", "secret_keys", "upstream"))


if __name__ == "__main__":
    main()
