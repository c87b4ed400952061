"""What an operator should know of a deployment before he trusts it: found, why it matters, what to do."""

from typing import Literal

from msgspec import Struct

from cuscuta import __version__
from cuscuta.broker.assets import differing, missing, streams
from cuscuta.db.database import REAPER_LOCK, migrations
from cuscuta.errors import BrokerRefused, BrokerUnavailable, DatabaseUnavailable
from cuscuta.relations import LOOPBACK, host_of
from entry.context import Context

_CLOCKS_S = 2.0


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    what: str
    state: Literal["good", "doubtful", "bad"]
    detail: str
    fix: str = ""


async def examine(context: Context) -> list[Finding]:
    """Every finding, in a fixed order. Raises BrokerUnavailable."""
    return [
        *await _streams(context),
        *_bus(context),
        *await _database(context),
        await _reaper(context),
        await _accounts(context),
        *await _workers(context),
        await _clocks(context),
        *_api(context),
    ]


async def _streams(context: Context) -> list[Finding]:
    bus = context.bus
    if gone := await missing(bus.broker, context.settings):
        fix = "They are made anew within seconds; what can be is mended from the tags, but lost tags are lost jobs."
        return [Finding("streams", "bad", f"missing: {', '.join(sorted(gone))}", fix)]
    fewest, behind, other = 5, list[str](), list[str]()
    for config in streams(context.settings):
        try:
            info = await bus.broker.api(f"STREAM.INFO.{config['name']}")
        except BrokerRefused as error:
            return [Finding("streams", "bad", f"{config['name']}: {error}")]
        fewest = min(fewest, int(info["config"]["num_replicas"]))
        other += [f"{config['name']} {one}" for one in differing(config, info["config"]) if "num_replicas" not in one]
        replicas = (info.get("cluster") or {}).get("replicas") or []
        behind += [f"{config['name']} at {r['name']}" for r in replicas if not r.get("current")]
    found = [
        Finding("streams", "good", f"{len(streams(context.settings))} streams stand, configured as they should be")
    ]
    if other:
        fix = "Restart entry: it brings the streams up to date at its start, and says why if it cannot."
        found = [Finding("streams", "bad", "; ".join(other[:5]), fix)]
    if fewest < 3:
        detail = f"{fewest} copy of each stream: a lost disk loses accepted jobs and results"
        fix = "In production run three NATS servers and set CUSCUTA_REPLICAS=3."
        found.append(Finding("replication", "doubtful", detail, fix))
    elif behind:
        fix = "Wait, or look at that server's log."
        found.append(Finding("replication", "bad", f"not up to date: {', '.join(behind[:5])}", fix))
    else:
        found.append(Finding("replication", "good", f"{fewest} copies of each stream, all up to date"))
    return found


def _bus(context: Context) -> list[Finding]:
    s, found = context.settings, []
    if not (s.nats_user or s.nats_creds or "@" in s.nats_url):
        fix = "Give each part a user of its own: deploy/nats/users.conf, CUSCUTA_NATS_USER, CUSCUTA_NATS_PASSWORD."
        found.append(Finding("NATS users", "doubtful", "NATS asks nobody who he is", fix))
    far = {host for url in s.nats_url.split(",") if (host := host_of(url)) not in LOOPBACK}
    if far and not (s.nats_ca or all(url.startswith("tls://") for url in s.nats_url.split(","))):
        fix = "Switch TLS on (deploy/nats/nats.conf) and set CUSCUTA_NATS_CA."
        found.append(Finding("NATS TLS", "doubtful", f"plain text to {', '.join(sorted(far))}", fix))
    return found or [Finding("NATS access", "good", "a user of its own, and nothing in plain text beyond this box")]


async def _database(context: Context) -> list[Finding]:
    try:
        lacking = await context.database.lacking()
    except DatabaseUnavailable as error:
        return [Finding("PostgreSQL", "bad", str(error), "Look at its log, and at CUSCUTA_POSTGRES_URL.")]
    found = [Finding("PostgreSQL", "good", "answers")]
    if lacking:
        fix = "Restart entry: it runs them at its start, and says why if it cannot."
        return [*found, Finding("migrations", "bad", f"not run: {', '.join(lacking)}", fix)]
    return [*found, Finding("migrations", "good", f"all {len(migrations())} have run")]


async def _reaper(context: Context) -> Finding:
    try:
        active = await context.database.held(REAPER_LOCK)
    except DatabaseUnavailable as error:
        return Finding("reaper", "bad", str(error))
    if active:
        return Finding("reaper", "good", "one replica is active")
    fix = "Start a reaper: cuscuta-reaper. Without one nothing that a crash leaves is mended."
    return Finding("reaper", "bad", "none is active", fix)


async def _clocks(context: Context) -> Finding:
    """Leases go by PostgreSQL's clock alone, deadlines and schedules by whoever looks at them."""
    try:
        began = context.clock.wall()
        told = await context.database.time()
        late = (context.clock.wall() - began) / 2
        apart = {
            "entry and PostgreSQL": (began + late - told).total_seconds(),
            "entry and NATS": await context.bus.ahead(),
            **{f"worker {name} and NATS": s for name, s in (await context.bus.workers_ahead()).items()},
        }
    except (BrokerUnavailable, BrokerRefused, DatabaseUnavailable) as error:
        return Finding("clocks", "bad", str(error))
    wrong = [f"{what}: {abs(s):.0f} s" for what, s in apart.items() if abs(s) > _CLOCKS_S]
    if wrong:
        fix = "Let NTP or chrony set the clocks: deadlines, schedules and times shown are wrong by as much."
        return Finding("clocks", "doubtful", ", ".join(wrong[:5]), fix)
    return Finding("clocks", "good", f"less than {_CLOCKS_S:g} s apart")


async def _accounts(context: Context) -> Finding:
    try:
        states = await context.accounts.states()
    except DatabaseUnavailable as error:
        return Finding("accounts", "bad", str(error))
    detail = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    if not sum(count for state, count in states.items() if state != "Disabled"):
        return Finding("accounts", "bad", f"{detail}: nobody can work", "cuscuta accounts import FILE")
    if states.get("Disabled"):
        fix = "cuscuta accounts list --state Disabled shows why."
        return Finding("accounts", "doubtful", detail, fix)
    return Finding("accounts", "good", detail)


async def _workers(context: Context) -> list[Finding]:
    try:
        workers = await context.bus.workers()
    except (BrokerUnavailable, BrokerRefused) as error:
        return [Finding("workers", "bad", str(error))]
    seats = sum(worker.seats for worker in workers)
    detail = f"{len(workers)} workers with {seats} seats"
    fix = "Start a worker: cuscuta-worker" if not workers else "No account is free for them: cuscuta accounts list"
    found = [Finding("workers", "good" if seats else "bad", detail, "" if seats else fix)]
    versions = {worker.version for worker in workers} | {__version__}
    if len(versions) > 1:
        detail = f"{', '.join(sorted(versions))} at once"
        found.append(Finding("versions", "doubtful", detail, "Finish the upgrade; the order does not matter."))
    looked = [worker for worker in workers if worker.upstream is not None]
    lost = [f"{worker.worker}: {worker.upstream}" for worker in looked if worker.upstream]
    if lost:
        fix = (
            "Look at CUSCUTA_UPSTREAM_URL, at the workers' way out (NetworkPolicy, proxy, DNS), at the upstream itself."
        )
        found.append(Finding("upstream", "bad", f"not reached by {', '.join(lost[:5])}", fix))
    elif looked:
        found.append(Finding("upstream", "good", f"reached by {len(looked)} of {len(workers)} workers"))
    elif workers:
        fix = "Ask again in some seconds; an adapter of your own tells by a method `reach` (docs/upstreams.md)."
        found.append(Finding("upstream", "doubtful", "no worker knows yet whether it answers", fix))
    return found


def _api(context: Context) -> list[Finding]:
    found = []
    if context.settings.insecure:
        fix = "Unset CUSCUTA_INSECURE and make tokens: cuscuta tokens make."
        found.append(Finding("REST API", "doubtful", "asks for no token", fix))
    else:
        found.append(Finding("REST API", "good", "asks for a token"))
    if context.settings.seal_keys:
        found.append(Finding("seal", "good", "only what entry has accepted is let out"))
    else:
        fix = "Give entry and reaper, and nobody else, CUSCUTA_SEAL_KEYS (make one: cuscuta secret-key)."
        found.append(Finding("seal", "doubtful", "whoever takes over a worker can submit jobs", fix))
    if len(context.settings.secret_keys) > 1:
        fix = "cuscuta secrets rotate, then leave the old ones out (docs/security.md)."
        found.append(Finding("secret keys", "doubtful", "older keys are still in use", fix))
    return found
