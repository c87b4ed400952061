"""The main job on real input of every size and shape, and what users of neighbouring systems tripped over."""

import statistics
import time
from datetime import UTC, datetime, timedelta

from cuscuta import subjects
from cuscuta.codec import encode
from cuscuta.model import ChunkBody
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.house import REFERENCE, House
from tests.support.wait import until


async def fleet(make_house: MakeHouse, accounts: int = 4, latency_ms: float = 5, **env: str) -> House:
    h = await make_house(**env)
    await h.upstream(accounts=accounts, latency_ms=latency_ms)
    await h.entry()
    await h.reaper()
    for _ in range(2):
        await h.worker(seats=str(accounts // 2))
    await h.accounts(accounts)
    await h.seats(accounts)
    return h


async def test_every_account_helps(make_house: MakeHouse) -> None:
    h = await fleet(make_house, accounts=8, latency_ms=20)
    items = await h.catalogue(400)
    uid = await h.submit()
    await h.ended(uid)
    job = await checks.complete(h, uid, "player 1", items)
    assert job["failure_counts"] == {}
    assert job["retries"] == 0
    assert set((await checks.polls(h, "player 1")).values()) == {1}
    assert len({c[0] for c in (await h.world())["calls"]}) == 8
    assert (await h.world())["counts"]["unfollows"] >= 1  # targets are not followed for ever
    await checks.never_together(h)


async def test_a_catalogue_of_one_item(make_house: MakeHouse) -> None:
    h = await fleet(make_house)
    items = await h.catalogue(1)
    uid = await h.submit()
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", items)


async def test_unequal_weights(make_house: MakeHouse) -> None:
    """A heavy item is a chunk of its own; everything is polled once."""
    h = await fleet(make_house)
    items = [{"id": f"song-{n}", "weight": 200 if n % 50 == 0 else 1} for n in range(300)]
    await h.catalogue(items)
    uid = await h.submit()
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", [f"song-{n}" for n in range(300)])
    assert set((await checks.polls(h, "player 1")).values()) == {1}


async def test_a_hundred_thousand_items(make_house: MakeHouse) -> None:
    h = await make_house(upstream="noop")
    await h.entry()
    await h.reaper()
    workers = [await h.worker(seats="4") for _ in range(2)]
    await h.accounts(8)
    count = 100_000
    await h.catalogue([f"song-{n}" for n in range(count)])
    await h.seats(8)
    uid = await h.submit()
    job = await h.ended(uid, 120)
    assert job["status"] == "completed"
    assert job["progress"]["done"] == count
    results = await h.results(uid)
    assert len(results) == count
    assert all(r["value"] == r["id"] == f"song-{n}" for n, r in enumerate(results))
    await checks.stored_once(h, uid, Span(0, count))
    await checks.nothing_left(h)
    assert all(w.rss_bytes() < 150 << 20 for w in workers)


async def test_a_million_items_start_at_once(make_house: MakeHouse) -> None:
    """First poll within a second of admission, the worker's memory flat (FIELD 15)."""
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=20)
    await h.entry()
    await h.reaper()
    worker = await h.worker(seats="2")
    await h.accounts(2)
    await h.seats(2)
    await h.call("PUT", "/catalogues/all", json={"items": [f"s{n}" for n in range(1_000_000)]}, timeout=120)
    before = worker.rss_bytes()
    uid = await h.submit(catalogue="all")
    await h.done(uid, 10)
    await h.done(uid, 100)
    assert worker.rss_bytes() - before < 40 << 20
    world = await h.world()
    first = datetime.now(UTC) - timedelta(seconds=world["now"] - min(call[3] for call in world["calls"]))
    admitted = datetime.fromisoformat((await h.job(uid))["admitted_at"])
    # Chunks go out in several batches and the tag says "admitted" after the last: polling began before that.
    assert first - admitted < timedelta(seconds=1)
    assert (await h.call("DELETE", f"/jobs/{uid}"))["status"] == "cancelled"
    await checks.nothing_left(h)


async def test_a_job_is_divided_by_the_seats_alive_now(make_house: MakeHouse) -> None:
    """No seat alive: the default; three alive: three."""
    h = await make_house(default_seats="5")
    await h.upstream(accounts=3, latency_ms=1)
    await h.entry()
    await h.reaper()
    await h.catalogue(240)
    first = await h.submit("player 1")
    await until(lambda: _active(h, 1), 10, "the job is admitted")
    assert (await h.job(first))["seats"] == 5
    await h.worker(seats="3")
    await h.accounts(3)
    await h.seats(3)
    second = await h.submit("player 2", policy="window")
    job = await h.ended(second)
    assert (job["seats"], job["chunks"]) == (3, 3)
    await h.ended(first)


async def test_an_account_keeps_its_allowance_with_several_calls_at_once(make_house: MakeHouse) -> None:
    """rate_per_s holds whatever the concurrency, across leases and logins; the upstream counts every second."""
    h = await make_house()
    adapter = h.folder / "paced.toml"
    adapter.write_text(REFERENCE.read_text().replace("concurrency = 1", "concurrency = 3\nrate_per_s = 20"))
    await h.upstream(accounts=2, latency_ms=80, rate=20)
    await h.entry()
    await h.reaper()
    worker = await h.worker(seats="2", upstream=str(adapter))
    await h.accounts(2)
    items = await h.catalogue(160)
    await h.seats(2)
    uid = await h.submit()
    await h.done(uid, 60)
    await h.worker(seats="2", upstream=str(adapter))
    worker.stop()
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", items)
    world = await h.world()
    assert world["over_rate"] == 0
    assert world["counts"].get("status_429", 0) == 0
    assert world["overlaps"] > 0  # several at once, as the adapter allows
    assert set((await checks.polls(h, "player 1")).values()) == {1}


async def test_a_reinjected_chunk_changes_nothing(make_house: MakeHouse) -> None:
    """Messages that came back after a restart: no call, nothing changes, acknowledged (FIELD 3, 14)."""
    h = await fleet(make_house, latency_ms=60)
    items = await h.catalogue(120)
    uid = await h.submit()
    await h.done(uid, 40)
    bus = await h.bus()
    tag = await bus.tags.get(uid)
    assert tag is not None
    stored = await bus.results.stored(uid)
    again = max(stored, key=lambda span: span.size)
    body = encode(ChunkBody(uid, tag.essential.catalogue, "player 1"))
    assert await bus.work.put(subjects.chunk(ChunkName(uid, again, 1)), body)
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", items)
    assert set((await checks.polls(h, "player 1")).values()) == {1}
    # and once more after the end, where no consumer is left to deliver it: the reaper sweeps it
    assert await bus.work.put(subjects.chunk(ChunkName(uid, again, 1)), body)
    await checks.nothing_left(h)
    assert set((await checks.polls(h, "player 1")).values()) == {1}
    assert (await h.job(uid))["status"] == "completed"


async def test_one_garbage_message_strands_nothing(make_house: MakeHouse) -> None:
    """Garbage on a job's subjects is filed with its reason; the job completes, the worker lives (FIELD 5)."""
    h = await fleet(make_house, latency_ms=40)
    items = await h.catalogue(100)
    uid = await h.submit()
    bus = await h.bus()
    await h.done(uid, 1)
    await bus.work.put(f"cuscuta.chunk.{uid}.not-a-span.1", b"{}")
    await bus.work.put(f"cuscuta.chunk.{uid}.5-6.7", b"\xff\x00garbage")
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", items)
    answer = await bus.broker.api("STREAM.INFO.CUSCUTA_DEAD", {"subjects_filter": f"cuscuta.dead.{uid}.*"})
    assert len(answer["state"]["subjects"]) == 2
    assert all(p.running() for p in h.procs)


async def test_an_idle_fleet_picks_a_job_up_at_once(make_house: MakeHouse) -> None:
    """A hundred one-item jobs, one after another, on an idle fleet: no pull waits its whole timeout (FIELD 11)."""
    h = await fleet(make_house, latency_ms=0)
    await h.catalogue(1)
    waits = []
    for n in range(100):
        began = time.perf_counter()
        uid = await h.submit(f"player {n}")
        await h.ended(uid)
        waits.append(time.perf_counter() - began)
    # The kind of fault is a wait of whole seconds; milliseconds are for the benchmark.
    assert statistics.median(waits) < 0.5
    assert sorted(waits)[97] < 1.5, sorted(waits)[-5:]


async def test_children_that_fail_in_any_way_end_the_job(make_house: MakeHouse) -> None:
    """An adapter that raises, returns what JSON cannot say, or never returns: terminal, span listed (FIELD 2, 13)."""
    for kind in ("Raises", "Unserialisable", "Hangs", "Cancels"):
        h = await make_house(
            upstream=f"tests.support.adapters:{kind}", max_attempts="2", max_deliver="3", item_timeout_s="0.3",
            transient_retries="0",
        )  # fmt: skip
        await h.entry()
        await h.reaper()
        await h.worker(seats="2")
        await h.accounts(2)
        await h.catalogue(8)
        await h.seats(2)
        uid = await h.submit(policy="single")
        job = await h.ended(uid, 20)
        assert job["status"] == "failed", (kind, job)
        assert job["progress"]["missing"] == [[3, 8]], (kind, job)
        assert [r["index"] for r in await h.results(uid)] == [0, 1, 2]
        assert "password-" not in str(job)
        assert {a["rate"] for a in await h.call("GET", "/accounts")} == {1.0}  # no account is blamed
        await checks.nothing_left(h)
        await h.__aexit__(None, None, None)
        h.folder.mkdir(exist_ok=True)


async def test_a_chunk_that_always_kills_its_worker_is_given_up(make_house: MakeHouse) -> None:
    """The death of its holders counts as attempts; then it is filed and the job ends (FIELD 2, 13)."""
    h = await make_house(
        upstream="tests.support.adapters:Kills", max_attempts="2", max_deliver="3", ack_wait_s="1",
        item_timeout_s="0.5", flush_s="0.3", mend_after_s="1",
    )  # fmt: skip
    await h.entry()
    await h.reaper()
    await h.accounts(6)
    await h.catalogue(8)
    uid = await h.submit(policy="single")

    async def over() -> bool:
        if not any(p.running() for p in h.procs if "worker" in p.name):
            await h.worker(wait=False, seats="1")
        return bool((await h.job(uid))["status"] == "failed")

    await until(over, 60, "the job ends", 0.2)
    job = await h.job(uid)
    assert job["failure_counts"]["GivenUp"] == 1
    assert job["progress"]["missing"][-1][1] == 8
    await checks.nothing_left(h)


async def test_high_goes_before_normal_before_low_and_low_is_not_starved(make_house: MakeHouse) -> None:
    h = await make_house(max_active_jobs="1", upstream="noop")
    await h.entry()
    await h.reaper()
    await h.catalogue(2)
    first = await h.submit("first", priority="low")
    low = [await h.submit(f"low {n}", priority="low") for n in range(3)]
    normal = [await h.submit(f"normal {n}") for n in range(3)]
    high = [await h.submit(f"high {n}", priority="high") for n in range(20)]
    await h.worker(seats="1")
    await h.accounts(1)
    jobs = [await h.ended(uid) for uid in [first, *low, *normal, *high]]
    order = [j["uid"] for j in sorted(jobs, key=lambda j: j["admitted_at"])]
    assert order[0] == first
    place = {uid: n for n, uid in enumerate(order)}
    assert place[high[0]] < place[normal[0]] < place[high[-1]]  # urgent first, but normal has its share
    assert place[high[5]] < min(place[uid] for uid in low)
    assert place[low[0]] < place[high[-1]]  # and low has its own
    await checks.nothing_left(h)


async def test_a_backlog_keeps_its_consumers_bounded(make_house: MakeHouse) -> None:
    h = await make_house(max_active_jobs="3", upstream="noop")
    await h.entry()
    await h.entry()  # two replicas race for the places
    await h.reaper()
    await h.catalogue(5)
    uids = [await h.submit(f"player {n}") for n in range(60)]
    bus = await h.bus()
    await until(lambda: _active(h, 3), 10, "three jobs are active")
    await h.worker(seats="4")
    await h.accounts(4)
    most = 0
    for uid in uids:
        while (await h.job(uid))["status"] not in ("completed", "failed"):
            most = max(most, await bus.work.active_consumers())
    assert most <= 3
    assert {(await h.job(uid))["status"] for uid in uids} == {"completed"}
    await checks.nothing_left(h)


async def _active(h: House, count: int) -> bool:
    return await (await h.bus()).work.active_consumers() == count
