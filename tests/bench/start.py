"""From a process's start to ready, and, of a worker that comes during a job, from ready to its first poll."""

import statistics
import time
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import house
from tests.support.house import House
from tests.support.process import Proc


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    rounds = 2 if quick else rounds or 10
    entry, worker, first = [], [], []
    async with house(folder, postgres, "start", seats="1") as h:
        await h.upstream(accounts=rounds + 1, latency_ms=100)
        await h.entry()
        await h.reaper()
        await h.catalogue(100)
        for n in range(1, rounds + 1):
            _, seconds = await _started(h, "entry")
            entry.append(seconds)
            await h.accounts(n)  # one of them is new, and nobody's yet
            uid = await h.submit(f"player {n}")
            _, seconds = await _started(h, "worker")
            worker.append(seconds)
            ready = time.monotonic()  # the upstream's clock too: one machine, one CLOCK_MONOTONIC
            email = f"account-{n}@example.com"
            while not (polls := [c for c in (await h.world())["calls"] if c[0] == email]):
                pass
            first.append(max(0.0, polls[0][3] - ready))
            await h.ended(uid, 120)
    return {
        "bench": "start",
        "rounds": rounds,
        "entry_ready_s": round(statistics.median(entry), 2),
        "entry_worst_s": round(max(entry), 2),
        "worker_ready_s": round(statistics.median(worker), 2),
        "worker_worst_s": round(max(worker), 2),
        "first_poll_after_ready_s": round(statistics.median(first), 3),
        "first_poll_worst_s": round(max(first), 3),
    }


async def _started(h: House, part: str) -> tuple[Proc, float]:
    began = time.monotonic()
    proc = await (h.worker(seats="1") if part == "worker" else h.entry())
    return proc, time.monotonic() - began
