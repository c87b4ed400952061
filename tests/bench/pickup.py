"""An idle fleet and one chunk, 200 times: how long from the submit's first byte to the upstream's first poll."""

import statistics
import time
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import house


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    trials = 10 if quick else rounds or 200
    async with house(folder, postgres, "pickup") as h:
        await h.upstream(accounts=8, latency_ms=0)
        await h.entry()
        await h.reaper()
        for _ in range(2):
            await h.worker(seats="4")
        await h.accounts(8)
        await h.catalogue(1)
        await h.seats(8)
        began = {}
        for n in range(trials + 10):  # the first ten warm up: every seat logs in once
            target = f"player {n}"
            began[target] = time.monotonic()  # the upstream's clock too: one machine, one CLOCK_MONOTONIC
            await h.ended(await h.submit(target))
        polled = {call[1]: call[3] for call in (await h.world())["calls"]}
    waits = sorted((polled[f"player {n}"] - began[f"player {n}"]) * 1000 for n in range(10, trials + 10))
    return {
        "bench": "pickup",
        "trials": trials,
        "p50_ms": round(statistics.median(waits), 1),
        "p99_ms": round(waits[min(len(waits) - 1, int(len(waits) * 0.99))], 1),
        "worst_ms": round(waits[-1], 1),
    }
