"""The ways to divide a job, on the same work, interleaved: seconds over ideal, and messages through NATS.

600 items, 8 accounts that may poll 25 times a second one at a time, 20 ms a poll, two of them 60 ms. `single`, `window`
and `chunk` do without donation and hedging; `one-item` is `chunk` with chunks of one item, to compare the messages
(of the job alone, less what the same deployment says when idle).
Every seat has logged in before; the target needs no follow.
"""

import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import Fleet, completed, fleet, seconds
from tests.support.house import House

WORK = Fleet(accounts=8, latency_ms=20, rate_per_s=25, slow=2, slow_factor=3)
FIXED = {"donation": "false", "hedging": "false"}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {  # name: (deployment, body of the job)
    "single": ("fixed", {"policy": "single"}),
    "window": ("fixed", {"policy": "window"}),
    "one-item": ("fixed", {"chunk_items": 1}),
    "chunk": ("fixed", {}),
    "chunk+donation": ("donation", {}),
    "+hedging": ("hedging", {}),
}


async def _idle_per_s(h: House) -> float:
    """Messages a second without any job: heartbeats, looks at the truth, duties."""
    before, began = await h.nats_messages(), time.perf_counter()
    await asyncio.sleep(10)
    return (await h.nats_messages() - before) / (time.perf_counter() - began)


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    items, rounds = (120, 1) if quick else (600, rounds or 5)
    ideal = items / WORK.items_per_s
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    messages: dict[str, list[int]] = {way: [] for way in WAYS}
    async with AsyncExitStack() as stack:
        houses = {
            name: await stack.enter_async_context(fleet(folder, postgres, name, WORK, items, env))
            for name, env in (("fixed", FIXED), ("donation", {"hedging": "false"}), ("hedging", {}))
        }
        idle = {name: await _idle_per_s(h) for name, h in houses.items()}
        for n in range(rounds):
            for way, (name, body) in WAYS.items():
                h = houses[name]
                before = await h.nats_messages()
                job = await completed(h, await h.submit(f"{way} {n}", **body))
                ratios[way].append(seconds(job) / ideal)
                sent = await h.nats_messages() - before
                messages[way].append(round(sent - idle[name] * seconds(job)))
    ways = {way: round(statistics.median(found), 3) for way, found in ratios.items()}
    share = statistics.median(a / b for a, b in zip(messages["+hedging"], messages["one-item"], strict=True))
    return {
        "bench": "policies",
        "items": items,
        "rounds": rounds,
        "ideal_seconds": round(ideal, 3),
        "seconds_over_ideal": ways,
        "messages": {way: round(statistics.median(found)) for way, found in messages.items()},
        "messages_over_one_item": round(share, 3),
        "all": {way: [round(r, 3) for r in found] for way, found in ratios.items()},
    }
