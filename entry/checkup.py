"""What an operator should know of a deployment before he trusts it: found, why it matters, what to do."""

from typing import Literal

from msgspec import Struct

from cuscuta.broker.assets import missing, streams
from cuscuta.errors import BrokerRefused, BrokerUnavailable, DatabaseUnavailable
from cuscuta.relations import LOOPBACK, host_of
from entry.context import Context


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
        await _database(context),
        await _accounts(context),
        await _seats(context),
        *_api(context),
    ]


async def _streams(context: Context) -> list[Finding]:
    bus = context.bus
    if gone := await missing(bus.broker, context.settings):
        fix = "They are made anew within seconds; what can be is mended from the tags, but lost tags are lost jobs."
        return [Finding("streams", "bad", f"missing: {', '.join(sorted(gone))}", fix)]
    fewest, behind = 5, []
    for config in streams(context.settings):
        try:
            info = await bus.broker.api(f"STREAM.INFO.{config['name']}")
        except BrokerRefused as error:
            return [Finding("streams", "bad", f"{config['name']}: {error}")]
        fewest = min(fewest, int(info["config"]["num_replicas"]))
        replicas = (info.get("cluster") or {}).get("replicas") or []
        behind += [f"{config['name']} at {r['name']}" for r in replicas if not r.get("current")]
    found = [Finding("streams", "good", f"{len(streams(context.settings))} streams stand")]
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


async def _database(context: Context) -> Finding:
    cause = await context.database.ping()
    return Finding("PostgreSQL", "bad" if cause else "good", cause or "answers")


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


async def _seats(context: Context) -> Finding:
    try:
        workers = await context.bus.workers()
    except (BrokerUnavailable, BrokerRefused) as error:
        return Finding("workers", "bad", str(error))
    seats = sum(worker.seats for worker in workers)
    detail = f"{len(workers)} workers with {seats} seats"
    return Finding("workers", "good" if seats else "bad", detail, "" if seats else "Start a worker: cuscuta-worker")


def _api(context: Context) -> list[Finding]:
    found = []
    if context.settings.insecure:
        fix = "Unset CUSCUTA_INSECURE and make tokens: cuscuta tokens make."
        found.append(Finding("REST API", "doubtful", "asks for no token", fix))
    else:
        found.append(Finding("REST API", "good", "asks for a token"))
    if len(context.settings.secret_keys) > 1:
        fix = "cuscuta secrets rotate, then leave the old ones out (docs/security.md)."
        found.append(Finding("secret keys", "doubtful", "older keys are still in use", fix))
    return found
