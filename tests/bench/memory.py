"""Resident memory of a worker process: idle, and while it does 10,000 jobs, one after another and a few at once."""

import asyncio
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import house

AT_ONCE, SAMPLES = 20, 40


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    jobs = 200 if quick else (rounds or 1) * 10_000
    async with house(folder, postgres, "memory", upstream="noop") as h:
        await h.entry()
        await h.reaper()
        worker = await h.worker(seats="4")
        await h.accounts(4)
        await h.catalogue(3)
        await h.seats(4)
        idle = worker.rss_bytes()
        numbers = iter(range(jobs))
        done, samples = 0, [(0, idle)]

        async def client() -> None:
            nonlocal done
            for n in numbers:
                uid = await h.submit(f"player {n}")
                await h.call("GET", f"/jobs/{uid}", params={"wait_s": 30})
                done += 1
                if done % max(1, jobs // SAMPLES) == 0:
                    samples.append((done, worker.rss_bytes()))

        await asyncio.gather(*(client() for _ in range(AT_ONCE)))
        after = worker.rss_bytes()
    warm = next(rss for count, rss in samples if count >= jobs / 10)
    return {
        "bench": "memory",
        "jobs": jobs,
        "idle_mb": round(idle / 1e6, 1),
        "after_mb": round(after / 1e6, 1),
        "after_over_a_tenth": round(after / warm, 3),
        "samples_mb": [[count, round(rss / 1e6, 1)] for count, rss in samples],
    }
