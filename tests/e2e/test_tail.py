"""A job's tail: donation and hedging; places for urgent jobs, requests that wait; on real processes."""

from collections import Counter

from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.house import REFERENCE, House, gather
from tests.support.wait import until


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


async def test_urgent_jobs_and_newcomers_have_places_of_their_own(make_house: MakeHouse) -> None:
    """A tenth of the places is not for normal jobs, and a tenth for groups without an active one, whatever waits."""
    h = await make_house(max_active_jobs="20", upstream="noop")
    await h.entry()
    await h.reaper()
    await h.catalogue(2)
    for n in range(25):
        await h.submit(f"player {n}")
    await until(lambda: _active(h, 16), 10, "as many as may be active are")
    newcomer = await h.submit("newcomer", labels={"group": "blue"})
    await until(lambda: _pending(h, newcomer), 5, "the newcomer is admitted")
    urgent = await h.submit("urgent", priority="high")
    await until(lambda: _pending(h, urgent), 5, "the urgent one is admitted")
    assert await (await h.bus()).work.active_consumers() == 18


async def test_whoever_waits_for_admission_is_not_overtaken_for_long(make_house: MakeHouse) -> None:
    """Some jobs go past the queue while nothing waits; those in the queue must not wait for as long as others come."""
    h = await make_house(upstream="noop")
    await h.entry()
    await h.reaper()
    await h.accounts(4)
    await h.worker(seats="4")
    await h.catalogue(3)
    await h.seats(4)
    numbers, jobs = iter(range(300)), []

    async def client() -> None:
        for n in numbers:
            uid = await h.submit(f"player {n}")
            jobs.append(await h.call("GET", f"/jobs/{uid}", params={"wait_s": 30}))

    await gather(*(client() for _ in range(20)))
    assert {job["status"] for job in jobs} == {"completed"}
    for job in jobs:
        overtaken = [j for j in jobs if j["created_at"] > job["created_at"] and j["admitted_at"] < job["admitted_at"]]
        assert len(overtaken) <= 40, (job["uid"], len(overtaken))  # twice as many as there are clients


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
