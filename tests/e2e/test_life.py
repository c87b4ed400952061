"""The life of a job beyond the main way: further runs, tolerance, times, lanes that stop, cancelling by filter."""

from typing import Any

from cuscuta.broker.unique import claim
from cuscuta.model import Essential
from cuscuta.spans import Span
from cuscuta.uids import new_uid
from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.house import House, gather
from tests.support.wait import until
from worker.upstream.reference.rules import score


async def serving(make_house: MakeHouse, latency_ms: float = 10, seats: int = 2, **env: str) -> House:
    h = await make_house(**env)
    await h.upstream(accounts=2, latency_ms=latency_ms)
    await h.entry()
    await h.reaper()
    if seats:
        await h.accounts(seats)
        await h.worker(seats=str(seats))
        await h.seats(seats)
    return h


async def test_a_retry_runs_only_what_is_missing(make_house: MakeHouse) -> None:
    """Cancelled half-way, then run on: the same uid, a further run id, and what was stored is not asked for again."""
    h = await serving(make_house, latency_ms=25)
    items = await h.catalogue(120)
    uid = await h.submit()
    await h.done(uid, 30)
    running = await h.http.post(f"/jobs/{uid}/retry")
    assert running.status_code == 409
    assert (await h.call("DELETE", f"/jobs/{uid}"))["status"] == "cancelled"
    stored = {row["id"] for row in await h.results(uid)}
    assert 30 <= len(stored) < 120
    before = await checks.polls(h, "player 1")
    await h.control(set={"latency_s": 1.0})
    assert (await h.call("POST", f"/jobs/{uid}/retry", 202))["uid"] == uid
    running = await h.done(uid, len(stored) + 1)
    assert running["rate_per_s"] < 5  # of this run: what the one before had stored took it no time
    await h.control(set={"latency_s": 0.01})
    await h.ended(uid)
    job = await checks.complete(h, uid, "player 1", items)
    assert (job["retries"], len(job["run_ids"])) == (1, 2)
    after = await checks.polls(h, "player 1")
    assert {item: after[item] - before[item] for item in stored} == dict.fromkeys(stored, 0)
    listed = (await h.call("GET", "/jobs"))["jobs"][0]
    assert (listed["uid"], listed["status"], listed["retries"]) == (uid, "completed", 1)
    complete = await h.http.post(f"/jobs/{uid}/retry")
    assert complete.status_code == 409
    assert "every item" in complete.text
    assert (await h.http.post("/jobs/" + "0" * 26 + "/retry")).status_code == 404


async def test_what_was_given_up_is_tried_again(make_house: MakeHouse) -> None:
    h = await serving(make_house, max_attempts="1", max_deliver="5", transient_retries="0")
    items = await h.catalogue(12)
    await h.control(set={"mode": "500", "mode_calls": None})
    uid = await h.submit()
    failed = await h.ended(uid)
    assert failed["status"] == "failed"
    assert failed["progress"]["done"] == 0
    await h.control(set={"mode": ""})
    await h.call("POST", f"/jobs/{uid}/retry", 202)
    await h.ended(uid)
    job = await checks.complete(h, uid, "player 1", items)
    assert job["failure_counts"]["GivenUp"] >= 1  # the history stays


async def test_what_is_given_up_again_ends_the_further_run_too(make_house: MakeHouse) -> None:
    h = await serving(make_house, max_attempts="1", max_deliver="5", transient_retries="0")
    await h.catalogue(["song-1", "broken-1", "song-2"])
    uid = await h.submit(chunk_items=1)
    for run in range(3):
        job = await h.ended(uid)
        assert (job["status"], job["retries"]) == ("failed", run)
        assert job["progress"]["missing"] == [[1, 2]]
        if run < 2:
            await h.call("POST", f"/jobs/{uid}/retry", 202)
    assert (await checks.polls(h, "player 1"))["broken-1"] == 3  # once for each run
    await checks.nothing_left(h)


async def test_two_retries_at_once_make_one_run_and_keep_the_lane(make_house: MakeHouse) -> None:
    h = await serving(make_house, latency_ms=25)
    items = await h.catalogue(60)
    first = await h.submit("player 1", key="lane")
    await h.done(first, 5)
    await h.call("DELETE", f"/jobs/{first}")
    answers = await gather(*(h.http.post(f"/jobs/{first}/retry") for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [202, *[409] * 7]
    second = await h.submit("player 2", key="lane")
    for target, uid in (("player 1", first), ("player 2", second)):
        await h.ended(uid)
        await checks.complete(h, uid, target, items)
    assert (await h.job(first))["retries"] == 1
    assert (await h.job(second))["admitted_at"] >= (await h.job(first))["ended_at"]


async def test_a_tolerated_loss_completes_the_job(make_house: MakeHouse) -> None:
    """Two items of 20 cannot be had: a tolerance of two, or of a tenth, completes the job; of one does not."""
    h = await serving(make_house, max_attempts="1", max_deliver="5", transient_retries="0")
    items = await h.catalogue([("broken-" if n in (4, 11) else "song-") + str(n) for n in range(20)])
    wanted: dict[str, dict[str, Any]] = {
        "completed": {"tolerance_items": 2},
        "completed too": {"tolerance_share": 0.1},
        "failed": {"tolerance_items": 1},
    }
    for target, tolerance in wanted.items():
        uid = await h.submit(target, chunk_items=1, **tolerance)
        job = await h.ended(uid)
        assert job["status"] == target.split()[0]
        assert job["progress"]["missing"] == [[4, 5], [11, 12]]
        rows = await h.results(uid)
        assert [row["value"] for row in rows] == [score(target, i) for i in items if not i.startswith("broken")]
    await checks.nothing_left(h)


async def test_a_job_that_did_not_begin_in_time_fails(make_house: MakeHouse) -> None:
    """`start_by` binds what waits, not what runs; a retry is not bound by a time that has passed."""
    h = await serving(make_house, seats=0)
    items = await h.catalogue(10)
    first = await h.submit("player 1", key="lane", start_by_s=1.0)
    late = await h.submit("player 2", key="lane", start_by_s=1.0)
    job = await h.ended(late)
    assert (job["status"], job["failure_counts"]) == ("failed", {"StartByExceeded": 1})
    assert (await h.job(first))["status"] == "pending"
    await h.call("POST", f"/jobs/{late}/retry", 202)
    await h.accounts(2)
    await h.worker(seats="2")
    for target, uid in (("player 1", first), ("player 2", late)):
        await h.ended(uid)
        await checks.complete(h, uid, target, items)


async def test_a_failure_stops_the_jobs_behind_it_that_say_so(make_house: MakeHouse) -> None:
    h = await serving(make_house, seats=0)
    items = await h.catalogue(10)
    fails = await h.submit("unknown player", key="lane")
    stopped = [await h.submit(f"player {n}", key="lane", lane_policy="stop") for n in range(3)]
    goes_on = await h.submit("player 8", key="lane")
    after_good = await h.submit("player 9", key="lane", lane_policy="stop")
    await h.accounts(2)
    await h.worker(seats="2")
    for target, uid in (("player 8", goes_on), ("player 9", after_good)):
        await h.ended(uid)
        await checks.complete(h, uid, target, items)
    assert (await h.job(fails))["failure_counts"] == {"TargetNotFound": 1}
    for uid in stopped:
        job = await h.job(uid)
        assert (job["status"], job["failure_counts"]) == ("failed", {"PredecessorFailed": 1})
        assert fails in job["failures"][0]["message"]
    assert {call[1] for call in (await h.world())["calls"]} == {"player 8", "player 9"}


async def test_a_failing_job_keeps_its_lane_through_back_off_and_a_restart_of_entry(make_house: MakeHouse) -> None:
    """The second of a lane is not asked for before the first has ended, whatever the first goes through (FIELD 16)."""
    h = await serving(make_house, latency_ms=20)
    items = await h.catalogue(30)
    await h.control(set={"mode": "500", "mode_calls": 3})
    first, second = await h.submit("player 1", key="lane"), await h.submit("player 2", key="lane")
    await until(lambda: _refused(h, 4), 10, "the first has failed a few times")
    entry = next(proc for proc in h.procs if "entry" in proc.name)
    entry.stop()
    await h.entry()
    for target, uid in (("player 1", first), ("player 2", second)):
        await h.ended(uid)
        await checks.complete(h, uid, target, items)
    calls = (await h.world())["calls"]
    last = max(call[4] for call in calls if call[1] == "player 1")
    assert min(call[3] for call in calls if call[1] == "player 2") >= last


async def _refused(h: House, count: int) -> bool:
    return bool((await h.world())["counts"].get("status_500", 0) >= count)


async def test_a_cancelled_predecessor_stops_nobody(make_house: MakeHouse) -> None:
    h = await serving(make_house, seats=0)
    items = await h.catalogue(10)
    first = await h.submit("player 1", key="lane")
    second = await h.submit("player 2", key="lane", lane_policy="stop")
    await h.call("DELETE", f"/jobs/{first}")
    await h.accounts(2)
    await h.worker(seats="2")
    await h.ended(second)
    await checks.complete(h, second, "player 2", items)


async def test_jobs_are_cancelled_by_filter_once_they_were_counted(make_house: MakeHouse) -> None:
    h = await serving(make_house, seats=0)
    await h.catalogue(10)
    red = [await h.submit(f"player {n}", labels={"team": "red"}) for n in range(30)]
    blue = await h.submit("player 99", labels={"team": "blue"})
    await until(lambda: _listed(h, 31), 5, "all are listed")
    params = {"label": "team:red"}
    assert await h.call("DELETE", "/jobs", params=params) == {"matched": 30, "cancelled": 0}
    await until(lambda: _all_pending(h, red), 10, "all are admitted")
    assert await h.call("DELETE", "/jobs", params={**params, "dry_run": "false"}) == {"matched": 30, "cancelled": 30}
    assert {(await h.job(uid))["status"] for uid in red} == {"cancelled"}
    assert (await h.job(blue))["status"] == "pending"
    everything = await h.http.delete("/jobs", params={"dry_run": "false"})
    assert everything.status_code == 422  # no filter, no flood
    assert (await h.job(blue))["status"] == "pending"
    await h.call("DELETE", f"/jobs/{blue}")
    await checks.nothing_left(h)


async def _all_pending(h: House, uids: list[str]) -> bool:
    return {(await h.job(uid))["status"] for uid in uids} == {"pending"}


async def _listed(h: House, count: int) -> bool:
    return len((await h.call("GET", "/jobs", params={"limit": 100}))["jobs"]) == count


async def test_a_unique_job_is_made_once(make_house: MakeHouse) -> None:
    """50 posts at once through two replicas make one job; once it has ended, another one may be made."""
    h = await serving(make_house, seats=0)
    await h.catalogue(10)
    urls = [str(h.http.base_url)]
    await h.entry()
    urls.append(str(h.http.base_url))

    async def post(n: int) -> dict[str, Any]:
        body = {"target": "player 1", "catalogue": "songs", "unique": True}
        answer = await h.http.post(f"{urls[n % 2]}/jobs", json=body)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    answers = await gather(*(post(n) for n in range(50)))
    assert len({answer["uid"] for answer in answers}) == 1
    assert sum(not answer["existing"] for answer in answers) == 1
    uid = answers[0]["uid"]
    assert len((await h.call("GET", "/jobs"))["jobs"]) == 1
    other = await h.submit("player 2", unique=True)
    assert other != uid
    await h.call("DELETE", f"/jobs/{uid}")
    again = (await post(0))["uid"]
    assert again != uid
    for one in (other, again):
        await h.call("DELETE", f"/jobs/{one}")
    await checks.nothing_left(h)


async def test_a_unique_job_gives_way_to_any_that_runs_and_its_claim_is_swept(make_house: MakeHouse) -> None:
    h = await serving(make_house, seats=0)
    await h.catalogue(10)
    plain = await h.submit("player 1")
    assert await h.submit("player 1", unique=True) == plain
    bus = await h.bus()
    name = await bus.catalogues.resolve("songs")
    assert name is not None
    lost = Essential("player 3", name.hash, "songs", Span(0, 10), unique=True)
    assert await claim(bus, new_uid(bus.clock.wall()), lost) is None  # and its submit died
    uid = await h.submit("player 3", unique=True)
    assert (await h.job(uid))["status"] in ("queueing", "pending")
    lost = Essential("player 4", name.hash, "songs", Span(0, 10), unique=True)
    assert await claim(bus, new_uid(bus.clock.wall()), lost) is None
    for one in (plain, uid):
        await h.call("DELETE", f"/jobs/{one}")
    await checks.nothing_left(h)  # the claim that belongs to no job too
