"""A job's tail: donation, hedging, shared polls, and places for urgent jobs, on real processes."""

from collections import Counter

from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.house import REFERENCE, House
from tests.support.wait import until
from worker.upstream.reference.rules import score


async def two_seats(make_house: MakeHouse, latency_ms: float, **env: str) -> House:
    """Two processes of one seat each, and a division made for one."""
    h = await make_house(default_seats="1", **env)
    await h.upstream(accounts=2, latency_ms=latency_ms, slow=1, slow_factor=1)
    await h.entry()
    await h.reaper()
    return h


async def test_an_idle_seat_takes_a_share_of_what_a_busy_one_holds(make_house: MakeHouse) -> None:
    """A slow account takes the first chunk, half of all; it does not get to do it alone."""
    h = await two_seats(make_house, 20)
    await h.control("account-1@example.com", set={"latency_s": 0.1})
    items = await h.catalogue(256)
    uid = await h.submit()
    await until(lambda: _active(h, 1), 10, "the job is admitted")
    await h.accounts(1)
    await h.worker(seats="1")
    await h.done(uid, 0)
    await until(lambda: _polled(h, 1), 10, "the slow account is at work")
    await h.accounts(2)
    await h.worker(seats="1")
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", items)
    calls = [call for call in (await h.world())["calls"] if call[1] == "player 1"]
    assert set(Counter(call[2] for call in calls).values()) == {1}  # given away, not done twice
    by_account = Counter(call[0] for call in calls)
    assert 2 <= by_account["account-1@example.com"] < 128, by_account
    last = {email: max(call[4] for call in calls if call[0] == email) for email in by_account}
    assert abs(last["account-1@example.com"] - last["account-2@example.com"]) < 0.5  # they end together


async def test_without_donation_a_chunk_stays_with_its_holder(make_house: MakeHouse) -> None:
    h = await two_seats(make_house, 10, donation="false")
    items = await h.catalogue(64)
    uid = await h.submit()
    await until(lambda: _active(h, 1), 10, "the job is admitted")
    await h.accounts(1)
    await h.worker(seats="1")
    await until(lambda: _polled(h, 1), 10, "somebody is at work")
    await h.accounts(2)
    await h.worker(seats="1")
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", items)
    holders = {call[0] for call in (await h.world())["calls"] if call[1] == "player 1" and call[2] in items[:32]}
    assert len(holders) == 1


async def stuck(make_house: MakeHouse, repeatable: bool, **env: str) -> tuple[House, str, list[str], str]:
    """A job whose last item hangs for longer than anything else takes; (house, uid, items, the stuck item)."""
    h = await two_seats(make_house, 20, item_timeout_s="2.5", **env)
    adapter = h.folder / "adapter.toml"
    text = REFERENCE.read_text().replace(
        "follow_slots = 40", f"follow_slots = 40\nrepeatable = {str(repeatable).lower()}"
    )
    adapter.write_text(text)
    h.extra_env["CUSCUTA_UPSTREAM"] = str(adapter)
    await h.worker(seats="1")
    await h.worker(seats="1")
    await h.accounts(2)
    items = await h.catalogue(70)
    await h.seats(2)
    uid = await h.submit()
    await until(lambda: _polled(h, 40), 10, "more than half is done")
    await h.control("account-1@example.com", set={"mode": "nothing", "mode_calls": 1})
    await h.ended(uid)
    hung = [call for call in (await h.world())["calls"] if call[1] == "player 1" and call[5] == 0]
    return h, uid, items, hung[0][2]


async def test_an_item_that_a_seat_is_stuck_on_is_asked_for_by_another(make_house: MakeHouse) -> None:
    h, uid, items, item = await stuck(make_house, repeatable=True, hedging="true")
    job = await checks.complete(h, uid, "player 1", items)
    assert job["hedges"] >= 1
    polls = await checks.polls(h, "player 1")
    assert polls[item] == 2, [call for call in (await h.world())["calls"] if call[2] == item]
    assert sum(polls.values()) <= 70 + job["hedges"]
    assert job["hedges"] <= 2  # 3 % of 70
    all_calls = (await h.world())["calls"]
    asked, again = sorted(call[3] for call in all_calls if call[2] == item)
    assert next(call[4] for call in all_calls if call[2] == item and call[5] == 200) - asked < 2.5  # before its timeout
    assert max(call[3] for call in all_calls if call[2] != item) < again  # nobody idles while anything is to be done


async def test_what_must_not_be_repeated_is_not_asked_twice(make_house: MakeHouse) -> None:
    """The item is asked for again only after its call has timed out."""
    h, uid, items, item = await stuck(make_house, repeatable=False, hedging="true")
    job = await checks.complete(h, uid, "player 1", items)
    assert job["hedges"] == 0
    times = sorted(call[3] for call in (await h.world())["calls"] if call[2] == item)
    assert times[1] - times[0] >= 2.5


async def test_hedging_can_be_switched_off(make_house: MakeHouse) -> None:
    h, uid, items, _ = await stuck(make_house, repeatable=True, hedging="false")
    job = await checks.complete(h, uid, "player 1", items)
    assert job["hedges"] == 0


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
    await h.control(set={"follow_s": 1.0})
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
    h, items = await sharing(make_house, 80)
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
    assert world["counts"]["polls"] < 6 * 80  # 7 without sharing; a job without a slot waits for one, or polls alone


async def test_jobs_of_one_lane_do_not_ride_on_each_other(make_house: MakeHouse) -> None:
    """The second begins when the first has ended, however much they could share."""
    h, items = await sharing(make_house, 60, latency_ms=5)
    first, second = await h.submit("player 1", key="lane"), await h.submit("player 2", key="lane")
    await h.ended(second)
    for target, uid in (("player 1", first), ("player 2", second)):
        await checks.complete(h, uid, target, items)
    assert (await h.job(second))["admitted_at"] >= (await h.job(first))["ended_at"]


async def test_urgent_jobs_have_places_of_their_own(make_house: MakeHouse) -> None:
    """A tenth of the places is not for normal jobs, however many wait."""
    h = await make_house(max_active_jobs="20", upstream="noop")
    await h.entry()
    await h.reaper()
    await h.catalogue(2)
    for n in range(25):
        await h.submit(f"player {n}")
    await until(lambda: _active(h, 18), 10, "as many as may be active are")
    urgent = await h.submit("urgent", priority="high")
    await until(lambda: _pending(h, urgent), 5, "the urgent one is admitted")
    assert await (await h.bus()).work.active_consumers() == 19


async def test_a_request_can_wait_for_the_end(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.upstream(accounts=1, latency_ms=20)
    await h.entry()
    await h.worker(seats="1")
    await h.accounts(1)
    await h.catalogue(20)
    await h.seats(1)
    uid = await h.submit()
    assert (await h.call("GET", f"/jobs/{uid}", params={"wait_s": 20}))["status"] == "completed"
    uid = await h.submit("player 2")
    answer = await h.http.get(f"/jobs/{uid}/results", params={"wait_s": 20})
    assert answer.status_code == 200
    assert len(answer.json()["items"]) == 20
    uid = await h.submit("player 3")
    early = await h.http.get(f"/jobs/{uid}/results", params={"wait_s": 0.05})
    assert early.status_code == 206
    refused = await h.http.get(f"/jobs/{uid}", params={"wait_s": 31})
    assert refused.status_code in (400, 422)
    assert "wait_s" in refused.text


async def _active(h: House, count: int) -> bool:
    return await (await h.bus()).work.active_consumers() == count


async def _polled(h: House, count: int) -> bool:
    return len((await h.world())["calls"]) >= count


async def _pending(h: House, uid: str) -> bool:
    return bool((await h.job(uid))["status"] == "pending")
