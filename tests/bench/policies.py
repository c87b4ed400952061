"""`single`, `window` and `chunk` on the same work, interleaved: seconds / ideal of each."""

import statistics
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import house, seconds

ACCOUNTS, SLOW, LATENCY_MS, SLOW_FACTOR = 8, 2, 40.0, 3.0


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    items, rounds = (120, 1) if quick else (1200, rounds or 3)
    capacity = (ACCOUNTS - SLOW + SLOW / SLOW_FACTOR) * 1000 / LATENCY_MS
    ideal = items / capacity
    ratios: dict[str, list[float]] = {"single": [], "window": [], "chunk": []}
    async with house(folder, postgres, "policies") as h:
        await h.upstream(ACCOUNTS, LATENCY_MS, slow=SLOW, slow_factor=SLOW_FACTOR)
        await h.entry()
        await h.reaper()
        for _ in range(2):
            await h.worker(seats="4")
        await h.accounts(ACCOUNTS)
        await h.catalogue(items)
        await h.seats(ACCOUNTS)
        for n in range(rounds):
            for policy, found in ratios.items():
                uid = await h.submit(f"player {policy} {n}", policy=policy)
                job = await h.ended(uid, timeout=300)
                assert job["status"] == "completed", job
                found.append(seconds(job) / ideal)
    return {
        "bench": "policies",
        "items": items,
        "rounds": rounds,
        "ideal_seconds": round(ideal, 3),
        **{policy: round(statistics.median(found), 3) for policy, found in ratios.items()},
    }
