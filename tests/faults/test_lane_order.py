"""One lane through everything at once: its jobs never swap, whatever ends them and whoever is killed meanwhile."""

from itertools import pairwise

from msgspec.structs import replace

from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.house import House
from tests.support.process import Proc


def part(h: House, name: str) -> Proc:
    return next(proc for proc in h.procs if name in proc.name and proc.running())


async def test_a_lane_keeps_its_order_through_ends_of_every_kind_and_kills(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=20)
    await h.entry()
    await h.reaper()
    await h.accounts(2)
    items = await h.catalogue(60)
    targets = ["worker dies", "cancelled", "nats dies", "unknown player", "late", "entry dies", "reaper dies", "last"]
    uids = {}
    for target in targets:
        uids[target] = await h.submit(target, key="one lane", chunk_items=10)
    await h.control(set={"latency_s": 0.1})  # so that each job takes three seconds: what is done to it meets it at work
    for _ in range(2):
        await h.worker(seats="1")
    await h.done(uids["worker dies"], 10)
    part(h, "worker").kill()
    await h.worker(seats="1")
    await h.done(uids["worker dies"], 30)
    await h.done(uids["cancelled"], 5)
    await h.call("DELETE", f"/jobs/{uids['cancelled']}")
    await h.done(uids["nats dies"], 5)
    h.nats.kill()
    h.nats.start()
    await h.done(uids["nats dies"], 30)
    await h.ended(uids["unknown player"])
    await h.done(uids["late"], 5)
    bus = await h.bus()
    now = bus.clock.wall()
    await bus.tags.change(uids["late"], lambda tag: _due(tag, now))
    await h.ended(uids["late"])
    await h.control(set={"latency_s": 0.02})
    await h.done(uids["entry dies"], 5)
    part(h, "entry").kill()
    await h.entry()
    await h.done(uids["reaper dies"], 5)
    part(h, "reaper").kill()
    await h.reaper()
    await h.ended(uids["last"])
    calls = (await h.world())["calls"]
    polled = [target for target in targets if any(call[1] == target for call in calls)]
    assert polled == [target for target in targets if target != "unknown player"]
    for first, second in pairwise(polled):
        begins = min(call[3] for call in calls if call[1] == second)
        assert max(call[3] for call in calls if call[1] == first) <= begins, (first, second)
    for target in ("worker dies", "nats dies", "entry dies", "reaper dies", "last"):
        await checks.complete_values(h, uids[target], target, items)
    statuses = {target: (await h.job(uid))["status"] for target, uid in uids.items()}
    assert (statuses["cancelled"], statuses["unknown player"], statuses["late"]) == ("cancelled", "failed", "failed")
    await checks.nothing_left(h)


def _due(tag, now) -> bool:  # type: ignore[no-untyped-def]
    """Its deadline is over: what the test would otherwise have to wait for."""
    tag.essential = replace(tag.essential, deadline=now)
    return True
