"""What is done to the state itself: deleted, filled up, repeated, or judged by a clock that is wrong."""

import contextlib
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cuscuta import subjects
from cuscuta.broker.assets import missing, streams
from cuscuta.embedded.nats import Nats
from tests.conftest import MakeHouse
from tests.faults.report import Trial, record
from tests.support import checks, users
from tests.support.house import House
from tests.support.process import module
from tests.support.wait import until


async def running(make_house: MakeHouse, **env: str) -> tuple[House, list[str]]:
    """Two workers and a catalogue that takes them two seconds and more."""
    h = await make_house(**env)
    await h.upstream(accounts=4, latency_ms=40)
    await h.entry()
    await h.reaper()
    await h.worker(seats="2")
    await h.worker(seats="2")
    await h.accounts(4)
    items = await h.catalogue(240)
    await h.seats(4)
    return h, items


async def whole(h: House, fault: str, jobs: dict[str, str], items: list[str], began: float) -> None:
    """All jobs end complete, nothing is stored twice, and nothing is left."""
    bus, again, lost, doubled = await h.bus(), 0, 0, 0
    for uid in jobs.values():
        assert (await h.ended(uid))["status"] == "completed"
    await checks.nothing_left(h, 30)
    seconds = time.monotonic() - began
    for target, uid in jobs.items():
        await checks.complete_values(h, uid, target, items)
        again += sum((await checks.polls(h, target)).values()) - len(items)
        stored = await bus.results.stored(uid)
        doubled += sum(s.size for s in stored) - len(items)
        lost += len(items) - len(await h.results(uid))
    record(Trial(fault, "two jobs running", "", lost, doubled, again, round(seconds, 2)))
    await checks.never_together(h)


async def two(h: House) -> dict[str, str]:
    """Two jobs of a lane, the first of them at work."""
    jobs = {target: await h.submit(target, key="lane") for target in ("player 1", "player 2")}
    await h.done(jobs["player 1"], 20)
    return jobs


@pytest.mark.parametrize("name", [subjects.work_stream(), *(subjects.kv_stream(b) for b in (
    subjects.ACTIVE, subjects.RESULTS, subjects.WORKERS)), subjects.EVENTS_STREAM])  # fmt: skip
async def test_a_stream_deleted_under_a_job(make_house: MakeHouse, name: str) -> None:
    """It is made anew, and what was in it comes back from the tags, or is polled again."""
    h, items = await running(make_house)
    jobs = await two(h)
    bus, began = await h.bus(), time.monotonic()
    await bus.broker.api(f"STREAM.DELETE.{name}")

    async def anew() -> bool:
        return not await missing(bus.broker, bus.settings)

    await until(anew, 15, "it is made anew")
    await whole(h, f"{name} deleted", jobs, items, began)
    calls = (await h.world())["calls"]
    last = max(call[3] for call in calls if call[1] == "player 1")
    assert last <= min(call[3] for call in calls if call[1] == "player 2")  # the lane kept its order


async def test_a_job_whose_tag_is_removed_is_forgotten_by_all(make_house: MakeHouse) -> None:
    h, items = await running(make_house)
    gone, other = (await two(h)).values()
    bus = await h.bus()
    await bus.tag_bucket.purge(gone)

    async def forgotten() -> bool:
        return [job["uid"] for job in (await h.call("GET", "/jobs"))["jobs"]] == [other]

    await until(forgotten, 20, "the list forgets it")
    await h.call("GET", f"/jobs/{gone}", 404)
    await h.ended(other)
    await checks.complete_values(h, other, "player 2", items)
    await checks.nothing_left(h, 30)

    async def no_results() -> bool:
        return gone not in await bus.results.jobs()

    await until(no_results, 30, "its results are removed")


async def test_the_bucket_of_tags_made_anew_is_noticed(make_house: MakeHouse) -> None:
    """Its jobs are gone, and nobody goes on showing them; new ones run."""
    h, items = await running(make_house)
    await two(h)
    bus = await h.bus()
    await bus.broker.api(f"STREAM.DELETE.{subjects.kv_stream(subjects.TAGS)}")

    async def empty() -> bool:
        answer = await h.http.get("/jobs")
        assert answer.status_code in (200, 503), answer.text
        return answer.status_code == 200 and not answer.json()["jobs"]

    await until(empty, 30, "nothing is shown any more")
    uid = await h.submit("player 3")
    await h.ended(uid)
    await checks.complete_values(h, uid, "player 3", items)
    assert [job["uid"] for job in (await h.call("GET", "/jobs"))["jobs"]] == [uid]
    await checks.nothing_left(h, 30)


async def test_a_stored_result_removed_under_a_job(make_house: MakeHouse) -> None:
    h, items = await running(make_house)
    jobs = await two(h)
    bus, began = await h.bus(), time.monotonic()
    first = jobs["player 1"]
    (span, *_) = await bus.results.stored(first)
    await bus.broker.api(
        f"STREAM.PURGE.{subjects.kv_stream(subjects.RESULTS)}",
        {"filter": subjects.kv_subject(subjects.RESULTS, subjects.result_key(first, span))},
    )
    await whole(h, "a result removed", jobs, items, began)


async def test_chunks_that_come_a_second_time_as_if_they_were_new(make_house: MakeHouse) -> None:
    """The same message again, delivered for the first time: what is stored stays, and is stored once."""
    h, items = await running(make_house)
    jobs = {"player 1": await h.submit("player 1")}
    bus = await h.bus()
    copies: dict[str, tuple[bytes, int]] = {}

    async def seen() -> bool:
        for name in await bus.work.queued(jobs["player 1"]):
            if found := await bus.work.first(subjects.chunk(name)):
                copies[found.subject] = (found.data, name.span.stop)
        return len(copies) >= 4

    await until(seen, 20, "its chunks are out", 0.01)
    await h.done(jobs["player 1"], 120)
    began = time.monotonic()
    standing = {subjects.chunk(name) for name in await bus.work.queued(jobs["player 1"])}
    again = [subject for subject in copies if subject not in standing]
    assert again  # some of them are done
    for subject in again:
        await bus.work.put(subject, copies[subject][0])
    await whole(h, "chunks delivered anew", jobs, items, began)


async def test_the_work_queue_is_full(make_house: MakeHouse) -> None:
    """Refused with 503 and a wait, whatever was accepted is done, and it goes on once there is room."""
    h, items = await running(make_house)
    jobs = await two(h)
    bus, began = await h.bus(), time.monotonic()
    (config,) = [c for c in streams(bus.settings) if c["name"] == subjects.work_stream()]
    await bus.broker.api(f"STREAM.UPDATE.{config['name']}", {**config, "max_msgs": 1})
    answer = await h.http.post("/jobs", json={"target": "player 3", "catalogue": "songs"})
    assert answer.status_code in (202, 503), answer.text
    if answer.status_code == 503:
        assert int(answer.headers["retry-after"]) >= 1
        assert "full" in answer.text or "messages" in answer.text
    await bus.broker.api(f"STREAM.UPDATE.{config['name']}", config)
    if answer.status_code == 202:
        jobs["player 3"] = answer.json()["uid"]
    await whole(h, "work queue full", jobs, items, began)


async def test_the_results_are_full(make_house: MakeHouse) -> None:
    """Nobody throws away what he has, and nobody polls on without end; with room again, all goes on."""
    h, items = await running(make_house)
    jobs = await two(h)
    bus, began = await h.bus(), time.monotonic()
    name = subjects.kv_stream(subjects.RESULTS)
    (config,) = [c for c in streams(bus.settings) if c["name"] == name]
    await bus.broker.api(f"STREAM.UPDATE.{name}", {**config, "max_bytes": 1_000})

    async def quiet() -> bool:
        world = await h.world()
        return bool(world["now"] - max(call[4] for call in world["calls"]) > 3)

    await until(quiet, 40, "nobody polls what cannot be stored")
    await bus.broker.api(f"STREAM.UPDATE.{name}", {**config, "max_bytes": -1})
    await whole(h, "results full", jobs, items, began)


@contextlib.asynccontextmanager
async def small_disk(nats: Nats) -> AsyncIterator[Path]:
    """nats-server with its data on a file system of 24 MB, as root may make one."""
    nats.stop()
    disk = nats.folder / "jetstream"
    disk.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        nats.start()
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip()}")
    try:
        nats.start()
        yield disk
    finally:
        nats.kill()
        subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_the_disk_is_full(make_house: MakeHouse) -> None:
    """nats-server cannot write any more; with room again and a restart of it, every accepted job is done."""
    h = await make_house()
    async with small_disk(h.nats) as disk:
        await h.upstream(accounts=4, latency_ms=40)
        await h.entry()
        await h.reaper()
        await h.worker(seats="4")
        await h.accounts(4)
        items = await h.catalogue(240)
        await h.seats(4)
        jobs = await two(h)
        began = time.monotonic()
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(65_536))

        async def quiet() -> bool:
            world = await h.world()
            return bool(world["now"] - max(call[4] for call in world["calls"]) > 3)

        await until(quiet, 60, "nobody polls what cannot be stored")
        filler.unlink()
        h.nats.kill()
        h.nats.start()
        await whole(h, "disk full for NATS", jobs, items, began)


@pytest.mark.parametrize("worker_s", [-600, 600])
async def test_clocks_that_are_ten_minutes_off(make_house: MakeHouse, worker_s: int) -> None:
    """Of a worker and, the other way, of entry: leases, ack-wait and order are nobody's wall clock's."""
    h = await make_house()
    await h.upstream(accounts=4, latency_ms=20)
    for part, by in (("entry", -worker_s), ("worker", worker_s)):
        port = h.folder / f"port-of-{part}"
        if part == "entry":
            h.http.headers["authorization"] = f"Bearer {await h.token()}"
        env = h.env(port_file=str(port), **users.login(part))
        proc = h.spawn(part, module("tests.support.shifted", str(by), f"{part}.run"), env)
        url = f"http://127.0.0.1:{await h.port(port, proc)}"
        if part == "entry":
            h.http.base_url = url
        await h.ready(url, proc)
    await h.reaper()
    await h.worker(seats="2")
    await h.accounts(4)
    items = await h.catalogue(240)
    await h.seats(3)
    jobs, began = await two(h), time.monotonic()
    await whole(h, f"clocks {abs(worker_s) // 60} minutes off", jobs, items, began)
