"""One group's many jobs beside another's one (FIELD 17)."""

from collections import Counter

from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.house import House, gather
from tests.support.wait import until

SEATS, CHUNK = 2, 4


async def busy(make_house: MakeHouse, jobs: int, items: int = 20) -> House:
    """Two seats on many jobs of the red group, more than there are places."""
    h = await make_house(max_active_jobs="10", donation="false")
    await h.upstream(accounts=SEATS, latency_ms=20)
    await h.entry()
    await h.reaper()
    await h.accounts(SEATS)
    await h.catalogue(items)
    await gather(*(many(h, "red", n) for n in range(jobs)))
    await h.worker(seats=str(SEATS))
    return h


async def many(h: House, group: str, n: int) -> str:
    return await h.submit(f"{group} {n}", key=None, labels={"group": group}, chunk_items=CHUNK)


async def calls(h: House) -> list[str]:
    """Whose polls the upstream has seen, in order."""
    return [str(call[1]).split()[0] for call in (await h.world())["calls"]]


async def polled(h: House, count: int) -> bool:
    return len(await calls(h)) >= count


async def test_one_job_of_a_group_waits_for_two_chunks_at_most(make_house: MakeHouse) -> None:
    h = await busy(make_house, 60)
    await until(lambda: polled(h, 40), 20, "the red group is served")
    world = await h.world()
    assert len({call[0] for call in world["calls"]}) == SEATS  # alone it has every seat
    bus = await h.bus()
    assert await bus.work.active_consumers() <= 8  # a place for what is urgent, one for newcomers
    before = len(world["calls"])
    blue = await h.submit("blue 0", key=None, labels={"group": "blue"}, to=CHUNK, chunk_items=CHUNK)
    await h.ended(blue)
    since = (await calls(h))[before:]
    begun = since.index("blue")
    # What the two seats had in hand, and what they polled while it was submitted and admitted.
    assert begun <= 2 * SEATS * CHUNK, since[: begun + 1]
    assert (await h.job(blue))["status"] == "completed"
    queue = await h.call("GET", "/queue")
    assert queue["waiting"]["normal"] > 20  # the others wait still
    reds = (await h.call("GET", "/jobs", params={"label": "group:red", "limit": 100}))["jobs"]
    await h.call("DELETE", "/jobs", params={"label": "group:red", "dry_run": "false"})
    assert len(reds) == 60
    await checks.nothing_left(h)


async def test_two_groups_have_equal_shares(make_house: MakeHouse) -> None:
    """Sixty jobs and twenty: half of the polls each, as long as both have work."""
    h = await busy(make_house, 60)
    await until(lambda: polled(h, 20), 20, "the red group is served")
    await gather(*(many(h, "blue", n) for n in range(20)))
    before = len(await calls(h))
    await until(lambda: polled(h, before + 240), 30, "both are served")
    share = Counter((await calls(h))[before + 40 : before + 240])
    assert 80 <= share["blue"] <= 120, share
    for group in ("red", "blue"):
        await h.call("DELETE", "/jobs", params={"label": f"group:{group}", "dry_run": "false"})
    await checks.nothing_left(h)
