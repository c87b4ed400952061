"""What lanes cost: jobs of as many keys beside jobs without any, and a lane in which 10,000 jobs wait.

`keys_over_none`: the time that 1,000 jobs of one item take, each with a key of its own, over those without, in the same
round. `submit_ms` and `settle_ms`: a submit into the long lane and the way from a job's last result to the admission of
the next one in its lane, beside the same in a lane without that row.
"""

import asyncio
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import completed, house, seconds, spread
from tests.support.house import House

CLIENTS = 16


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    jobs, waiting, trials = (60, 100, 5) if quick else (1_000, 10_000, 40)
    rounds = 1 if quick else rounds or 5
    ratios = []
    async with house(folder, postgres, "lanes", upstream="noop") as h:
        await h.entry()
        await h.reaper()
        await h.worker(seats="4")
        await h.accounts(4)
        await h.catalogue(1)
        await h.seats(4)
        await _all(h, jobs, "warm up", keys=True)
        for n in range(rounds):
            free = await _all(h, jobs, f"free {n}", keys=False)
            ratios.append(await _all(h, jobs, f"keyed {n}", keys=True) / free)
        short = await _lane(h, "short", 0, trials)
        long = await _lane(h, "long", waiting, trials)
    return {
        "bench": "lanes",
        "jobs": jobs,
        "waiting": waiting,
        "rounds": rounds,
        "keys_over_none": round(statistics.median(ratios), 3),
        "all": [round(ratio, 3) for ratio in ratios],
        "short": short,
        "long": long,
    }


async def _all(h: House, jobs: int, name: str, *, keys: bool) -> float:
    """Seconds from the first submit to the last end."""
    numbers = iter(range(jobs))
    uids: list[str] = []
    body: dict[str, Any] = {} if keys else {"key": None}

    async def client() -> None:
        for n in numbers:
            uids.append(await h.submit(f"{name} {n}", **body))

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    await asyncio.gather(*(completed(h, uid) for uid in uids[-CLIENTS:]))
    return time.perf_counter() - began


async def _lane(h: House, lane: str, waiting: int, trials: int) -> dict[str, object]:
    """A lane is filled while nobody works; then its first jobs run, one after another, before all that wait."""
    for worker in [proc for proc in h.procs if "worker" in proc.name and proc.running()]:
        worker.stop()
    body: dict[str, Any] = {"key": lane, "labels": {"lane": lane}}
    first = [await h.submit(f"{lane} {n}", **body) for n in range(trials)]
    numbers = iter(range(waiting))

    async def client() -> None:
        for n in numbers:
            await h.submit(f"{lane} waits {n}", **body)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    submits = []
    for n in range(trials):
        began = time.perf_counter()
        await h.submit(f"{lane} more {n}", **body)
        submits.append((time.perf_counter() - began) * 1000)
    worker = await h.worker(seats="4")
    await completed(h, first[-1])
    worker.stop()
    jobs = [await h.job(uid) for uid in first]
    turns = [seconds({**before, "next": job["admitted_at"]}, "ended_at", "next") for before, job in pairwise(jobs)]
    left = 1
    while left:
        done = await h.call("DELETE", "/jobs", params={"label": f"lane:{lane}", "dry_run": "false"})
        left = done["matched"] - done["cancelled"]
    return {"submit_ms": spread(submits), "settle_ms": spread([turn * 1000 for turn in turns])}
