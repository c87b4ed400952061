"""Accounts whose allowance nobody knows at the start: how much of it they use, and how many answers are refusals.

The upstream takes at most 28 polls of an account in any second (25 and a tenth, rounded up) and answers 429 beyond,
with Retry-After and then without. Every round begins with accounts of which nothing is known; the start counts.
"""

import math
import statistics
import time
from collections import Counter
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import Fleet, fleet
from tests.support.house import House
from tests.support.wait import until

RATE, ACCOUNTS, SECONDS = 25, 8, 120.0


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    length_s, rounds = (10.0, 1) if quick else (SECONDS, rounds or 3)
    allowed = math.ceil(RATE * 1.1)
    items = int(ACCOUNTS * allowed * length_s * 1.2)
    work = Fleet(accounts=ACCOUNTS, latency_ms=10)
    used: dict[str, list[float]] = {}
    refused: dict[str, list[float]] = {}
    for said, after in (("retry_after", "1"), ("silent", None)):
        async with fleet(folder, postgres, f"pace-{said}", work, items, rate=RATE, retry_after=after) as h:
            for n in range(rounds):
                shares, refusals = await _round(h, f"round {n}", length_s, allowed)
                used.setdefault(said, []).extend(shares)
                refused.setdefault(said, []).append(refusals)
    return {
        "bench": "pace",
        "allowed_per_s": allowed,
        "seconds": length_s,
        "rounds": rounds,
        "share_of_allowance": {said: round(statistics.median(v), 3) for said, v in used.items()},
        "worst_account": {said: round(min(v), 3) for said, v in used.items()},
        "share_of_429": {said: round(statistics.median(v), 4) for said, v in refused.items()},
    }


async def _round(h: House, target: str, length_s: float, allowed: int) -> tuple[list[float], float]:
    await forget(h)
    await h.control(reset=True)
    uid = await h.submit(target)
    await until(lambda: _begun(h), 20, "the round has begun")
    end = time.monotonic() + length_s  # not by the upstream's calls: to look at all of them again and again holds it up

    async def long_enough() -> bool:
        return time.monotonic() >= end

    await until(long_enough, length_s * 2, "the round is long enough", 0.5)
    await h.call("DELETE", f"/jobs/{uid}")
    calls = (await h.world())["calls"]
    start = calls[0][3]
    within = [call for call in calls if call[3] <= start + length_s]
    good = Counter(call[0] for call in within if call[5] == 200)
    return [good[email] / (allowed * length_s) for email in {call[0] for call in calls}], 1 - good.total() / len(within)


async def _begun(h: House) -> bool:
    return bool((await h.world())["calls"])


async def forget(h: House) -> None:
    """New leases for accounts of which nothing is known."""
    running = [proc for proc in h.procs if "worker" in proc.name and proc.running()]
    for worker in running:
        worker.stop()
    await h.sql("UPDATE account_table SET pace = NULL, pace_found = false, throttled = 0, state = 'Idle'")
    for _ in running:
        await h.worker(seats=str(ACCOUNTS // 2))
    await h.seats(ACCOUNTS)
