"""A cluster of three nats-servers, every stream kept three times: nodes die, are cut off and restarted under load."""

import asyncio
import time
from pathlib import Path

import pytest

from cuscuta import subjects
from cuscuta.broker.assets import streams
from cuscuta.embedded.postgres import Postgres
from tests.faults.report import Trial, record
from tests.faults.stage import lasts
from tests.support import checks
from tests.support.cluster import SIZE, ClusterHouse
from tests.support.patient import Patient
from tests.support.wait import until

ITEMS = 60
WORK = subjects.work_stream()
GOES_ON_S = 90.0  # how long it took is recorded (docs/faults.md): it depends on elections, and on what else runs here


class Load:
    """Jobs without end: two lanes in which the next one is submitted as soon as one has ended."""

    def __init__(self, h: ClusterHouse, items: list[str]) -> None:
        self.h, self.items = h, items
        self.jobs: dict[str, str] = {}
        self._client, self._over = Patient(h), False

    async def lane(self, name: str) -> None:
        n = 0
        while not self._over:
            n += 1
            target = f"player {name} {n}"
            self.jobs[target] = await self._client.submit(target, key=name)
            assert (await self._client.ended(self.jobs[target], 90))["status"] == "completed"

    async def goes_on(self, what: str) -> float:
        """Seconds until a job has ended and the next one of its lane was accepted."""
        began, done = time.monotonic(), len(self.jobs)

        async def one_more() -> bool:
            return len(self.jobs) > done

        await until(one_more, GOES_ON_S, f"a job ends and another begins after {what}")
        return time.monotonic() - began

    async def stop(self) -> None:
        self._over = True

    async def check(self, fault: str, seconds: float) -> None:
        """Nothing lost, nothing stored twice."""
        bus, lost, doubled, again = await self.h.bus(), 0, 0, 0
        for target, uid in self.jobs.items():
            await checks.complete_values(self.h, uid, target, self.items)
            lost += ITEMS - len(await self.h.results(uid))
            doubled += sum(s.size for s in await bus.results.stored(uid)) - ITEMS
            again += sum((await checks.polls(self.h, target)).values()) - ITEMS
        await checks.nothing_left(self.h, 60)
        await checks.never_together(self.h)
        record(Trial(fault, "cluster of three, R3, under load", "", lost, doubled, again, round(seconds, 2)))


async def struck(h: ClusterHouse, fault: str) -> None:
    """A load, a fault in its middle, and what must hold afterwards."""
    await h.upstream(accounts=4, latency_ms=10)
    await h.entry()
    await h.reaper()
    await h.worker(seats="2")
    await h.worker(seats="2")
    await h.accounts(4)
    items = await h.catalogue(ITEMS)
    await h.seats(4)
    for config in streams(h.settings()):
        info = await (await h.bus()).broker.api(f"STREAM.INFO.{config['name']}")
        assert info["config"]["num_replicas"] == SIZE
    findings = {finding["what"]: finding for finding in await h.call("GET", "/doctor")}
    assert findings["replication"]["state"] == "good", findings
    load = Load(h, items)
    async with asyncio.TaskGroup() as group:
        lanes = [group.create_task(load.lane(name)) for name in ("one", "two")]
        await load.goes_on("the start")
        seconds = await _FAULTS[fault](h, load)
        await load.stop()
        await asyncio.wait(lanes)
    await load.check(fault, seconds)


async def _leaders_and_followers(h: ClusterHouse, load: Load) -> float:
    """kill -9 of the work queue's leader, then of a follower, then of the tags' leader."""
    longest = 0.0
    for what in ("leader", "follower", "leader of tags"):
        leader = await h.leader(subjects.kv_stream(subjects.TAGS) if what == "leader of tags" else WORK)
        node = h.cluster.nodes[(leader + (what == "follower")) % SIZE]
        node.kill()
        longest = max(longest, await load.goes_on(f"the {what} was killed"))
        await asyncio.to_thread(node.start)
        await until(lambda: h.healthy(WORK), 60, "it has caught up")
    return longest


async def _minority(h: ClusterHouse, load: Load) -> float:
    """The work queue's leader is cut off from the others, its clients are not cut off from it."""
    h.cluster.cut_off(await h.leader(WORK))
    seconds = await load.goes_on("a node was cut off")
    await lasts(10)
    h.cluster.heal()
    return max(seconds, await load.goes_on("it is back"))


async def _rolling(h: ClusterHouse, load: Load) -> float:
    """Every node is stopped and started, one after another, as an upgrade does."""
    longest = 0.0
    for node in h.cluster.nodes:
        await asyncio.to_thread(node.stop)
        longest = max(longest, await load.goes_on("a node was stopped"))
        await asyncio.to_thread(node.start)
        await until(lambda: h.healthy(WORK), 60, "it has caught up")
    return longest


_FAULTS = {
    "kill -9 of leaders and followers": _leaders_and_followers,
    "minority partition": _minority,
    "rolling restart": _rolling,
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", list(_FAULTS))
async def test_a_cluster_loses_nothing_and_goes_on(folder: Path, postgres: Postgres, fault: str) -> None:
    async with ClusterHouse(folder, postgres, ack_wait_s="5", mend_after_s="2") as h:
        await struck(h, fault)
