"""A worker that was taken over cannot submit: what nobody accepted is not let out, whatever is written on the bus."""

from msgspec.structs import replace

from cuscuta import subjects
from cuscuta.broker import Bus
from cuscuta.broker.lanes import Waiting
from cuscuta.clock import SystemClock
from cuscuta.codec import encode
from cuscuta.db.vault import new_key
from cuscuta.logs import get
from cuscuta.model import Essential, JobStatus, JobTag, Priority, Queue
from cuscuta.spans import Span
from cuscuta.uids import new_uid
from tests.conftest import MakeHouse
from tests.support import checks, users
from tests.support.house import House
from tests.support.wait import until


async def taken_over(h: House) -> Bus:
    """A worker's own way to the bus, with all that a worker is given."""
    worker = users.login("worker")
    settings = replace(h.settings(), nats_user="worker", nats_password=worker["nats_password"], seal_keys=[])
    bus = Bus(settings, SystemClock(), get("test"), "cuscuta.worker taken over")
    await bus.broker.connect()
    return bus


async def strict(h: House) -> None:
    """As if the first start with keys had been long ago: what bears no seal is not taken any more."""
    broker = (await h.bus()).broker
    stream = subjects.kv_stream(subjects.TAGS)
    config = (await broker.api(f"STREAM.INFO.{stream}"))["config"]
    assert "cuscuta-sealed-since" in config["metadata"]
    metadata = {**config["metadata"], "cuscuta-sealed-since": "2026-01-01T00:00:00+00:00"}
    await broker.api(f"STREAM.UPDATE.{stream}", {**config, "metadata": metadata})


async def house(make_house: MakeHouse, **env: str) -> House:
    h = await make_house(**env)
    await h.upstream(accounts=2, latency_ms=10)
    await h.entry()
    await h.reaper()
    await h.worker(seats="2")
    await h.accounts(2)
    await h.catalogue(12)
    await h.seats(2)
    await strict(h)
    return h


async def forged(h: House, bus: Bus, **more: object) -> str:
    """A tag, a lane entry and an admit message as `submit` writes them."""
    songs = await (await h.bus()).catalogues.resolve("songs")
    assert songs is not None
    now = bus.clock.wall()
    uid = new_uid(now)
    essential = Essential("forged target", songs.hash, "songs", Span(0, 12), **more)  # type: ignore[arg-type]
    assert await bus.tags.create(JobTag(uid, JobStatus.QUEUEING, essential, Queue(now), run_ids=[uid]))
    place = await bus.lanes.enter(Waiting(uid, Priority.NORMAL), essential.lane) if essential.lane else 0
    await bus.lanes.admit(Waiting(uid, Priority.NORMAL, place=place))
    await bus.announce("submitted", uid)
    return uid


async def polled(h: House) -> set[str]:
    return {call[1] for call in (await h.world())["calls"]}


async def test_what_a_worker_writes_is_not_let_out(make_house: MakeHouse) -> None:
    h = await house(make_house)
    bus = await taken_over(h)
    songs = await (await h.bus()).catalogues.resolve("songs")
    assert songs is not None
    follow = Essential("forged follower", songs.hash, "songs", Span(0, 12))
    uids = [
        await forged(h, bus),
        await forged(h, bus, lane="forged"),
        await forged(h, bus, seal="0" * 64),
        await forged(h, bus, seal="1:é"),
        await forged(h, bus, on_failure=follow),
    ]
    for uid in uids:
        job = await h.ended(uid)
        assert (job["status"], job["failure_counts"]) == ("failed", {"NotAccepted": 1})
        refused = await h.call("POST", f"/jobs/{uid}/retry", 409)  # which would make it a real one
        assert "seal" in refused["errors"][0]["message"]
    real = await h.submit("player 1")
    await h.ended(real)
    await checks.complete_values(h, real, "player 1", [f"song-{n}" for n in range(12)])
    assert await polled(h) == {"player 1"}
    everything = await h.call("GET", "/jobs", params={"limit": 500})
    assert {job["target"] for job in everything["jobs"]} == {"player 1", "forged target"}  # no follower
    await bus.broker.close()


async def test_an_accepted_job_cannot_be_made_another_one_or_copied(make_house: MakeHouse) -> None:
    h = await house(make_house)
    await h.control(set={"latency_s": 0.3})
    first = await h.submit("player 1", key="lane")
    waits = await h.submit("player 2", key="lane")
    bus = await taken_over(h)
    tag = await bus.tags.get(waits)
    assert tag is not None
    known = await bus.tags.read(waits)
    assert known is not None
    changed = replace(tag, essential=replace(tag.essential, target="forged target"))
    await bus.tag_bucket.update(waits, encode(changed), known.revision)
    copied = await forged(h, bus, seal=tag.essential.seal)
    copy = new_uid(bus.clock.wall())
    assert await bus.tags.create(replace(tag, uid=copy, run_ids=[copy], essential=replace(tag.essential, lane=None)))
    await bus.lanes.admit(Waiting(copy, Priority.NORMAL))
    await bus.announce("submitted", copy)
    await h.control(set={"latency_s": 0.01})
    for uid in (waits, copied, copy):
        assert (await h.ended(uid))["failure_counts"] == {"NotAccepted": 1}
    assert (await h.ended(first))["status"] == "completed"
    assert await polled(h) == {"player 1"}
    await bus.broker.close()


async def test_what_follows_is_submitted_by_those_who_may(make_house: MakeHouse) -> None:
    """A worker ends the job, entry makes what follows; without entry the reaper does."""
    h = await house(make_house)
    first = await h.submit("player 1", key="lane", on_success={"target": "player 2", "catalogue": "songs"})
    behind = await h.submit("player 3", key="lane")
    for uid in (first, behind):
        await h.ended(uid)

    async def followed(target: str) -> bool:
        jobs = (await h.call("GET", "/jobs", params={"target": target, "limit": 10}))["jobs"]
        return [job["status"] for job in jobs] == ["completed"]

    await until(lambda: followed("player 2"), 20, "what follows is done")
    tags = [await (await h.bus()).tags.get(uid) for uid in (first, behind)]
    assert all(tag is not None and tag.essential.seal for tag in tags)
    await checks.nothing_left(h)

    await h.control(set={"latency_s": 1.0})
    last = await h.submit("player 4", on_success={"target": "player 5", "catalogue": "songs"})
    await h.done(last, 1)
    next(p for p in h.procs if "entry" in p.name and p.running()).kill()
    bus = await h.bus()
    assert (known := await bus.tags.get(last))
    assert not known.status.terminal

    async def made() -> bool:
        tags = [await bus.tags.get(entry) for entry in await bus.tag_bucket.keys()]
        return any(tag is not None and tag.essential.target == "player 5" for tag in tags)

    await until(made, 30, "the reaper has made what follows")
    await h.entry()
    await until(lambda: followed("player 5"), 30, "it is done as well")
    await checks.nothing_left(h)


async def test_jobs_of_before_the_seal_are_taken_over_once(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=10)
    entry = await h.entry(seal_keys="")
    await h.reaper()
    await h.accounts(2)
    items = await h.catalogue(12)
    old = [await h.submit(f"player {n}", key="lane") for n in range(3)]
    both = await h.entry()  # one that seals, beside one that does not yet
    old.append(
        (await h.http.post(f"{h.urls[entry.name]}/jobs", json={"target": "player 3", "catalogue": "songs"})).json()[
            "uid"
        ]
    )
    entry.stop()
    entry = both
    await h.worker(seats="2")
    for n, uid in enumerate(old):
        await h.ended(uid)
        await checks.complete_values(h, uid, f"player {n}", items)
    await strict(h)
    bus = await taken_over(h)
    entry.stop()
    forgery = await forged(h, bus)  # while nobody is there
    await h.entry()
    assert (await h.ended(forgery))["failure_counts"] == {"NotAccepted": 1}
    await bus.broker.close()


async def test_keys_are_changed_one_after_another(make_house: MakeHouse) -> None:
    h = await house(make_house)
    await h.control(set={"latency_s": 0.1})
    new, entry = new_key(), next(p for p in h.procs if "entry" in p.name)
    reaper = next(p for p in h.procs if "reaper" in p.name)
    uids = [await h.submit(f"player {n}", key="lane") for n in range(2)]
    for keys in (f"{users.SEAL},{new}", f"{new},{users.SEAL}"):  # as docs/security.md says
        entry.stop()
        reaper.stop()
        entry, reaper = await h.entry(seal_keys=keys), await h.reaper(seal_keys=keys)
        uids.append(await h.submit(f"player {len(uids)}", key="lane"))
    await h.control(set={"latency_s": 0.01})
    for uid in uids:
        assert (await h.ended(uid))["status"] == "completed"
    entry.stop()
    await h.entry(seal_keys=new)
    assert (await h.ended(await h.submit("player 9")))["status"] == "completed"
