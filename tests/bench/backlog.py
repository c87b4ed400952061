"""A backlog of 10,000 queued jobs beside an empty system, in the same run, probed in turn: submits a second, consumers,
and the entry's memory. Also a list of 50 rows out of all jobs, first page and a filter that matches few."""

import asyncio
import statistics
import time
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import house
from tests.support.house import House

ACTIVE, CLIENTS, PROBE = 20, 8, 200


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    backlog, probe, rounds = (300, 20, 1) if quick else (10_000, PROBE, rounds or 5)
    env = {"max_active_jobs": str(ACTIVE), "upstream": "noop"}  # no worker: nothing ends, what is submitted stays
    async with house(folder, postgres, "empty", **env) as empty, house(folder, postgres, "full", **env) as full:
        await empty.entry()
        entry = await full.entry()
        for h in (empty, full):
            await h.catalogue(10)
            await _submit(h, 0, ACTIVE + probe)
        before = entry.rss_bytes()
        await _submit(full, 1_000_000, backlog)
        after = entry.rss_bytes()
        rates: dict[str, list[float]] = {"empty": [], "full": []}
        for n in range(rounds):
            for name, h in (("empty", empty), ("full", full)):
                began = time.perf_counter()
                await _submit(h, 2_000_000 + n * probe, probe)
                rates[name].append(probe / (time.perf_counter() - began))
        consumers = await (await full.bus()).work.active_consumers()
        first, rare = await _listing(full, {}), await _listing(full, {"target": "player 5"})
    return {
        "bench": "backlog",
        "backlog": backlog,
        "rounds": rounds,
        "submits_per_s_empty": round(statistics.median(rates["empty"])),
        "submits_per_s_full": round(statistics.median(rates["full"])),
        "full_over_empty": round(statistics.median(b / a for a, b in zip(*rates.values(), strict=True)), 3),
        "consumers": consumers,
        "max_active_jobs": ACTIVE,
        "entry_growth_bytes": after - before,
        "list_50_seconds": round(first, 4),
        "list_rare_seconds": round(rare, 4),
    }


async def _listing(h: House, params: dict[str, str]) -> float:
    began = time.perf_counter()
    page = await h.call("GET", "/jobs", params={"limit": 50, **params})
    assert page["jobs"], page
    return time.perf_counter() - began


async def _submit(h: House, first: int, count: int) -> None:
    numbers = iter(range(first, first + count))

    async def client() -> None:
        for n in numbers:
            await h.submit(f"player {n}")

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
