"""What the reaper finds: the remains of crashes between two lines, and of hands on the `nats` CLI."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from cuscuta import subjects
from cuscuta.broker.assets import make_consumer
from cuscuta.codec import encode
from cuscuta.model import ChunkBody, Essential, Item, JobStatus, JobTag, Queue
from cuscuta.seal import sealed
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from cuscuta.uids import new_uid
from tests.faults.stage import ITEMS, Stage
from tests.support import users
from tests.support.wait import until

Proof = Callable[[], Awaitable[object]]  # true once the reaper has mended it
NEEDS_NO_WORKER = frozenset({"unqueued", "consumer", "active", "chunks", "deadline"})


async def make(stage: Stage, kind: str, name: str) -> Proof:
    """Leave something for the reaper; how to see that it was mended."""
    return await _MAKERS[kind](stage, name)


async def _completed(stage: Stage, uid: str, target: str) -> bool:
    job = await stage.get(f"/jobs/{uid}")
    return job["status"] == "completed" and await stage.losses(uid, target) == (0, 0)


async def _unqueued(stage: Stage, name: str) -> Proof:
    bus = await stage.h.bus()
    songs = await bus.catalogues.resolve("songs")
    assert songs is not None
    now = bus.clock.wall()
    uid, essential = new_uid(now), Essential(name, songs.hash, "songs", Span(0, ITEMS))
    tag = JobTag(uid, JobStatus.QUEUEING, sealed([users.SEAL], uid, essential, [uid]), Queue(now), run_ids=[uid])
    assert await bus.tags.create(tag)
    return lambda: _completed(stage, tag.uid, name)


async def _admitted(stage: Stage, name: str) -> str:
    """A job whose chunks are out."""
    uid = await stage.submit(name)

    async def pending() -> bool:
        return bool((await stage.get(f"/jobs/{uid}"))["status"] == "pending")

    await until(pending, 20, f"{name} is admitted")
    return uid


async def _consumer(stage: Stage, name: str) -> Proof:
    uid = await _admitted(stage, name)
    await (await stage.h.bus()).work.drop_job_consumer(uid)
    return lambda: _completed(stage, uid, name)


async def _active(stage: Stage, name: str) -> Proof:
    uid = await _admitted(stage, name)
    await (await stage.h.bus()).active_bucket.purge(uid)
    return lambda: _completed(stage, uid, name)


async def _chunks(stage: Stage, name: str) -> Proof:
    uid = await _admitted(stage, name)
    await (await stage.h.bus()).work.purge(subjects.chunks_of(uid))
    return lambda: _completed(stage, uid, name)


async def _deadline(stage: Stage, name: str) -> Proof:
    uid = await stage.submit(name, deadline_s=1)

    async def ended() -> bool:
        job = await stage.get(f"/jobs/{uid}")
        if job["status"] == "completed":  # the worker came back before the reaper could write
            return await stage.losses(uid, name) == (0, 0)
        return (job["status"], job["failure_counts"]) == ("failed", {"DeadlineExceeded": 1})

    return ended


async def _orphan(stage: Stage, name: str) -> Proof:
    bus = await stage.h.bus()
    uid = new_uid(bus.clock.wall())
    await make_consumer(bus.broker, subjects.job_consumer(uid), [subjects.chunks_of(uid)], 3.0, 12)
    await bus.work.publish_chunks([ChunkName(uid, Span(0, 9), 1)], ChunkBody(uid, "nowhere", name))

    async def gone() -> bool:
        return uid not in await bus.work.job_consumers() and not await bus.work.queued(uid)

    return gone


async def _results(stage: Stage, name: str) -> Proof:
    bus = await stage.h.bus()
    uid = new_uid(bus.clock.wall())
    await bus.broker.publish(f"$KV.cuscuta_results.{subjects.result_key(uid, Span(0, 9))}", encode(Item(name)))

    async def gone() -> bool:
        return uid not in await bus.results.jobs()

    return gone


async def _schedule(stage: Stage, name: str) -> Proof:
    body = {"when": "@every 24h", "job": {"target": name, "catalogue": "songs"}}
    made = await stage.h.call("POST", "/schedules", 201, json=body)
    store = (await stage.h.bus()).schedules
    await store.stop(made["id"])

    async def runs() -> bool:
        return made["id"] in (await store.standing())[0]

    return runs


async def _lease(stage: Stage, name: str) -> Proof:
    dead = "a worker that is no more"
    rows = await stage.h.sql(
        "UPDATE account_table SET state = 'Using', lease_owner = $1, lease_term = lease_term + 1,"
        " lease_until = now() - $2::interval"
        " WHERE id = (SELECT id FROM account_table WHERE state = 'Idle' LIMIT 1) RETURNING id",
        dead,
        timedelta(seconds=1),
    )
    assert rows

    async def returned() -> bool:
        return not await stage.h.sql("SELECT 1 FROM account_table WHERE lease_owner = $1", dead)

    return returned


_MAKERS: dict[str, Callable[[Stage, str], Awaitable[Proof]]] = {
    "unqueued": _unqueued,
    "consumer": _consumer,
    "active": _active,
    "chunks": _chunks,
    "deadline": _deadline,
    "orphan": _orphan,
    "results": _results,
    "schedule": _schedule,
    "lease": _lease,
}
