"""Random faults for minutes on end under a stream of jobs: `make soak`, and three minutes of it in the suite."""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

from msgspec import Struct

from tests.faults.moments import MOMENTS
from tests.faults.stage import ITEMS, Stage, lasts
from tests.faults.strikes import STRIKES
from tests.support import checks
from tests.support.alone import alone
from tests.support.process import Proc
from tests.support.proxy import Trip
from tests.support.wait import until

WORKERS, LANES = 4, 4
# Of an idle deployment, beside what it had when it was new: allocators keep some, caches fill up to their limits.
MORE_BYTES, MORE_TASKS, MORE_CONNECTIONS = 60_000_000, 8, 2


class Figures(Struct):
    """What must not grow, of an idle deployment."""

    rss_bytes: dict[str, int]
    tasks: dict[str, int]
    connections: int
    consumers: int
    leases: int
    left: int


class Soak:
    """A stage, a stream of jobs, and one random fault after another."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage, self.random, self.seed = stage, random.Random(seed), seed
        self.workers: list[Proc] = []
        self.jobs: list[tuple[str, str, str]] = []  # lane, target, uid
        self.faults: dict[str, int] = {}
        self._over = False

    async def run(self, seconds: float, tell: Callable[[str], None]) -> None:
        """Work, faults, and then what must hold."""
        h = self.stage.h
        for _ in range(WORKERS - 1):
            self.workers.append(await h.worker(seats="2"))
        await self._one_of_each()
        before = await self.figures()
        tell(f"seed {self.seed}; at the start {before}")
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            lanes = [group.create_task(self._lane(f"lane {n}")) for n in range(LANES)]
            while time.monotonic() < end:
                await self._fault()
                tell(f"{end - time.monotonic():5.0f} s left, {len(self.jobs)} jobs, faults {self.faults}")
            self._over = True
            await asyncio.wait(lanes)
        await self.stage.mend()
        await self._check()
        await self._flat(before, tell)

    async def _one_of_each(self) -> None:
        """Whatever is made once is made."""
        for n in range(4):
            uid = await self.stage.submit(f"warm {n}")
            await self.stage.ended(uid)

    async def _lane(self, lane: str) -> None:
        n = 0
        while not self._over:
            n += 1
            target = f"{lane} player {n}"
            uid = await self.stage.submit(target, key=lane, priority=self.random.choice(["high", "normal", "low"]))
            self.jobs.append((lane, target, uid))
            if self.random.random() < 0.3:
                continue  # the next one waits behind it
            await self.stage.ended(uid, 120)

    async def _fault(self) -> None:
        kinds: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            *((name, self._strike(name)) for name in STRIKES),
            ("a worker killed", self._worker_killed),
            ("a worker stopped", self._worker_stopped),
            ("nothing", lambda: lasts(2)),
        ]
        name, act = self.random.choice(kinds)
        self.faults[name] = self.faults.get(name, 0) + 1
        await act()
        for part, proc in list(self.stage.parts.items()):
            if not proc.running():
                await self.stage.start(part, wait=False)
        await lasts(self.random.uniform(0.2, 2.5))

    def _strike(self, name: str) -> Callable[[], Awaitable[None]]:
        async def act() -> None:
            moment = self.random.choice([m for m in MOMENTS if not m.debris and not m.fresh])
            await STRIKES[name](self.stage, moment, Trip(b"x", "before"))

        return act

    async def _worker_killed(self) -> None:
        self.workers.pop(self.random.randrange(len(self.workers))).kill()
        self.workers.append(await self.stage.h.worker(wait=False, seats="2"))

    async def _worker_stopped(self) -> None:
        proc = self.workers.pop(self.random.randrange(len(self.workers)))
        code, _ = await asyncio.to_thread(proc.stop)
        assert code == 0, proc.text()[-2000:]
        self.workers.append(await self.stage.h.worker(wait=False, seats="2"))

    async def _check(self) -> None:
        """The upstream's own log and the stored results tell the truth."""
        h, ends = self.stage.h, {}
        for _, target, uid in self.jobs:
            job = await self.stage.ended(uid, 120)
            assert job["status"] == "completed", job
            assert await self.stage.losses(uid, target) == (0, 0), (self.seed, target)
        calls: dict[str, list[Any]] = {}
        for call in (await h.world())["calls"]:
            calls.setdefault(call[1], []).append(call)
        for _, target, _ in self.jobs:
            assert len({call[2] for call in calls[target] if call[5] == 200}) == ITEMS
            ends[target] = max(call[3] for call in calls[target])
        for lane in {lane for lane, _, _ in self.jobs}:
            targets = [target for its, target, _ in self.jobs if its == lane]
            for first, second in pairwise(targets):
                assert ends[first] <= min(call[3] for call in calls[second]), (self.seed, first, second)
        await checks.nothing_left(h, 60)
        assert (await h.world())["over_rate"] == 0

    async def figures(self) -> Figures:
        """Of the deployment as it is now."""
        h = self.stage.h
        procs: dict[str, Proc] = {str(part): proc for part, proc in self.stage.parts.items()}
        procs |= {f"worker {n}": proc for n, proc in enumerate(self.workers)}
        tasks = {}
        for name, proc in procs.items():
            await h.ready(h.urls[proc.name], proc, 60)
            tasks[name] = (await h.http.get(f"{h.urls[proc.name]}/livez")).json()["tasks"]
        bus = await h.bus()
        ports = json.loads(next(h.nats.folder.glob("*.ports")).read_text())
        varz = (await h.http.get(f"{ports['monitoring'][0]}/varz")).json()
        return Figures(
            {name: proc.rss_bytes() for name, proc in procs.items()},
            tasks,
            varz["connections"],
            len(await bus.work.job_consumers()),
            (await h.states()).get("Using", 0),
            len(await bus.work.subjects("cuscuta.>")),
        )

    async def _flat(self, before: Figures, tell: Callable[[str], None]) -> None:
        """An idle deployment is as it was, once what is dying has died."""
        now = await self.figures()

        async def flat() -> bool:
            nonlocal now
            now = await self.figures()
            return (
                now.connections <= before.connections + MORE_CONNECTIONS
                and (now.consumers, now.left) == (0, 0)
                and now.leases <= 2 * WORKERS
                and all(n <= max(before.tasks.values()) + MORE_TASKS for n in now.tasks.values())
            )

        try:
            await until(flat, 40, "everything is as it was", 1.0)
        finally:
            tell(f"at the end {now}; {len(self.jobs)} jobs")
        for name, rss in now.rss_bytes.items():
            assert rss <= max(before.rss_bytes.values()) + MORE_BYTES, (name, rss, before.rss_bytes)


async def _main(seconds: float, seed: int) -> None:
    async with alone() as h, Stage(h) as stage:
        await Soak(stage, seed).run(seconds, lambda line: print(line, flush=True))


def main() -> None:
    """`python -m tests.faults.soak`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    asyncio.run(_main(options.minutes * 60, options.seed))
    print(f"{options.minutes:g} minutes: nothing lost, nothing doubled, nothing grown", file=sys.stderr)


if __name__ == "__main__":
    main()
