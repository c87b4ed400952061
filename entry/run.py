"""The entry's composition root. Stop order: jobs being admitted or made by a schedule and webhooks on their way are
finished, then the rest ends, the server takes no more requests and finishes those under way, then connections close."""

import asyncio
import sys

from cuscuta import health, service, subjects
from cuscuta.broker import Bus
from cuscuta.broker.adoption import adopt
from cuscuta.broker.assets import Misconfigured, ensure
from cuscuta.broker.feed import Feed
from cuscuta.broker.projection import Projection
from cuscuta.codec import RecordError, decode
from cuscuta.db import Accounts, Database, Tokens, Vault
from cuscuta.db.vault import VaultError
from cuscuta.model import Announcement
from cuscuta.service import Process
from cuscuta.settings import Settings
from entry import app
from entry.admission import Admission
from entry.context import Context
from entry.firing import Firing
from entry.fleet import Fleet
from entry.gate import Gate
from entry.handover import Handover
from entry.history import History
from entry.measures import measure_for_ever
from entry.progress import ProgressCache
from entry.shared import Shared
from entry.upkeep import keep_streams
from entry.waits import Waits
from entry.webhooks import Webhooks

DRAIN_S = 5  # requests under way at a stop get this long


async def enter(process: Process) -> None:
    """Run an entry replica until it is told to stop."""
    settings, clock, log = process.settings, process.clock, process.log
    try:
        vault = Vault(settings.secret_keys)
    except VaultError as error:
        print(f"entry: {error}", file=sys.stderr)
        sys.exit(2)
    state = health.Health(clock)
    bus = Bus(settings, clock, log, f"cuscuta.entry {process.name}")
    database = Database(settings, clock, log)
    projection = Projection(bus.tag_bucket, clock, log, settings.retention_s)
    admission = Admission(bus, settings, log, projection)
    accounts, gate = Accounts(database, vault), Gate(Tokens(database), clock, insecure=settings.insecure)
    waits, feed, progress, history = Waits(bus), Feed(bus.broker, log), ProgressCache(bus), History()
    projection.on_end = history.ended
    context = Context(
        settings, clock, bus, database, accounts, vault, gate, projection, state, admission, waits, feed, progress,
        history, Fleet(settings.fleet, clock), Shared(clock, 0.9, 1_000),
    )  # fmt: skip
    options = {"timeout_graceful_shutdown": DRAIN_S}
    if settings.insecure:
        print("entry: insecure is set: whoever is on this box may do anything", file=sys.stderr)  # at any log level
    host, port = settings.entry_host, settings.entry_port
    async with health.serving(app.make(context), settings, host, port, **options) as drain:
        try:
            if await service.unless_halted(process, state.beating(_start(bus, database))):
                await _run(process, context)
        except Misconfigured as error:
            print(f"entry: {error}", file=sys.stderr)
            sys.exit(2)
        finally:
            await drain()
            await database.close()
            await bus.broker.close()


async def _start(bus: Bus, database: Database) -> None:
    await bus.broker.connect()
    await ensure(bus.broker, bus.settings)
    if adopted := await bus.broker.insist(lambda: adopt(bus)):
        bus.log.info("jobs accepted before are sealed now", jobs=adopted)
    await database.connect()
    if done := await database.insist(database.migrate):
        bus.log.info("migrated", migrations=done)


async def _run(process: Process, context: Context) -> None:
    bus, projection, admission, state = context.bus, context.projection, context.admission, context.health

    async def on_announcement(msg: object) -> None:
        try:
            hint = decode(getattr(msg, "data", b""), Announcement)
        except RecordError:
            return
        if hint.kind in ("submitted", "active", "ended"):
            projection.hint()
        admission.heard(hint)
        if hint.kind == "ended":
            context.waits.ended(hint.uid)
        if hint.kind == "follow":
            handover.heard(hint.uid)

    handover = Handover(bus)
    async with asyncio.TaskGroup() as group:
        end = await bus.broker.subscribe(subjects.ANNOUNCE, on_announcement)
        admitting = group.create_task(admission.run(group.create_task))
        hooks = [Webhooks(bus, process.settings, process.log, kind) for kind in _hooks(process.settings)]
        firing = Firing(context)
        ending = [group.create_task(firing.run()), *(group.create_task(h.run(group.create_task)) for h in hooks)]
        tasks = [
            group.create_task(projection.follow()),
            group.create_task(context.feed.follow()),
            group.create_task(keep_streams(bus)),
            group.create_task(handover.run()),
            group.create_task(state.watch({"nats": bus.ping, "postgres": context.database.ping})),
        ]
        if await service.unless_halted(process, _caught_up(context)):
            state.good("start")
            process.log.info("ready", host=process.settings.entry_host, jobs=len(projection))
            tasks.append(group.create_task(measure_for_ever(context)))
            await process.halt.wait()
        await end()
        for halt in (admission.halt, firing.halt, *(hook.halt for hook in hooks)):
            halt()
        context.feed.close()
        await asyncio.wait({admitting, *ending}, timeout=DRAIN_S)
        for task in [admitting, *ending, *tasks]:
            task.cancel()


def _hooks(settings: Settings) -> list[str]:
    """The kinds of destinations that webhooks go to."""
    return [*(["job"] if settings.webhook_secrets else []), *(["deployment"] if settings.webhook_url else [])]


async def _caught_up(context: Context) -> None:
    await context.projection.caught_up.wait()
    await context.feed.begun.wait()


def main() -> None:
    """The `cuscuta-entry` command."""
    service.run("entry", enter, needs=("postgres_url", "secret_keys"))


if __name__ == "__main__":
    main()
