"""Shared polls: jobs on one catalogue that ride along with each other, on real processes."""

from typing import Any

from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.house import REFERENCE, House
from tests.support.wait import until
from worker.upstream.reference.rules import score


async def sharing(make_house: MakeHouse, items: int, latency_ms: float = 20, **options: str) -> tuple[House, list[str]]:
    h = await make_house(upstream=str(REFERENCE.with_name("shared.toml")))
    await h.upstream(accounts=4, latency_ms=latency_ms, **options)
    await h.entry()
    await h.reaper()
    for _ in range(2):
        await h.worker(seats="2")
    await h.accounts(4)
    made = await h.catalogue(items)
    await h.seats(4)
    return h, made


async def test_jobs_on_one_catalogue_share_polls_and_stay_right_each(make_house: MakeHouse) -> None:
    """Five players at once: one catalogue's polls and a little; each job has its own values, once."""
    h, items = await sharing(make_house, 200)
    uids = {f"player {n}": await h.submit(f"player {n}") for n in range(5)}
    for target, uid in uids.items():
        await h.ended(uid)
        await checks.complete(h, uid, target, items)
    world = await h.world()
    assert world["counts"]["polls"] <= 1.5 * 200, world["counts"]  # 1,000 without sharing
    assert world["overlaps"] == 0


async def test_a_ride_is_in_the_riding_jobs_map(make_house: MakeHouse) -> None:
    h, _ = await sharing(make_house, 200, latency_ms=100)
    first, second = await h.submit("player 1"), await h.submit("player 2")

    async def ridden() -> list[Any]:
        cells = (await h.call("GET", f"/deployment/jobs/{second}"))["cells"]
        return [cell for cell in cells if cell["state"] == "ridden"]

    (cell, *_) = await until(ridden, 20, "the map shows a ride")
    workers = {worker["worker"] for worker in await h.call("GET", "/workers")}
    assert cell["by"].split()[0] in workers
    for uid in (first, second):
        await h.ended(uid)
    cells = (await h.call("GET", f"/deployment/jobs/{second}"))["cells"]
    assert {cell["state"] for cell in cells} == {"done"}


async def test_a_rider_that_cannot_be_followed_fails_alone(make_house: MakeHouse) -> None:
    h, items = await sharing(make_house, 120)
    good = await h.submit("player 1")
    bad = await h.submit("unknown player")
    other = await h.submit("player 2")
    assert (await h.ended(bad))["status"] == "failed"
    assert (await h.job(bad))["failure_counts"].get("TargetNotFound", 0) >= 1
    for target, uid in (("player 1", good), ("player 2", other)):
        await h.ended(uid)
        job = await checks.complete(h, uid, target, items)
        assert job["failure_counts"] == {}


async def test_a_cancelled_rider_leaves_the_others_alone(make_house: MakeHouse) -> None:
    h, items = await sharing(make_house, 160)
    first, second = await h.submit("player 1"), await h.submit("player 2")
    await h.done(second, 20)  # by rides
    cancelled = await h.call("DELETE", f"/jobs/{second}")
    assert cancelled["status"] == "cancelled"
    await h.ended(first)
    await checks.complete(h, first, "player 1", items)
    assert (await h.job(second))["status"] == "cancelled"
    read = await h.results(second)
    assert all(r["value"] == score("player 2", r["id"]) for r in read)


async def test_a_rider_that_comes_late_gets_the_beginning_later(make_house: MakeHouse) -> None:
    h, items = await sharing(make_house, 200)
    first = await h.submit("player 1")
    await h.done(first, 100)
    late = await h.submit("player 2")
    for target, uid in (("player 1", first), ("player 2", late)):
        await h.ended(uid)
        await checks.complete(h, uid, target, items)
    assert (await h.world())["counts"]["polls"] < 1.8 * 200


async def test_jobs_on_different_catalogues_do_not_ride(make_house: MakeHouse) -> None:
    h, items = await sharing(make_house, 60, latency_ms=5)
    others = await h.catalogue([f"piece-{n}" for n in range(60)], "pieces")
    one, two = await h.submit("player 1"), await h.submit("player 2", "pieces")
    for target, uid, made in (("player 1", one, items), ("player 2", two, others)):
        await h.ended(uid)
        await checks.complete(h, uid, target, made)


async def test_an_item_without_a_value_for_one_target_is_its_own_error(make_house: MakeHouse) -> None:
    """`hidden` players are not on the board: an item's error for them, a value for the others."""
    h, items = await sharing(make_house, 40)
    seen, hidden = await h.submit("player 1"), await h.submit("hidden player")
    await h.ended(seen)
    await checks.complete(h, seen, "player 1", items)
    assert (await h.ended(hidden))["status"] == "completed"
    assert {r["error"]["type"] for r in await h.results(hidden)} == {"ItemNotFound"}


async def test_items_that_fail_for_all_leave_every_value_in_its_place(make_house: MakeHouse) -> None:
    """A song that is not there is an error for each job on board, and what follows it keeps its own value."""
    h, _ = await sharing(make_house, 1)
    names = [("missing-" if n % 7 == 3 else "song-") + str(n) for n in range(90)]
    await h.catalogue(names)
    uids = {f"player {n}": await h.submit(f"player {n}") for n in range(4)}
    for target, uid in uids.items():
        assert (await h.ended(uid))["status"] == "completed"
        for index, row in enumerate(await h.results(uid)):
            assert row["id"] == names[index]
            if names[index].startswith("missing"):
                assert row["error"]["type"] == "ItemNotFound"
            else:
                assert row["value"] == score(target, names[index])
    assert (await h.world())["counts"]["polls"] < 2 * 90


async def test_a_follow_that_costs_more_than_it_saves_is_not_made(make_house: MakeHouse) -> None:
    """40 items of 20 ms are not worth two calls of a second: each job is polled for by those who follow it anyway."""
    h, items = await sharing(make_house, 40)
    await h.ended(await h.submit("warm up"))  # by now each account knows how long a poll takes
    await h.control(set={"follow_s": 1.0}, reset=True)
    uids = {f"player {n}": await h.submit(f"player {n}") for n in range(3)}
    for target, uid in uids.items():
        await h.ended(uid)
        await checks.complete(h, uid, target, items)
    world = await h.world()
    assert world["counts"]["polls"] > 2 * 40, world["counts"]  # rides alone would have needed little more than 40


async def test_lanes_rides_and_a_cancellation_at_once(make_house: MakeHouse) -> None:
    """Two lanes of two and a job of its own, all on one catalogue; the head of one lane is cancelled on its ride."""
    h, items = await sharing(make_house, 150)
    alone = await h.submit("player 0")
    one = [await h.submit(f"player {n}", key="one") for n in (1, 2)]
    two = [await h.submit(f"player {n}", key="two") for n in (3, 4)]
    await h.done(two[0], 20)
    assert (await h.call("DELETE", f"/jobs/{two[0]}"))["status"] == "cancelled"
    for target, uid in (("player 0", alone), ("player 1", one[0]), ("player 2", one[1]), ("player 4", two[1])):
        await h.ended(uid)
        job = await checks.complete(h, uid, target, items)
        assert job["failure_counts"] == {}
    for first, second in (one, two):
        assert (await h.job(second))["admitted_at"] >= (await h.job(first))["ended_at"]
    cancelled = await h.job(two[0])
    assert cancelled["status"] == "cancelled"
    assert 20 <= cancelled["progress"]["done"] < 150
    assert all(row["value"] == score("player 3", row["id"]) for row in await h.results(two[0]))
    calls = (await h.world())["calls"]
    assert len(calls) < 3 * 150, len(calls)  # 4 catalogues and a bit without sharing


async def test_more_jobs_than_slots_share_as_far_as_the_slots_go(make_house: MakeHouse) -> None:
    h, items = await sharing(make_house, 80, latency_ms=5)
    adapter = h.folder / "narrow.toml"
    adapter.write_text(REFERENCE.with_name("shared.toml").read_text().replace("= 40", "= 3"))
    for worker in [proc for proc in h.procs if "worker" in proc.name]:
        worker.stop()
    for _ in range(2):
        await h.worker(seats="2", upstream=str(adapter))
    await h.seats(4)
    uids = {f"player {n}": await h.submit(f"player {n}") for n in range(7)}
    for target, uid in uids.items():
        await h.ended(uid)
        await checks.complete(h, uid, target, items)
    world = await h.world()
    assert max(map(len, world["friends"].values())) <= 3
    assert world["counts"]["polls"] < 5 * 80  # 7 without sharing, 7 / 3 at the best


async def test_jobs_of_one_lane_do_not_ride_on_each_other(make_house: MakeHouse) -> None:
    """The second begins when the first has ended, however much they could share."""
    h, items = await sharing(make_house, 60, latency_ms=5)
    first, second = await h.submit("player 1", key="lane"), await h.submit("player 2", key="lane")
    await h.ended(second)
    for target, uid in (("player 1", first), ("player 2", second)):
        await checks.complete(h, uid, target, items)
    assert (await h.job(second))["admitted_at"] >= (await h.job(first))["ended_at"]
