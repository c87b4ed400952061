"""The job that takes one account nine minutes, time scaled 1:10: 1,350 items of 40 ms, 16 equal accounts.

`times_faster`: items a second with 16 accounts over items a second with one, both measured in the same round. The one
alone works on a fifth of the catalogue, which is long enough for its speed; nine minutes of it would tell no more.
"""

import statistics
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import Fleet, completed, fleet, seconds

ACCOUNTS, ITEMS, LATENCY_MS = 16, 1_350, 40.0


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    items, rounds = (160, 1) if quick else (ITEMS, rounds or 5)
    one, many = Fleet(accounts=1, latency_ms=LATENCY_MS), Fleet(accounts=ACCOUNTS, latency_ms=LATENCY_MS)
    times, took = [], []
    async with (
        fleet(folder, postgres, "one", one, items // 5) as alone,
        fleet(folder, postgres, "all", many, items) as together,
    ):
        for n in range(rounds):
            slow = await completed(alone, await alone.submit(f"round {n}"))
            quickly = await completed(together, await together.submit(f"round {n}"))
            took.append(seconds(quickly))
            times.append((items / seconds(quickly)) / ((items // 5) / seconds(slow)))
    return {
        "bench": "nine-minutes",
        "items": items,
        "accounts": ACCOUNTS,
        "rounds": rounds,
        "times_faster": round(statistics.median(times), 2),
        "seconds": round(statistics.median(took), 3),
        "nine_minutes_become_s": round(540 / statistics.median(times), 1),
        "all": [round(t, 2) for t in times],
    }
