"""Every fault at every moment: nothing lost, nothing doubled, whoever dies at whatever line.

Here each moment meets kill -9 on both of its sides and one more fault, all of which have their turn; `make faults` runs
all of them on both sides, and writes docs/faults.md.
"""

import asyncio
import os
import time
from itertools import count

import pytest

from tests.conftest import MakeHouse
from tests.faults import debris
from tests.faults.moments import MOMENTS, Moment
from tests.faults.report import Trial, record
from tests.faults.stage import Stage
from tests.faults.strikes import STRIKES
from tests.support import checks
from tests.support.proxy import Trip
from tests.support.wait import until

SIDES = ("before", "after")
_others = [name for name in STRIKES if name != "kill -9"]


def plan(index: int) -> list[tuple[str, str]]:
    """(fault, side) for the n-th moment."""
    if os.environ.get("CUSCUTA_FAULTS") == "all":
        return [(fault, side) for fault in STRIKES for side in SIDES]
    return [("kill -9", "before"), ("kill -9", "after"), (_others[index % len(_others)], SIDES[index % 2])]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("moment", MOMENTS, ids=[moment.what for moment in MOMENTS])
async def test_nothing_is_lost_or_doubled(make_house: MakeHouse, moment: Moment) -> None:
    h = await make_house(**({"max_active_jobs": "8"} if moment.queued else {}))
    numbers = count()
    async with Stage(h) as stage:
        for fault, side in plan(MOMENTS.index(moment)):
            trial = await strike(stage, moment, fault, side, f"player {next(numbers)}")
            record(trial)
            assert (trial.lost, trial.doubled) == (0, 0), trial
        await checks.never_together(h)


async def strike(stage: Stage, moment: Moment, fault: str, side: str, name: str) -> Trial:
    """One fault at one moment, with a lane of two jobs and a follow-up going on."""
    if moment.debris in debris.NEEDS_NO_WORKER or moment.fresh:
        await asyncio.to_thread(stage.parts["worker" if moment.debris else moment.part].stop)
    if moment.fresh and moment.debris:
        await asyncio.to_thread(stage.parts[moment.part].stop)
    await stage.h.sql("UPDATE account_table SET temp_token = NULL")  # whoever starts anew logs in
    trip = stage.proxies[moment.part, moment.server].arm(Trip(moment.pattern, side, moment.nth, moment.skip))
    first, second, third = (f"{name} {which}" for which in ("first", "second", "third"))
    # A job that something follows is tidied up by entry, who may submit it; else by the worker that ends it.
    follow = {} if moment.name.startswith("settle") else {"on_success": {"target": third, "catalogue": "songs"}}
    if moment.name == "donate":
        await stage.one_slow()
    proof = await debris.make(stage, moment.debris, f"{name} debris") if moment.debris else None
    if moment.fresh:
        await stage.start(moment.part, wait=False)
    async with asyncio.TaskGroup() as group:
        uids: list[asyncio.Task[str]] = []

        def submit(target: str, **more: object) -> None:
            uids.append(group.create_task(stage.submit(target, key=name, **more)))

        if moment.part != "reaper":
            submit(first, **follow)
        if moment.part == "worker":
            uid = await uids[0]
            submit(second)
            if moment.name == "release":
                await stage.h.done(uid, 2)
                stage.parts["worker"].popen.terminate()
        await asyncio.wait_for(trip.hit.wait(), 60)
        began = time.monotonic()
        if moment.part == "worker":
            await stage.help()
        await STRIKES[fault](stage, moment, trip)
        for part, proc in list(stage.parts.items()):
            if not proc.running():
                await stage.start(part, wait=False)
        if moment.part == "reaper":
            submit(first, **follow)
        if moment.part != "worker":
            await uids[0]
            submit(second)
    jobs = {target: task.result() for target, task in zip((first, second), uids, strict=True)}
    for uid in jobs.values():
        assert (await stage.ended(uid))["status"] == "completed"
    if follow:
        jobs[third] = await stage.followed(third)
        assert (await stage.ended(jobs[third]))["status"] == "completed"
    if proof is not None:
        await until(proof, 60, f"{moment.debris} is mended")
    await checks.nothing_left(stage.h, 30)
    seconds = time.monotonic() - began
    found = [await stage.losses(uid, target) for target, uid in jobs.items()]
    again = sum([await stage.repeats(target) for target in jobs])
    assert not await stage.overlapped(first, second)
    await stage.mend()
    lost, doubled = (sum(column) for column in zip(*found, strict=True))
    return Trial(fault, moment.what, side, lost, doubled, again, round(seconds, 2))
