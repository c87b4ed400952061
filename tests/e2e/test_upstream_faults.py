"""An upstream that answers anything but what it should; each verdict of DESIGN §5 end to end."""

import pytest

from cuscuta.spans import Span
from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.house import House
from tests.support.wait import until
from worker.upstream.reference.rules import score


async def started(make_house: MakeHouse, accounts: int = 3, items: int = 30, seats: str = "3", **env: str) -> House:
    """Accounts, a catalogue and one worker, ready."""
    h = await make_house(**env)
    await h.upstream(accounts=accounts, latency_ms=10)
    await h.entry()
    await h.reaper()
    await h.worker(seats=seats)
    await h.accounts(accounts)
    await h.catalogue(items)
    await h.seats(min(accounts, int(seats)))
    return h


ITEMS = [f"song-{n}" for n in range(30)]


async def test_unknown_target_fails_the_job_at_once(make_house: MakeHouse) -> None:
    h = await started(make_house)
    uid = await h.submit("unknown player")
    job = await h.ended(uid, 10)
    assert job["status"] == "failed"
    assert job["failure_counts"] == {"TargetNotFound": 1}
    assert job["progress"]["missing"] == [[0, 30]]
    assert (await h.world())["counts"].get("polls", 0) == 0
    await checks.nothing_left(h)


async def test_expired_tokens_are_renewed_without_blame(make_house: MakeHouse) -> None:
    """401: log in again once, save the token, go on; nobody is blamed."""
    h = await started(make_house, items=200)
    uid = await h.submit()
    await h.done(uid, 20)
    await h.control(expire_tokens=True)
    await h.ended(uid)
    job = await checks.complete(h, uid, "player 1", [f"song-{n}" for n in range(200)])
    assert job["failure_counts"] == {}
    assert (await h.world())["counts"]["logins"] >= 6
    accounts = await h.call("GET", "/accounts")
    assert [a["rate"] for a in accounts] == [1.0] * 3


async def test_a_saved_token_spares_the_next_holder_the_login(make_house: MakeHouse) -> None:
    h = await started(make_house)
    await h.ended(await h.submit("player 1"))
    logins = (await h.world())["counts"]["logins"]
    next(p for p in h.procs if "worker" in p.name).stop()
    await h.worker(seats="3")
    await h.seats(3)
    await h.ended(await h.submit("player 2"))
    assert (await h.world())["counts"]["logins"] == logins


@pytest.mark.parametrize("status", ["401", "403"])
async def test_a_refused_account_is_given_back_and_others_go_on(make_house: MakeHouse, status: str) -> None:
    """401 even after a new login, and 403: disabled in the end, and the chunk costs no attempt (FIELD 20)."""
    h = await started(make_house, max_attempts="1", max_deliver="5")
    await h.control("account-1@example.com", set={"mode": status})
    uid = await h.submit()
    await h.ended(uid)
    job = await checks.complete(h, uid, "player 1", ITEMS)
    assert job["failure_counts"].keys() == {"AccountFailed"}

    async def disabled() -> bool:
        uid = await h.submit("again")
        await h.ended(uid)
        account = (await h.call("GET", "/accounts"))[0]
        return bool(account["state"] == "Disabled")

    await until(disabled, 30, "the refused account is disabled", 0.5)
    account = (await h.call("GET", "/accounts"))[0]
    assert account["rate"] == 0
    assert "account" in account["last_error"] or "answered" in account["last_error"]
    await h.control("account-1@example.com", set={"mode": ""})
    released = await h.call("POST", f"/accounts/{account['id']}/release")
    assert (released["state"], released["rate"]) == ("Idle", 1.0)
    await h.seats(3)


async def test_wrong_password_names_the_account_not_the_password(make_house: MakeHouse) -> None:
    h = await started(make_house, accounts=2)
    await h.call("POST", "/accounts", json={"email": "bad@example.com", "password": "hunter2-secret"})
    await h.seats(3)
    uid = await h.submit()
    await h.ended(uid)
    job = await h.job(uid)
    assert job["status"] == "completed"
    blamed = next(f for f in job["failures"] if f["type"] == "AccountFailed")
    bad = next(a for a in await h.call("GET", "/accounts") if a["email"] == "bad@example.com")
    assert blamed["account"] == bad["id"]
    assert "login refused" in bad["last_error"]
    text = str(job) + str(await h.call("GET", "/accounts")) + "".join(p.text() for p in h.procs)
    assert "hunter2-secret" not in text
    assert "password-1" not in "".join(p.text() for p in h.procs)


async def test_missing_item_is_its_own_error(make_house: MakeHouse) -> None:
    """404 for an item: stored as that item's error, the chunk goes on, the job completes."""
    h = await started(make_house, items=5)
    items = [*ITEMS[:10], "missing-1", *ITEMS[10:]]
    await h.catalogue(items, "some")
    uid = await h.submit(catalogue="some")
    job = await h.ended(uid)
    assert job["status"] == "completed"
    results = await h.results(uid)
    assert [r["id"] for r in results] == items
    assert results[10]["error"]["type"] == "ItemNotFound"
    assert [r["value"] for r in results if "value" in r] == [score("player 1", i) for i in ITEMS]
    await checks.stored_once(h, uid, Span(0, 31))


async def test_429_with_retry_after_rests_the_account_only(make_house: MakeHouse) -> None:
    """Retry-After 5: at least 5 s without a call, the rating unchanged, the others go on (FIELD 20)."""
    h = await started(make_house, items=300)
    slow = "account-1@example.com"
    await h.control(slow, set={"mode": "429", "mode_calls": 1, "retry_after": "5"})
    uid = await h.submit()
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", [f"song-{n}" for n in range(300)])
    account = (await h.call("GET", "/accounts"))[0]
    assert account["rate"] == 1.0
    calls = [c for c in (await h.world())["calls"] if c[0] == slow]
    refused = next(c for c in calls if c[5] == 429)
    await until(lambda: _idle(h, slow), 15, "the rested account is free again")
    later = [c[3] for c in (await h.world())["calls"] if c[0] == slow and c[3] > refused[4]]
    assert all(at >= refused[4] + 5 for at in later)


async def _idle(h: House, email: str) -> bool:
    accounts = await h.call("GET", "/accounts")
    return next(a["state"] for a in accounts if a["email"] == email) in ("Idle", "Using")


async def test_429_without_retry_after_backs_off_in_place(make_house: MakeHouse) -> None:
    h = await started(make_house)
    await h.control(set={"mode": "429", "mode_calls": 2, "retry_after": None})
    uid = await h.submit()
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", ITEMS)
    assert {a["rate"] for a in await h.call("GET", "/accounts")} == {1.0}


@pytest.mark.parametrize("mode", ["500", "garbage", "cut", "nothing"])
async def test_a_passing_fault_is_retried(make_house: MakeHouse, mode: str) -> None:
    """500, nonsense, a cut connection or no answer, each once an account: retried in place, nobody is blamed."""
    h = await started(make_house)
    await h.control(set={"mode": mode, "mode_calls": 1})
    uid = await h.submit()
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", ITEMS)
    assert {a["rate"] for a in await h.call("GET", "/accounts")} == {1.0}


async def test_very_slow_answers_within_the_item_timeout_count(make_house: MakeHouse) -> None:
    h = await started(make_house, items=6)
    await h.control(set={"latency_s": 1.2})
    uid = await h.submit()
    job = await h.ended(uid)
    assert job["status"] == "completed"
    assert job["failure_counts"] == {}


@pytest.mark.parametrize("mode", ["500", "garbage", "nothing"])
async def test_a_lasting_fault_ends_the_job_with_that_span_listed(make_house: MakeHouse, mode: str) -> None:
    """The job is failed, the given-up span is listed and filed, everything else is readable (FIELD 2, 13)."""
    h = await started(make_house, max_attempts="2", max_deliver="3", transient_retries="1", item_timeout_s="0.5")
    uid = await h.submit()
    await h.ended(uid)
    await h.control(set={"mode": mode})
    uid = await h.submit("player 2", policy="single")
    job = await h.ended(uid, 60)
    assert job["status"] == "failed"
    assert job["progress"]["missing"] == [[0, 30]]
    assert job["failure_counts"]["GivenUp"] == 1
    await checks.nothing_left(h)
    bus = await h.bus()
    assert await bus.results.given_up(uid) == [Span(0, 30)]


async def test_one_broken_item_gives_up_its_chunk_only(make_house: MakeHouse) -> None:
    h = await started(make_house, max_attempts="2", max_deliver="3", transient_retries="0")
    items = [*ITEMS[:10], "broken-1", *ITEMS[10:]]
    await h.catalogue(items, "some")
    uid = await h.submit(catalogue="some", chunk_items=1)
    job = await h.ended(uid)
    assert job["status"] == "failed"
    assert job["progress"]["missing"] == [[10, 11]]
    results = await h.results(uid)
    assert [r["id"] for r in results] == ITEMS
    await checks.nothing_left(h)


async def test_a_result_bigger_than_the_payload_is_refused_alone(make_house: MakeHouse) -> None:
    """Two megabytes for one item: that item's error; nothing else on that connection suffers (FIELD 9)."""
    h = await started(make_house, item_timeout_s="2.5")
    items = [*ITEMS[:10], "huge-1", *ITEMS[10:]]
    await h.catalogue(items, "some")
    uid = await h.submit(catalogue="some", policy="single")
    job = await h.ended(uid)
    assert job["status"] == "completed"
    results = await h.results(uid)
    assert [r["id"] for r in results] == items
    assert results[10]["error"]["type"] == "ResultTooLarge"
    assert "result too large" in results[10]["error"]["message"]
    assert [r["value"] for r in results if "value" in r] == [score("player 1", i) for i in ITEMS]
    assert all("NATS is gone" not in p.text() for p in h.procs)


async def test_no_account_and_no_worker_are_said_and_waited_out(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=5)
    await h.entry()
    await h.reaper()
    await h.catalogue(10)
    uid = await h.submit()

    async def says(word: str) -> bool:
        return word in ((await h.job(uid))["waiting_for"] or "")

    await until(lambda: says("a worker: none is alive"), 10, "the job says that no worker is alive")
    await h.worker(seats="2")
    await until(lambda: says("an account"), 10, "the job says that no worker has an account")
    await h.accounts(2)
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", [f"song-{n}" for n in range(10)])


@pytest.mark.parametrize("family", ["x-ratelimit", "ratelimit"])
async def test_an_allowance_that_is_told_is_spread_over_its_window(make_house: MakeHouse, family: str) -> None:
    """30 polls in 5 seconds: an account of which nothing else is known never asks once too often."""
    h = await started(make_house, accounts=1, items=45, seats="1")
    await h.control(set={"window_calls": 30, "tells": family})
    uid = await h.submit()
    await h.ended(uid)
    await checks.complete(h, uid, "player 1", [f"song-{n}" for n in range(45)])
    calls = [call for call in (await h.world())["calls"] if call[1] == "player 1"]
    assert {call[5] for call in calls} == {200}
    first_second = [call for call in calls if call[3] < calls[0][3] + 1]
    assert len(first_second) < 15  # spread, not spent at once
