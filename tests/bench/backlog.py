"""A backlog of 10,000 queued jobs: submits a second beside an empty system, consumers, and the entry's memory."""

import asyncio
import statistics
import time
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import house
from tests.support.house import House

ACTIVE, CLIENTS, PROBE = 20, 8, 500


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    backlog = 300 if quick else 10_000
    probe = 50 if quick else PROBE
    async with house(folder, postgres, "backlog", max_active_jobs=str(ACTIVE), upstream="noop") as h:
        entry = await h.entry()  # no worker: nothing ends, so whatever is submitted stays
        await h.catalogue(10)
        await _submit(h, 0, ACTIVE)
        await _submit(h, ACTIVE, probe)  # warm
        empty = await _rate(h, ACTIVE + probe, probe)
        before = entry.rss_bytes()
        await _submit(h, 10_000_000, backlog)
        after = entry.rss_bytes()
        full = await _rate(h, 20_000_000, probe)
        bus = await h.bus()
        consumers = await bus.work.active_consumers()
        began = time.perf_counter()
        page = await h.call("GET", "/jobs", params={"limit": 50, "target": "player 5"})
        listing = time.perf_counter() - began
        assert page["jobs"], page
    return {
        "bench": "backlog",
        "backlog": backlog,
        "submits_per_s_empty": round(empty),
        "submits_per_s_full": round(full),
        "full_over_empty": round(full / empty, 3),
        "consumers": consumers,
        "max_active_jobs": ACTIVE,
        "entry_growth_bytes": after - before,
        "list_50_seconds": round(listing, 4),
    }


async def _rate(h: House, first: int, count: int) -> float:
    """Median submits a second of three goes."""
    rates = []
    for go in range(3):
        began = time.perf_counter()
        await _submit(h, first + go * count + 1_000_000 * (go + 1), count)
        rates.append(count / (time.perf_counter() - began))
    return statistics.median(rates)


async def _submit(h: House, first: int, count: int) -> None:
    numbers = iter(range(first, first + count))

    async def client() -> None:
        for n in numbers:
            await h.submit(f"player {n}")

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
