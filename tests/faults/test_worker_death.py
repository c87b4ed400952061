"""A worker dies, stalls or is told to stop in the middle of a chunk."""

import signal
import time

from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.wait import until


async def test_kill_in_mid_chunk(make_house: MakeHouse) -> None:
    """kill -9: the rest of its chunk runs elsewhere within ack-wait, and what was stored is not polled again."""
    h = await make_house()
    await h.upstream(accounts=4, latency_ms=50)
    await h.entry()
    await h.reaper()
    victim = await h.worker(seats="1")
    await h.accounts(4)
    items = await h.catalogue(240)
    await h.seats(1)
    uid = await h.submit(policy="single")
    job = await h.done(uid, 20)
    await h.worker(seats="1")
    await h.seats(2)
    victim.kill()
    killed = time.monotonic()
    stored = (await h.job(uid))["progress"]["done"]

    async def goes_on() -> bool:
        return bool((await h.job(uid))["progress"]["done"] > stored)

    await until(goes_on, 3 + 1 + 1 + 2, "the rest is running elsewhere")  # ack-wait, the bound, a flush, and slack
    assert time.monotonic() - killed < 7
    await h.ended(uid)
    job = await checks.complete(h, uid, "player 1", items)
    assert job["failure_counts"] == {"WorkerHalting": 1}
    counts = await checks.polls(h, "player 1")
    again = [item for item in items[: stored - 1] if counts[item] > 1]
    assert again == []  # nothing that was stored was polled again
    await checks.never_together(h)


async def test_sigterm_hands_over_at_once(make_house: MakeHouse) -> None:
    """SIGTERM: no new pull, the item in hand finishes, the rest starts elsewhere within a second, exit 0 (FIELD 6)."""
    h = await make_house()
    await h.upstream(accounts=4, latency_ms=100)
    await h.entry()
    await h.reaper()
    first = await h.worker(seats="1")
    await h.accounts(4)
    items = await h.catalogue(60)
    await h.seats(1)
    uid = await h.submit(policy="single")
    await h.done(uid, 5)
    await h.worker(seats="1")
    await h.seats(2)
    before = {call[0] for call in (await h.world())["calls"]}
    moment = (await h.world())["now"]
    code, took = first.stop()
    assert code == 0
    assert took < 5
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", items)
    calls = (await h.world())["calls"]
    taken_over = min(call[3] for call in calls if call[0] not in before)
    assert taken_over - moment < 1.0 + 0.5  # the promise, and slack for a loaded machine
    assert set((await checks.polls(h, "player 1")).values()) == {1}
    assert (await h.states()).get("Using", 0) == 1  # the first one's account was given back
    await checks.never_together(h)


async def test_a_stalled_worker_throws_its_work_away(make_house: MakeHouse) -> None:
    """SIGSTOP past ack-wait: another seat goes on; what the sleeper wakes up with changes nothing."""
    h = await make_house()
    await h.upstream(accounts=4, latency_ms=50)
    await h.entry()
    await h.reaper()
    sleeper = await h.worker(seats="1")
    await h.accounts(4)
    items = await h.catalogue(240)
    await h.seats(1)
    uid = await h.submit(policy="single")
    await h.done(uid, 10)
    await h.worker(seats="1")
    await h.seats(2)
    sleeper.send(signal.SIGSTOP)
    stored = (await h.job(uid))["progress"]["done"]
    await h.done(uid, stored + 20, timeout=15)
    sleeper.send(signal.SIGCONT)
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", items)
    await checks.never_together(h)


async def test_a_slow_healthy_chunk_is_not_redelivered(make_house: MakeHouse) -> None:
    """A chunk three times ack-wait long on a healthy worker: one start, calls = items (FIELD 1)."""
    h = await make_house()
    await h.upstream(accounts=4, latency_ms=300)
    await h.entry()
    await h.reaper()
    await h.worker(seats="1")
    await h.worker(seats="1")
    await h.accounts(4)
    items = await h.catalogue(32)
    await h.seats(2)
    uid = await h.submit(policy="single")
    await h.ended(uid)
    job = await checks.complete(h, uid, "player 1", items)
    assert job["failure_counts"] == {}
    assert set((await checks.polls(h, "player 1")).values()) == {1}
    assert len({call[0] for call in (await h.world())["calls"]}) == 1


async def test_rolling_restarts_eat_no_attempts(make_house: MakeHouse) -> None:
    """Ten rolling restarts with two attempts allowed: completed, nothing given up (FIELD 7)."""
    h = await make_house(max_attempts="2", max_deliver="3")
    await h.upstream(accounts=8, latency_ms=60)
    await h.entry()
    await h.reaper()
    await h.accounts(8)
    items = await h.catalogue(200)
    worker = await h.worker(seats="2")
    await h.seats(1)
    uid = await h.submit()
    for _ in range(10):
        following = await h.worker(seats="2")
        code, _ = worker.stop()
        assert code == 0
        worker = following
    await h.ended(uid)
    job = await checks.complete(h, uid, "player 1", items)
    assert set(job["failure_counts"]) <= {"WorkerHalting"}
    assert set((await checks.polls(h, "player 1")).values()) == {1}
