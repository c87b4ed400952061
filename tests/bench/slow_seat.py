"""Accounts without an allowance, some of them slower: seconds over ideal by capacity.

600 items of 200 ms, 8 accounts: two of them 3 times slower, then one of them 10 times slower.
"""

import statistics
from contextlib import AsyncExitStack
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import Fleet, completed, fleet, seconds

WORKS = {
    "two_3x": Fleet(accounts=8, latency_ms=200, slow=2, slow_factor=3),
    "one_10x": Fleet(accounts=8, latency_ms=200, slow=1, slow_factor=10),
}
WAYS: dict[str, dict[str, str]] = {"cuscuta": {}}


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    items, rounds = (80, 1) if quick else (600, rounds or 5)
    found: dict[tuple[str, str], list[float]] = {}
    extra: list[float] = []
    async with AsyncExitStack() as stack:
        houses = {}
        for name, work in WORKS.items():
            for way, env in WAYS.items():
                entered = fleet(folder, postgres, f"{name}-{way[:3]}", work, items, env)
                houses[name, way] = await stack.enter_async_context(entered)
        for n in range(rounds):
            for (name, way), h in houses.items():
                await h.control(reset=True)
                job = await completed(h, await h.submit(f"round {n}"))
                found.setdefault((name, way), []).append(seconds(job) / (items / WORKS[name].items_per_s))
                if way == "cuscuta":
                    extra.append((await h.world())["counts"]["polls"] / items - 1)
    return {
        "bench": "slow-seat",
        "items": items,
        "rounds": rounds,
        "seconds_over_ideal": {
            name: {way: round(statistics.median(found[name, way]), 3) for way in WAYS} for name in WORKS
        },
        "extra_polls": round(max(extra), 4),
        "all": {f"{name} {way}": [round(r, 3) for r in rs] for (name, way), rs in found.items()},
    }
