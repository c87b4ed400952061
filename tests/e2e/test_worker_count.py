"""From one worker process to eight and back, while jobs run: nothing is lost, nothing is stored or polled twice."""

import asyncio

from tests.conftest import MakeHouse
from tests.support import checks

ITEMS = 60


async def test_processes_come_and_go_under_load(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.upstream(accounts=16, latency_ms=20)
    await h.entry()
    await h.reaper()
    workers = [await h.worker(seats="2")]
    await h.accounts(16)
    items = await h.catalogue(ITEMS)
    jobs: dict[str, str] = {}
    over = False

    async def lane(name: str) -> None:
        n = 0
        while not over:
            n += 1
            target = f"player {name} {n}"
            jobs[target] = await h.submit(target, key=name)
            await h.ended(jobs[target], 90)

    async with asyncio.TaskGroup() as group:
        for name in ("one", "two", "three"):
            group.create_task(lane(name))
        started = [h.worker(seats="2", wait=False) for _ in range(7)]
        workers += [await start for start in started]
        await h.seats(16)
        seen = len(jobs)
        while len(jobs) < seen + 6:  # all sixteen have work for a while
            await h.seats(16)
        for worker in workers[1:]:
            code, _ = await asyncio.to_thread(worker.stop)
            assert code == 0, worker.text()[-2000:]
        seen = len(jobs)
        while len(jobs) < seen + 2:  # and one alone goes on
            await h.seats(2)
        over = True
    bus = await h.bus()
    for target, uid in jobs.items():
        await checks.complete_values(h, uid, target, items)
        assert sum(span.size for span in await bus.results.stored(uid)) == ITEMS
        polls = await checks.polls(h, target)
        assert len(polls) == ITEMS
        assert sum(polls.values()) == ITEMS, target  # a clean stop hands on, it does not repeat
    assert len({call[0] for call in (await h.world())["calls"]}) == 16
    assert (await h.states()).get("Using", 0) <= 2
    await checks.nothing_left(h)
