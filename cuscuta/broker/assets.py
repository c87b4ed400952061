"""The streams and buckets of DESIGN §3, declared once; entry makes and updates them, the others wait for them."""

from typing import Any

from cuscuta import limits, subjects
from cuscuta.broker.connection import Broker
from cuscuta.broker.translation import NOT_FOUND
from cuscuta.errors import BrokerRefused, CuscutaError
from cuscuta.logs import Logger
from cuscuta.model import JobStatus
from cuscuta.settings import Settings

_NS = 1_000_000_000
HOOK_ACK_WAIT_S = 60.0  # longer than a webhook's answer may take


class Misconfigured(CuscutaError):
    """A stream stands already with a configuration that cannot be changed into ours."""


def _stream(name: str, what: str, filters: list[str], settings: Settings, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": what,
        "subjects": filters,
        "storage": "file",
        "num_replicas": settings.replicas,
        "allow_direct": True,
        "metadata": {"cuscuta": "1"},
        **more,
    }


def _bucket(name: str, what: str, settings: Settings, **more: Any) -> dict[str, Any]:
    return _stream(
        subjects.kv_stream(name),
        what,
        [subjects.kv_subject(name, ">")],
        settings,
        max_msgs_per_subject=1,
        discard="new",
        allow_rollup_hdrs=True,
        deny_delete=True,
        max_consumers=limits.KV_CONSUMERS,
        **more,
    )


def streams(settings: Settings) -> list[dict[str, Any]]:
    """Every stream's configuration."""
    return [
        _stream(
            subjects.work_stream(),
            "what waits to be done: lane entries, jobs to admit, chunks; who waits for whom, who is the only one",
            [subjects.LANES, subjects.ADMITS, subjects.CHUNKS, subjects.UNIQUES, subjects.AFTERS, subjects.LAST_PLACES],
            settings,
            retention="workqueue",
            discard="new",
            discard_new_per_subject=True,
            max_msgs_per_subject=1,
            max_msgs=limits.WORK_MESSAGES,
            max_consumers=settings.max_active_jobs,
            allow_atomic=True,
            allow_msg_ttl=True,
        ),
        _stream(
            subjects.EVENTS_STREAM,
            "steps in the life of jobs",
            [subjects.EVENTS],
            settings,
            max_age=limits.EVENTS_AGE_S * _NS,
            max_msgs=limits.EVENTS_MESSAGES,
        ),
        _stream(
            subjects.DEAD_STREAM,
            "chunks given up, with the reason",
            [subjects.DEAD],
            settings,
            max_age=limits.DEAD_AGE_S * _NS,
        ),
        _stream(
            subjects.SCHEDULES_STREAM,
            "schedules, fired by NATS itself, and what they have fired; one that was missed is kept, not each",
            [subjects.SCHEDULES, subjects.FIRES],
            settings,
            retention="workqueue",
            discard="old",
            max_msgs_per_subject=1,
            allow_msg_schedules=True,
            max_consumers=8,  # one is ours
        ),
        _bucket(subjects.SCHEDULE_RECORDS, "schedules, by id", settings, allow_msg_ttl=True),
        _bucket(subjects.TAGS, "a job's record, by uid", settings, allow_msg_ttl=True),
        _bucket(subjects.ACTIVE, "jobs whose chunks are out, by uid", settings),
        _bucket(subjects.RESULTS, "results, by uid, first item and end; the first write wins", settings),
        _bucket(
            subjects.WORKERS, "heartbeats of worker processes", settings, max_age=int(settings.presence_ttl_s * _NS)
        ),
        _bucket(subjects.CATALOGUES, "catalogues: names, heads and pages of items", settings),
    ]


async def ensure(broker: Broker, settings: Settings) -> None:
    """Make what is missing and bring what stands up to date. Raises Misconfigured where that is impossible."""
    for config in streams(settings):
        name = config["name"]
        try:
            await broker.insist(lambda: _make(broker, config))  # noqa: B023 - awaited before the loop goes on
        except BrokerRefused as error:
            raise Misconfigured(f"stream {name} stands with another configuration: {error}") from error
    await broker.insist(lambda: ensure_fires(broker))
    await broker.insist(lambda: ensure_hooks(broker, settings))
    await broker.insist(lambda: _drop_old(broker))


async def missing(broker: Broker, settings: Settings) -> set[str]:
    """The streams that are not there. Raises BrokerUnavailable."""
    found: list[str] = []
    while names := (await broker.api("STREAM.NAMES", {"offset": len(found)})).get("streams"):
        found += names
    return {config["name"] for config in streams(settings)} - set(found)


async def _make(broker: Broker, config: dict[str, Any]) -> None:
    name = config["name"]
    try:
        standing = (await broker.api(f"STREAM.INFO.{name}"))["config"]
    except BrokerRefused as error:
        if error.code not in NOT_FOUND:
            raise
        await broker.api(f"STREAM.CREATE.{name}", config)
        return
    if differing(config, standing):
        metadata = {**(standing.get("metadata") or {}), **(config.get("metadata") or {})}
        await broker.api(f"STREAM.UPDATE.{name}", {**standing, **config, "metadata": metadata})


def differing(wanted: dict[str, Any], standing: dict[str, Any]) -> list[str]:
    """What of a stream's configuration is not as it should be, as `name: found, not wanted`."""
    pairs = ((key, standing.get(key), value) for key, value in wanted.items() if key != "metadata")
    return [f"{key}: {found}, not {value}" for key, found, value in pairs if found != value]


async def ensure_fires(broker: Broker) -> None:
    """Make the consumer of what schedules fire; harmless if it stands."""
    await make_consumer(broker, subjects.FIRE_CONSUMER, [subjects.FIRES], 30.0, -1, stream=subjects.SCHEDULES_STREAM)


async def _drop_old(broker: Broker) -> None:
    """Consumers of the work stream that are no job's: those of admission in earlier versions."""
    stream = subjects.work_stream()
    for name in (await broker.api(f"CONSUMER.NAMES.{stream}", {"offset": 0})).get("consumers") or []:
        if subjects.parse_job_consumer(name) is None:
            await broker.api(f"CONSUMER.DELETE.{stream}.{name}")


async def ensure_hooks(broker: Broker, settings: Settings) -> None:
    """Make the consumers of jobs' ends that are wanted, for webhooks, from now on; remove those that are not."""
    wanted = {"job": bool(settings.webhook_secrets), "deployment": bool(settings.webhook_url)}
    ends = [subjects.events_that(str(status)) for status in JobStatus if status.terminal]
    stream = subjects.EVENTS_STREAM
    for kind, name in subjects.HOOK_CONSUMERS.items():
        try:
            standing = await broker.api(f"CONSUMER.INFO.{stream}.{name}")
        except BrokerRefused as error:
            if error.code not in NOT_FOUND:
                raise
            standing = {}
        if standing and not wanted[kind]:
            await broker.api(f"CONSUMER.DELETE.{stream}.{name}")
        elif wanted[kind] and not standing:
            await make_consumer(
                broker, name, ends, HOOK_ACK_WAIT_S, -1, stream=stream, since="new", held=limits.HOOKS_HELD
            )


async def make_consumer(
    broker: Broker,
    name: str,
    filters: list[str],
    ack_wait_s: float,
    max_deliver: int,
    *,
    stream: str = subjects.work_stream(),
    since: str = "all",
    held: int = 50_000,
    **metadata: str,
) -> None:
    """A durable pull consumer; harmless if it stands. On the work stream raises NoRoom at `max_active_jobs`."""
    await broker.api(
        f"CONSUMER.DURABLE.CREATE.{stream}.{name}",
        {
            "stream_name": stream,
            "config": {
                "durable_name": name,
                "description": f"deliveries of {', '.join(filters)}",
                **({"filter_subject": filters[0]} if len(filters) == 1 else {"filter_subjects": filters}),
                "deliver_policy": since,
                "replay_policy": "instant",
                "ack_policy": "explicit",
                "ack_wait": int(ack_wait_s * _NS),
                "max_deliver": max_deliver,
                "max_ack_pending": held,  # the default of 1,000 stalls silently [nats §0]; far above all seats
                "max_waiting": 8_192,  # one open pull for every seat
                "metadata": metadata,
            },
        },
    )


async def await_ready(broker: Broker, log: Logger) -> None:
    """Wait until entry has made every asset; says so once."""
    said = False
    for name in (subjects.work_stream(), *(subjects.kv_stream(b) for b in _BUCKETS)):
        while True:
            try:
                await broker.insist(lambda: broker.api(f"STREAM.INFO.{name}"))  # noqa: B023 - awaited at once
                break
            except BrokerRefused:
                if not said:
                    log.warning("waiting for entry to make the streams", stream=name)
                    said = True
                await broker.clock.sleep(0.3)


_BUCKETS = (subjects.TAGS, subjects.ACTIVE, subjects.RESULTS, subjects.WORKERS, subjects.CATALOGUES)
