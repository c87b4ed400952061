"""Concurrent jobs on one catalogue with an upstream whose poll answers for all followed targets: polls for each job.

One poll counts once, however many jobs it answers for. `polls_over_catalogue`: the upstream's own count over the
catalogue's length; without sharing it is the number of jobs.
"""

import asyncio
import statistics
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import REFERENCE, completed, house
from tests.support.house import House

ACCOUNTS, LATENCY_MS = 8, 20.0


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    items, rounds, counts = (60, 1, (1, 4)) if quick else (600, rounds or 5, (1, 2, 5, 10, 20))
    found: dict[int, list[float]] = {count: [] for count in counts}
    times: dict[int, list[float]] = {count: [] for count in counts}
    async with house(folder, postgres, "shared", upstream=str(REFERENCE / "shared.toml")) as h:
        await h.upstream(ACCOUNTS, LATENCY_MS)
        await h.entry()
        await h.reaper()
        for _ in range(2):
            await h.worker(seats=str(ACCOUNTS // 2))
        await h.accounts(ACCOUNTS)
        await h.catalogue(items)
        await h.seats(ACCOUNTS)
        await h.ended(await h.submit("warm up"))
        for n in range(rounds):
            for count in counts:
                polls, seconds = await _together(h, f"round {n} of {count}", count)
                found[count].append(polls / items)
                times[count].append(seconds)
    return {
        "bench": "shared",
        "items": items,
        "rounds": rounds,
        "polls_over_catalogue": {count: round(statistics.median(v), 3) for count, v in found.items()},
        "polls_per_job": {count: round(statistics.median(v) / count, 3) for count, v in found.items()},
        "seconds": {count: round(statistics.median(v), 2) for count, v in times.items()},
    }


async def _together(h: House, name: str, count: int) -> tuple[int, float]:
    await h.control(reset=True)
    loop = asyncio.get_running_loop()
    began = loop.time()
    uids = await asyncio.gather(*(h.submit(f"{name}: {i}") for i in range(count)))
    await asyncio.gather(*(completed(h, uid) for uid in uids))
    return int((await h.world())["counts"]["polls"]), loop.time() - began
