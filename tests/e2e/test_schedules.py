"""Schedules: fired by NATS, made into jobs by entry, mended by the reaper."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from cuscuta import subjects
from cuscuta.broker import Bus, Puller
from cuscuta.errors import BrokerRefused, BrokerUnavailable
from cuscuta.uids import uid_from
from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.api import refused
from tests.support.house import House
from tests.support.wait import until

JOB = {"target": "player 1", "catalogue": "songs", "key": None}


async def house(make_house: MakeHouse, reaper: bool = True) -> House:
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=2)
    await h.entry()
    if reaper:
        await h.reaper()
    await h.accounts(2)
    await h.catalogue(4)
    await h.worker(seats="2")
    return h


async def make(h: House, when: str, **more: Any) -> dict[str, Any]:
    return dict(await h.call("POST", "/schedules", 201, json={"when": when, "job": JOB, **more}))


async def jobs(h: House) -> list[dict[str, Any]]:
    return list((await h.call("GET", "/jobs", params={"limit": 500}))["jobs"])


async def at_least(h: House, count: int) -> bool:
    return len(await jobs(h)) >= count


async def purge(bus: Bus, subject: str) -> None:
    await bus.broker.api(f"STREAM.PURGE.{subjects.SCHEDULES_STREAM}", {"filter": subject})


async def fired(bus: Bus, name: str) -> int:
    """The sequence of what has fired last and was not seen to; 0 if there is none."""
    try:
        asked = {"last_by_subj": subjects.fire(name)}
        answer = await bus.broker.api(f"STREAM.MSG.GET.{subjects.SCHEDULES_STREAM}", asked)
    except (BrokerRefused, BrokerUnavailable):
        return 0
    return int(answer["message"]["seq"])


async def test_a_schedule_makes_jobs_until_it_is_paused_and_goes_on_after_that(make_house: MakeHouse) -> None:
    h = await house(make_house)
    made = await make(h, "@every 1s")
    path = f"/schedules/{made['id']}"
    assert len(made["next"]) == 5
    await until(lambda: at_least(h, 2), 15, "two jobs are made")
    for row in await jobs(h):
        await h.ended(row["uid"])
        await checks.complete_values(h, row["uid"], "player 1", [f"song-{n}" for n in range(4)])
    shown = await h.call("GET", path)
    assert shown["last_uid"] in {row["uid"] for row in await jobs(h)}
    assert shown["error"] is None
    assert (await h.call("PATCH", path, json={"paused": True}))["next"] == []
    bus = await h.bus()
    assert await bus.schedules.standing() == (set(), set())  # nothing is left that could fire
    count = len(await jobs(h))
    assert (await h.call("PATCH", path, json={"paused": False}))["paused"] is False
    await until(lambda: at_least(h, count + 2), 15, "it goes on")
    await h.call("DELETE", path, 204)
    await h.call("GET", path, 404)
    assert await bus.schedules.standing() == (set(), set())
    for row in await jobs(h):
        await h.ended(row["uid"])
    await checks.nothing_left(h)


async def test_a_single_time_makes_one_job_and_is_done(make_house: MakeHouse) -> None:
    h = await house(make_house)
    when = (datetime.now(UTC) + timedelta(seconds=1.5)).isoformat()
    made = await make(h, when)
    assert [time[:19] for time in made["next"]] == [when[:19]]

    async def done() -> bool:
        return bool((await h.call("GET", f"/schedules/{made['id']}"))["done"])

    await until(done, 15, "it is done")
    (row,) = await jobs(h)
    await h.ended(row["uid"])
    shown = await h.call("GET", f"/schedules/{made['id']}")
    assert (shown["last_uid"], shown["next"]) == (row["uid"], [])
    assert await (await h.bus()).schedules.standing() == (set(), set())


async def test_what_was_missed_makes_one_job_and_restarts_lose_nothing(make_house: MakeHouse) -> None:
    """Entry is away while it fires several times, and NATS is killed meanwhile: one job for all that."""
    h = await house(make_house, reaper=False)
    made = await make(h, "@every 1s")
    await until(lambda: at_least(h, 1), 15, "a job is made")
    entry = next(proc for proc in h.procs if "entry" in proc.name)
    entry.kill()
    bus = await h.bus()
    first = await until(lambda: fired(bus, made["id"]), 10, "it has fired")

    async def fired_after(sequence: int) -> bool:
        return await fired(bus, made["id"]) > sequence

    await until(lambda: fired_after(first + 1), 10, "it has fired again, and what was there is replaced")
    h.nats.kill()
    h.nats.start()
    second = await until(lambda: fired(bus, made["id"]), 10, "what has fired is there after the restart")
    await until(lambda: fired_after(second), 15, "it fires after the restart")
    found = await bus.tag_bucket.keys()
    await purge(bus, subjects.schedule(made["id"]))  # no more of it
    await h.entry()
    await until(lambda: at_least(h, len(found) + 1), 15, "what was missed makes a job")

    async def seen_to() -> bool:
        return await fired(bus, made["id"]) == 0

    await until(seen_to, 10, "nothing is left to see to")
    assert len(await bus.tag_bucket.keys()) == len(found) + 1


async def test_two_replicas_make_one_job_each_time(make_house: MakeHouse) -> None:
    h = await house(make_house)
    await h.entry()
    made = await make(h, "@every 1s")
    await until(lambda: at_least(h, 4), 20, "some jobs are made")
    await h.call("DELETE", f"/schedules/{made['id']}", 204)
    times = sorted(datetime.fromisoformat(row["created_at"]) for row in await jobs(h))
    assert all(later - earlier > timedelta(seconds=0.5) for earlier, later in pairwise(times))


async def test_a_schedule_that_lost_its_message_is_mended_and_one_without_a_record_stops(make_house: MakeHouse) -> None:
    h = await house(make_house)
    kept, stray = await make(h, "@every 1s"), await make(h, "@every 1s")
    bus = await h.bus()
    await bus.schedules._bucket.purge(stray["id"])  # as if its maker had died before it wrote the record
    await purge(bus, subjects.schedule(kept["id"]))

    async def mended() -> bool:
        return (await bus.schedules.standing())[0] == {kept["id"]}

    await until(mended, 15, "the one with a record runs again, the one without is gone")
    far = await make(h, "@yearly")
    await bus.schedules._bucket.purge(far["id"])  # it never fires, so that only the reaper can stop it
    await until(mended, 15, "the one without a record is gone")


async def test_a_single_time_that_passes_during_a_pause_comes_at_once_afterwards(make_house: MakeHouse) -> None:
    h = await house(make_house, reaper=False)
    made = await make(h, (datetime.now(UTC) + timedelta(seconds=1)).isoformat())
    path = f"/schedules/{made['id']}"
    await h.call("PATCH", path, json={"paused": True})

    async def passed() -> bool:
        return datetime.now(UTC) > datetime.fromisoformat(made["when"]) + timedelta(seconds=0.5)

    await until(passed, 10, "its time has passed")
    assert await jobs(h) == []
    await h.call("PATCH", path, json={"paused": False})
    await until(lambda: at_least(h, 1), 10, "its job is made")
    assert len(await jobs(h)) == 1


async def test_what_has_fired_and_comes_twice_makes_one_job(make_house: MakeHouse) -> None:
    """Entry dies after it has submitted and before it has said so; the next one is given the same again."""
    h = await house(make_house, reaper=False)
    entry = next(proc for proc in h.procs if "entry" in proc.name)
    made = await make(h, "@every 1s")
    entry.kill()
    bus = await h.bus()
    await until(lambda: fired(bus, made["id"]), 10, "it has fired")
    await purge(bus, subjects.schedule(made["id"]))
    puller = Puller(bus.broker, lambda delivery: None)
    await puller.start()
    (delivery,) = (await puller.take(bus.schedules.stream, bus.schedules.consumer, 1)).deliveries
    before = set(await bus.tag_bucket.keys())
    await h.entry()
    await delivery.nak(0.0)  # to the new one
    await until(lambda: at_least(h, len(before) + 1), 15, "its job is made")
    await puller.stop()
    twin = await bus.schedules.get(made["id"])
    assert twin is not None
    assert twin.uid == uid_from("schedule", made["id"], str(delivery.stamp_ns))  # named by its moment: once


async def test_a_schedule_that_makes_no_job_says_why(make_house: MakeHouse) -> None:
    h = await house(make_house)
    made = await make(h, "@every 1s")
    bus = await h.bus()
    gone = {**JOB, "catalogue": "gone"}
    await bus.schedules.change(made["id"], lambda old: replace(old, job=gone))

    async def said() -> bool:
        return "no catalogue 'gone'" in ((await h.call("GET", f"/schedules/{made['id']}"))["error"] or "")

    await until(said, 15, "its error is shown")


async def test_schedules_are_listed_named_once_and_refused_with_reasons(make_house: MakeHouse) -> None:
    h = await house(make_house)
    body = {"when": "0 9 * * 1-5", "time_zone": "Europe/Berlin", "job": {**JOB, "deadline_s": 60, "unique": True}}
    first = await h.call("POST", "/schedules", 201, json=body, headers={"Idempotency-Key": "a"})
    again = await h.call("POST", "/schedules", 201, json=body, headers={"Idempotency-Key": "a"})
    assert first["id"] == again["id"]
    other = {**body, "when": "0 10 * * 1-5"}
    key = {"Idempotency-Key": "a"}
    await refused(h, "POST", "/schedules", 409, "Idempotency-Key", "another", json=other, headers=key)
    ids = [first["id"], *[(await make(h, "@hourly"))["id"] for _ in range(4)]]
    seen, after = [], None
    while True:
        page = await h.call("GET", "/schedules", params={"limit": 2} | ({"after": after} if after else {}))
        seen += [row["id"] for row in page["schedules"]]
        after = page["next"]
        if after is None:
            break
    assert sorted(seen) == sorted(ids)
    await refused(h, "POST", "/schedules", 422, "when", "no schedule", json={"when": "soon", "job": JOB})
    await refused(h, "POST", "/schedules", 422, "when", "is over", json={"when": "2020-01-01T00:00:00Z", "job": JOB})
    bad = {"when": "@hourly", "job": {**JOB, "catalogue": "none"}}
    await refused(h, "POST", "/schedules", 422, "catalogue", "no catalogue", json=bad)
    bad = {"when": "@hourly", "job": {**JOB, "after": ["x"]}}
    await refused(h, "POST", "/schedules", 400, "after", "no such field", json=bad)
    bad = {"when": "@hourly", "job": JOB, "time_zone": "Mars/Olympus"}
    await refused(h, "POST", "/schedules", 422, "time_zone", "there is no", json=bad)
    await h.call("DELETE", "/schedules/" + "0" * 26, 404)
    await h.call("PATCH", "/schedules/nonsense", 404, json={"paused": True})
