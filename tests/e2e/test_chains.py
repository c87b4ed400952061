"""Jobs that run after others, and what follows a success or a failure."""

from typing import Any

from cuscuta.broker.after import waiting
from cuscuta.uids import uid_from
from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.api import refused
from tests.support.house import House
from tests.support.wait import until


async def house(make_house: MakeHouse) -> tuple[House, list[Any]]:
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=5)
    await h.entry()
    await h.reaper()
    return h, await h.catalogue(8)


async def work(h: House) -> None:
    await h.accounts(2)
    await h.worker(seats="2")


async def test_a_job_runs_after_all_any_or_whatever_the_end_of_others(make_house: MakeHouse) -> None:
    h, items = await house(make_house)
    good, bad = await h.submit("player 1"), await h.submit("unknown player")
    after = {
        "completed": await h.submit("player 2", after=[good]),
        "any": await h.submit("player 3", after=[good, bad], after_when="any"),
        "ended": await h.submit("player 4", after=[good, bad], after_when="ended"),
        "failed": await h.submit("player 5", after=[good, bad], after_when="failed"),
    }
    lost = await h.submit("player 6", after=[good, bad])  # all: one of them fails
    unneeded = await h.submit("player 7", after=[good], after_when="failed")
    chained = await h.submit("player 8", after=[after["completed"]])
    assert good in (await h.job(after["completed"]))["waiting_for"]
    await work(h)
    for n, uid in enumerate(after.values(), 2):
        await h.ended(uid)
        await checks.complete_values(h, uid, f"player {n}", items)
        assert (await h.job(uid))["admitted_at"] >= (await h.job(good))["ended_at"]
    await h.ended(chained)
    assert (await h.job(chained))["admitted_at"] >= (await h.job(after["completed"]))["ended_at"]
    assert (await h.ended(lost))["failure_counts"] == {"DependencyFailed": 1}
    job = await h.ended(unneeded)
    assert (job["status"], job["failure_counts"]) == ("cancelled", {"NotNeeded": 1})
    graph = await h.call("GET", f"/jobs/{good}/graph")
    assert {job["uid"] for job in graph["jobs"]} == {good, bad, lost, unneeded, chained, *after.values()}
    assert [good, lost] in graph["edges"]
    assert [after["completed"], chained] in graph["edges"]
    await checks.nothing_left(h)


async def test_a_compensation_follows_a_failure_and_only_that(make_house: MakeHouse) -> None:
    h, items = await house(make_house)
    undo = {"target": "player 1", "catalogue": "songs", "labels": {"undo": "yes"}}
    go_on = {"target": "player 2", "catalogue": "songs", "labels": {"next": "yes"}}
    fails = await h.submit("unknown player", on_failure=undo, on_success=go_on)
    works = await h.submit("player 3", on_failure=undo, on_success=go_on)
    await work(h)
    await h.ended(fails)
    await h.ended(works)
    for label, target, parent in (("undo:yes", "player 1", fails), ("next:yes", "player 2", works)):
        await until(lambda label=label: _one(h, label), 10, "what follows is there")  # type: ignore[misc]
        (row,) = (await h.call("GET", "/jobs", params={"label": label}))["jobs"]
        await h.ended(row["uid"])
        await checks.complete_values(h, row["uid"], target, items)
        assert [parent, row["uid"]] in (await h.call("GET", f"/jobs/{parent}/graph"))["edges"]
    await checks.nothing_left(h)


async def _one(h: House, label: str) -> bool:
    return len((await h.call("GET", "/jobs", params={"label": label}))["jobs"]) == 1


async def test_whoever_waits_is_found_although_nobody_told(make_house: MakeHouse) -> None:
    """The messages that say who waits are gone, and the job before ended while nobody looked: the reaper looks."""
    h, items = await house(make_house)
    first = await h.submit("player 1")
    second = await h.submit("player 2", after=[first])
    bus = await h.bus()
    assert await waiting(bus, first) == [second]
    assert await bus.work.purge("cuscuta.after.>") == 1
    await work(h)
    await h.ended(second)
    await checks.complete_values(h, second, "player 2", items)


async def test_what_waits_can_be_cancelled_and_bad_chains_are_refused(make_house: MakeHouse) -> None:
    h, _ = await house(make_house)
    first = await h.submit("player 1")
    second = await h.submit("player 2", after=[first])
    await h.call("DELETE", f"/jobs/{second}")
    assert await waiting(await h.bus(), first) == []
    good = {"target": "p", "catalogue": "songs"}
    await refused(h, "POST", "/jobs", 422, "after[1]", "no job", json={**good, "after": [first, "0" * 26]})
    caller = h.cli["CUSCUTA_TOKEN"].split("_")[1]
    itself = {**good, "after": [first, uid_from("idempotency", caller, "myself")]}
    await refused(h, "POST", "/jobs", 422, "after[1]", "itself", json=itself, headers={"Idempotency-Key": "myself"})
    await refused(h, "POST", "/jobs", 400, "after_when", json={**good, "after": [first], "after_when": "never"})
    nested = {**good, "on_failure": {**good, "to": 99}}
    await refused(h, "POST", "/jobs", 422, "on_failure.to", "8 items", json=nested)
    await h.call("DELETE", f"/jobs/{first}")
    await checks.nothing_left(h)
