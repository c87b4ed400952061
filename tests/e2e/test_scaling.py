"""`GET /scaling` through a job's life and an entry's restart: 0 when idle, never a wrong 0."""

from typing import Any

from tests.conftest import MakeHouse
from tests.support.house import House
from tests.support.wait import until


async def told(h: House) -> dict[str, Any]:
    found: dict[str, Any] = await h.call("GET", "/scaling")
    return found


async def test_it_follows_the_work_and_survives_a_restart(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.upstream(accounts=3, latency_ms=50)
    entry = await h.entry()
    await h.accounts(3)
    await h.catalogue(60)
    idle = {"waiting_items": 0, "in_flight_items": 0, "backlog_items": 0, "backlog_s": 0.0, "seats_useful": 0}
    assert await told(h) == {**idle, "seats": 0, "accounts_free": 3}
    uids = [await h.submit(f"player {n}", key="lane") for n in range(2)]

    async def out() -> bool:
        return bool((await told(h))["in_flight_items"] == 60)

    await until(out, 10, "the first is admitted")
    waiting = await told(h)
    assert (waiting["waiting_items"], waiting["backlog_items"], waiting["seats_useful"]) == (60, 120, 3)
    assert waiting["backlog_s"] is None  # nobody knows how long an item takes
    entry.kill()
    await h.entry()
    assert await told(h) == waiting
    await h.worker(seats="2")
    await h.done(uids[0], 20)

    async def known() -> bool:
        return bool((await told(h))["backlog_s"])

    await until(known, 10, "a worker has told how quick it is")
    found = await told(h)
    assert 0 < found["backlog_items"] < 120
    assert 0 < found["backlog_s"] < 60
    assert (found["seats"], found["accounts_free"]) == (2, 1)
    for uid in uids:
        await h.ended(uid)
    assert await told(h) == {**idle, "seats": 2, "accounts_free": 1}
