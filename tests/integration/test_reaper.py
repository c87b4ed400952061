"""Each duty of the reaper: what a crash, or a hand on the nats CLI, left half-done is mended or ends clearly."""

from cuscuta import subjects
from cuscuta.broker import Delivery, Puller
from cuscuta.broker.assets import make_consumer
from cuscuta.codec import encode
from cuscuta.model import ActiveJob, ChunkResult, Essential, JobStatus, JobTag, Priority, Queue
from cuscuta.seal import sealed
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from cuscuta.uids import new_uid, token_from
from tests.conftest import MakeHouse
from tests.support import checks, users
from tests.support.house import House
from tests.support.wait import until


async def house(make_house: MakeHouse, **env: str) -> House:
    h = await make_house(**env)
    await h.upstream(accounts=2, latency_ms=30)
    await h.entry()
    await h.reaper()
    await h.accounts(2)
    await h.catalogue(100)
    return h


ITEMS = [f"song-{n}" for n in range(100)]


async def tag(h: House, lane: str | None = None) -> JobTag:
    """A job's tag as a submit that died right after it would have left it."""
    bus = await h.bus()
    name = await bus.catalogues.resolve("songs")
    assert name is not None
    essential = Essential("player 1", name.hash, "songs", Span(0, 100), lane=lane)
    now = bus.clock.wall()
    uid = new_uid(now)
    made = JobTag(uid, JobStatus.QUEUEING, sealed([users.SEAL], uid, essential, ["x"]), Queue(now), ["x"])
    assert await bus.tags.create(made)
    return made


async def test_a_job_that_was_accepted_but_never_queued(make_house: MakeHouse) -> None:
    """kill -9 of entry between the tag and the batch, with and without a lane."""
    h = await house(make_house)
    await h.worker(seats="2")
    for lane in (None, token_from("lane")):
        made = await tag(h, lane)
        await h.ended(made.uid)
        await checks.complete(h, made.uid, "player 1", ITEMS)


async def test_a_lost_admit_message(make_house: MakeHouse) -> None:
    h = await house(make_house, max_active_jobs="1")
    await h.submit("blocker")
    uid = await h.submit("player 1")
    bus = await h.bus()
    assert await bus.work.purge(subjects.admit(Priority.NORMAL, "", uid)) == 1
    await h.worker(seats="2")
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", ITEMS)


async def test_a_lane_whose_head_was_never_released(make_house: MakeHouse) -> None:
    """An ended job's lane entry stands in front: the one behind it goes on."""
    h = await house(make_house)
    await h.worker(seats="2")
    bus = await h.bus()
    lane = token_from("player 1")
    gone = new_uid(bus.clock.wall())
    await bus.work.put(subjects.lane_entry(lane, gone), b"{}")
    uid = await h.submit("player 1")
    assert gone in (await h.job(uid))["waiting_for"]
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", ITEMS)


async def test_a_consumer_deleted_under_a_job(make_house: MakeHouse) -> None:
    h = await house(make_house)
    await h.worker(seats="2")
    uid = await h.submit("player 1")
    await h.done(uid, 10)
    await (await h.bus()).work.drop_job_consumer(uid)
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", ITEMS)


async def test_an_active_entry_deleted_under_a_job(make_house: MakeHouse) -> None:
    h = await house(make_house)
    await h.worker(seats="2")
    uid = await h.submit("player 1")
    await h.done(uid, 10)
    await (await h.bus()).active_bucket.purge(uid)
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", ITEMS)


async def test_chunks_purged_under_a_job(make_house: MakeHouse) -> None:
    h = await house(make_house)
    await h.worker(seats="2")
    uid = await h.submit("player 1")
    await h.done(uid, 10)
    assert await (await h.bus()).work.purge(subjects.chunks_of(uid)) > 0
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", ITEMS)


async def test_chunks_past_max_deliver_are_given_up(make_house: MakeHouse) -> None:
    """Delivered again and again to holders that never answer: filed, and the job ends (FIELD 2)."""
    h = await house(make_house, ack_wait_s="0.5", item_timeout_s="0.3", flush_s="0.2", max_attempts="1",
                    max_deliver="2", mend_after_s="0.5")  # fmt: skip
    uid = await h.submit("player 1", policy="single")
    bus = await h.bus()
    await until(lambda: _has_consumer(h, uid), 10, "the job is admitted")

    def stray(delivery: Delivery) -> None:
        raise AssertionError(delivery.subject)

    puller = Puller(bus.broker, stray)
    await puller.start()
    deliveries = 0

    async def pulled_until_failed() -> bool:  # the server notices exhaustion only while somebody pulls
        nonlocal deliveries
        deliveries += len((await puller.take(bus.work.stream, subjects.job_consumer(uid), 1)).deliveries)
        return bool((await h.job(uid))["status"] == "failed")

    await until(pulled_until_failed, 30, "the reaper gives the chunk up")
    assert deliveries == 2
    job = await h.job(uid)
    await puller.stop()
    assert job["status"] == "failed"
    assert await bus.results.given_up(uid) == [Span(0, 100)]
    await checks.nothing_left(h)


async def _has_consumer(h: House, uid: str) -> bool:
    return uid in await (await h.bus()).work.job_consumers()


async def test_orphans_are_removed(make_house: MakeHouse) -> None:
    """Consumers, active entries, chunks, admit messages and results of jobs that do not exist."""
    h = await house(make_house)
    bus = await h.bus()
    now = bus.clock.wall()
    uids = [new_uid(now) for _ in range(5)]
    await make_consumer(bus.broker, subjects.job_consumer(uids[0]), [subjects.chunks_of(uids[0])], 10, 5)
    active = ActiveJob(uids[1], "t", "c", Span(0, 1), Priority.LOW, now)
    await bus.active_bucket.put(uids[1], encode(active))
    await bus.work.put(subjects.chunk(ChunkName(uids[2], Span(0, 1), 1)), b"{}")
    await bus.work.put(subjects.admit(Priority.HIGH, "", uids[3]), b"{}")
    await bus.results.write(uids[4], Span(0, 1), ChunkResult([], now))
    await checks.nothing_left(h)
    await until(lambda: _no_results(h), 30, "results without a job are removed")


async def _no_results(h: House) -> bool:
    return await (await h.bus()).results.jobs() == set()


async def test_retention_removes_tag_and_results(make_house: MakeHouse) -> None:
    h = await house(make_house, retention_s="1")
    await h.worker(seats="2")
    uid = await h.submit("player 1")
    await h.done(uid, 1)

    async def gone() -> bool:
        return (await h.http.get(f"/jobs/{uid}")).status_code == 404

    await until(gone, 30, "the tag has expired")
    await until(lambda: _no_results(h), 30, "its results are removed")

    async def unlisted() -> bool:
        return bool((await h.call("GET", "/jobs"))["jobs"] == [])

    await until(unlisted, 15, "it is not listed any more")


async def test_a_key_used_again_after_retention_begins_anew(make_house: MakeHouse) -> None:
    """The old job's results and graves do not count for the new one, even if the reaper has not been there yet."""
    h = await make_house(retention_s="1", transient_retries="0", max_attempts="1")
    await h.upstream(accounts=2, latency_ms=1)
    await h.entry()
    await h.worker(seats="2")
    await h.accounts(2)
    await h.catalogue(20)
    await h.control(set={"mode": "500"})
    headers = {"Idempotency-Key": "nightly"}
    body = {"target": "player 1", "catalogue": "songs"}
    uid = (await h.call("POST", "/jobs", json=body, headers=headers))["uid"]
    assert (await h.ended(uid))["status"] == "failed"

    async def gone() -> bool:
        return (await h.http.get(f"/jobs/{uid}")).status_code == 404

    await until(gone, 30, "the tag has expired")
    await h.control(set={"mode": ""})
    assert (await h.call("POST", "/jobs", json=body, headers=headers))["uid"] == uid
    assert (await h.ended(uid))["status"] == "completed"
    assert len(await checks.polls(h, "player 1")) == 20


async def test_leases_of_a_killed_worker_come_back(make_house: MakeHouse) -> None:
    h = await house(make_house)
    worker = await h.worker(seats="2")
    await h.seats(2)
    assert (await h.states()) == {"Using": 2}
    worker.kill()
    await checks.no_leases(h)
    assert (await h.states()) == {"Idle": 2}


async def test_contents_in_nobodys_use_are_removed(make_house: MakeHouse) -> None:
    """A replaced catalogue goes once no kept job is about it; what a name means or a job needs stays."""
    h = await make_house(mend_after_s="1.1", retention_s="600")
    await h.upstream(accounts=2, latency_ms=1)
    await h.entry()
    await h.reaper()
    await h.catalogue(10)
    used = (await h.call("GET", "/catalogues/songs"))["hash"]
    uid = await h.submit()
    await h.catalogue(11)
    unused = (await h.call("GET", "/catalogues/songs"))["hash"]
    await h.catalogue(12)
    current = (await h.call("GET", "/catalogues/songs"))["hash"]
    bus = await h.bus()

    async def removed() -> bool:
        return await bus.catalogues.contents() == {used, current}

    assert await bus.catalogues.contents() == {used, unused, current}
    await until(removed, 60, "the unused content is removed", 0.5)
    await h.worker(seats="2")
    await h.accounts(2)
    await h.ended(uid)
    assert len(await h.results(uid)) == 10
    assert len((await h.call("GET", "/catalogues/songs"))["page"]) == 12
