"""NATS and PostgreSQL go away under load and come back; entry and reaper are stopped and killed."""

import asyncio

import httpx
import pytest

from cuscuta.embedded.postgres import Postgres
from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.house import House, gather
from tests.support.wait import until


async def test_nats_restarts_under_load(make_house: MakeHouse) -> None:
    """kill -9 of nats-server in the middle of two jobs: nothing is lost, nothing stored twice."""
    h = await make_house()
    h.nats._sync = "always"
    await h.upstream(accounts=6, latency_ms=30)
    await h.entry()
    await h.reaper()
    await h.worker(seats="3")
    await h.worker(seats="3")
    await h.accounts(6)
    items = await h.catalogue(400)
    await h.seats(6)
    uids = [await h.submit("player 1"), await h.submit("player 2")]
    await h.done(uids[0], 50)
    h.nats.kill()
    h.nats.start()
    await gather(*(h.ended(uid) for uid in uids))
    for n, uid in enumerate(uids, 1):
        await checks.complete(h, uid, f"player {n}", items)
    await checks.never_together(h)


async def test_nats_away_for_longer_than_ack_wait(make_house: MakeHouse) -> None:
    """NATS away under five workers: all go on within 5 s of its return (FIELD 8)."""
    h = await make_house()
    await h.upstream(accounts=5, latency_ms=40)
    await h.entry()
    await h.reaper()
    for _ in range(5):
        await h.worker(seats="1")
    await h.accounts(5)
    items = await h.catalogue(600)
    await h.seats(5)
    uid = await h.submit()
    await h.done(uid, 30)
    h.nats.kill()

    async def quiet() -> bool:
        world = await h.world()
        return bool(world["now"] - max(call[4] for call in world["calls"]) > 9)

    await until(quiet, 30, "nobody polls what cannot be written")
    h.nats.start()
    back = (await h.world())["now"]

    async def everybody() -> bool:
        return len({call[0] for call in (await h.world())["calls"] if call[3] > back}) == 5

    await until(everybody, 5 + 2, "all five accounts are at work again")
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", items)
    await checks.never_together(h)


async def test_postgres_restarts_under_load(make_house: MakeHouse, postgres: Postgres) -> None:
    """PostgreSQL is killed and restarted: leases outlive it, and work goes on."""
    h = await make_house()
    await h.upstream(accounts=4, latency_ms=30)
    entry = await h.entry()
    await h.reaper()
    await h.worker(seats="2")
    await h.worker(seats="2")
    await h.accounts(4)
    items = await h.catalogue(500)
    await h.seats(4)
    uid = await h.submit()
    await h.done(uid, 50)
    postgres.kill()

    async def red() -> bool:
        return (await h.http.get("/readyz")).status_code == 503

    await until(red, 10, "readiness is red")
    cause = (await h.http.get("/readyz")).json()
    assert "postgres" in cause["causes"]
    assert (await h.http.get("/accounts")).status_code == 503
    await asyncio.to_thread(postgres.start)
    await h.ready(str(h.http.base_url).rstrip("/"), entry)
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", items)
    await checks.never_together(h)
    for proc in h.procs:
        if "worker" in proc.name:
            code, _ = proc.stop()
            assert code == 0
    await checks.no_leases(h)


async def test_entry_stopped_and_killed(make_house: MakeHouse) -> None:
    """SIGTERM and kill -9 of entry under submits: every accepted job ends, a second replica goes on."""
    h = await make_house()
    await h.upstream(accounts=4, latency_ms=2)
    first = await h.entry()
    await h.reaper()
    await h.worker(seats="4")
    await h.accounts(4)
    items = await h.catalogue(20)
    await h.seats(4)
    accepted = [await h.submit(f"player {n}") for n in range(10)]
    code, _ = first.stop()
    assert code == 0
    second = await h.entry()
    accepted += [await h.submit(f"player {n}") for n in range(10, 20)]
    submitting = asyncio.create_task(_submit_until_refused(h))
    await asyncio.wait({submitting}, timeout=0.3)
    second.kill()
    accepted += await submitting
    await h.entry()
    for uid in accepted:
        await h.ended(uid)
        assert (await h.job(uid))["status"] == "completed"
        assert len(await h.results(uid)) == len(items)
    await checks.nothing_left(h)


async def _submit_until_refused(h: House) -> list[str]:
    uids, n = [], 100
    while True:
        n += 1
        try:
            uids.append(await h.submit(f"player {n}"))
        except httpx.TransportError:
            return uids


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_the_active_reaper_is_replaced(make_house: MakeHouse, how: str) -> None:
    """SIGTERM (exit 0) or kill -9 of the active reaper: the standby takes over within 10 s."""
    h = await make_house()
    await h.entry()
    active = await h.reaper()
    standby = await h.reaper()

    async def is_active() -> bool:
        return '"event": "active"' in active.text()

    await until(is_active, 10, "the first reaper is active")
    assert '"event": "active"' not in standby.text()
    if how == "stopped":
        code, took = active.stop()
        assert (code, took < 5) == (0, True)
    else:
        active.kill()

    async def taken_over() -> bool:
        return '"event": "active"' in standby.text()

    await until(taken_over, 10, "the standby is active")


async def test_readiness_of_every_part_is_red_while_nats_is_away(make_house: MakeHouse) -> None:
    """503 with the cause from entry, worker and reaper, never 500; liveness stays green; then ready again."""
    h = await make_house(upstream="noop")
    await h.entry()
    await h.worker()
    await h.reaper()
    urls = dict(h.urls)
    assert len(urls) == 3
    h.nats.kill()
    for name, url in urls.items():

        async def red(url: str = url) -> bool:
            response = await h.http.get(f"{url}/readyz")
            assert response.status_code in (200, 503)
            return response.status_code == 503 and bool(response.json()["causes"])

        await until(red, 15, f"{name} is not ready")
        assert (await h.http.get(f"{url}/livez")).status_code == 200
    h.nats.start()
    for name, url in urls.items():

        async def green(url: str = url) -> bool:
            return (await h.http.get(f"{url}/readyz")).status_code == 200

        await until(green, 20, f"{name} is ready again")


async def test_requests_under_way_are_finished_at_a_stop(make_house: MakeHouse) -> None:
    """SIGTERM of entry in a burst of submits: each is accepted or never reached it; no 5xx."""
    h = await make_house()
    entry = await h.entry()
    await h.catalogue(3)

    async def submit(n: int) -> int:
        try:
            body = {"target": f"player {n}", "catalogue": "songs"}
            return (await h.http.post("/jobs", json=body)).status_code
        except httpx.TransportError:
            return 0

    burst = [asyncio.create_task(submit(n)) for n in range(80)]
    await asyncio.wait(burst, return_when=asyncio.FIRST_COMPLETED)
    code, _ = await asyncio.to_thread(entry.stop)
    assert code == 0
    answers = [await task for task in burst]
    assert set(answers) <= {202, 0}
    accepted = answers.count(202)
    assert accepted > 0
    await h.entry()
    assert len((await h.call("GET", "/jobs", params={"limit": 100}))["jobs"]) >= accepted


async def test_garbage_in_every_bucket_and_stream_kills_nobody(make_house: MakeHouse) -> None:
    """Records that are not ours: logged, passed over, and jobs go on."""
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=5)
    await h.entry()
    await h.reaper()
    await h.worker(seats="2")
    await h.accounts(2)
    items = await h.catalogue(30)
    await h.seats(2)
    bus = await h.bus()
    uid = "0" * 26
    for bucket in ("tags", "active", "results", "workers", "catalogues", "schedules"):
        for key in ("garbage", uid, f"{uid}.x.y", f"{uid}.5.1", "name.bad", "head.bad"):
            await bus.broker.publish(f"$KV.cuscuta_{bucket}.{key}", b"\xff not ours")
    for subject in ("lane.x.y", f"lane.x.{uid}", "admit.high.x", f"admit.normal.{uid}", "admit.low.everyone.x",
                    "chunk.x", f"chunk.{uid}.1-2.z", "unique.x", "after.x.y", "fire.x", f"fire.{uid}",
                    f"event.{uid}.x", f"dead.{uid}.x", f"dead.{uid}.5-1"):  # fmt: skip
        await bus.broker.publish(f"cuscuta.{subject}", b"\xff not ours")
    await bus.broker.tell("cuscuta.announce", b"\xff not ours")
    for n in range(3):
        job = await h.submit(f"player {n}")
        await h.ended(job)
        assert [r["id"] for r in await h.results(job)] == items
    for path in ("/jobs", "/queue", "/workers", "/accounts", "/schedules"):
        await h.call("GET", path)
    assert all(p.running() for p in h.procs)
    assert not any("Traceback" in p.text() for p in h.procs)
