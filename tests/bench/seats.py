"""Speed-up from 1 to 16 seats with equal accounts: items a second over those of one seat, in the same round.

Each number of seats gets a job of as many items for each seat (84, as in nine-minutes), so all jobs last equally long.
"""

import statistics
from contextlib import AsyncExitStack
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import Fleet, completed, fleet, seconds

EACH, LATENCY_MS = 84, 40.0


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    each, rounds, counts = (15, 1, (1, 4)) if quick else (EACH, rounds or 5, (1, 2, 4, 8, 16))
    speeds: dict[int, list[float]] = {count: [] for count in counts}
    async with AsyncExitStack() as stack:
        houses = {
            count: await stack.enter_async_context(
                fleet(folder, postgres, f"seats-{count}", Fleet(accounts=count, latency_ms=LATENCY_MS), each * count)
            )
            for count in counts
        }
        for n in range(rounds):
            for count, h in houses.items():
                job = await completed(h, await h.submit(f"round {n}"))
                speeds[count].append(each * count / seconds(job))
    ups = {
        count: round(statistics.median(a / b for a, b in zip(found, speeds[1], strict=True)), 2)
        for count, found in speeds.items()
    }
    return {"bench": "seats", "items_each": each, "rounds": rounds, "speed_up": ups}
