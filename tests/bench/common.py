"""What benchmarks share: production's own timings, fleets of known capacity, times taken from the job's record."""

import asyncio
import math
import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from cuscuta.embedded.postgres import Postgres
from tests.support.house import House

REFERENCE = Path(__file__).parents[2] / "worker" / "upstream" / "reference"

# Production's defaults where QUICK shortens them: a benchmark must not pay for what only tests need.
NORMAL = {
    "ack_wait_s": "10",
    "item_timeout_s": "8",
    "lease_term_s": "30",
    "lease_margin_s": "2",
    "reap_s": "2",
    "mend_after_s": "5",
    "hedging": "true",
    "log_level": "info",
}


def house(folder: Path, postgres: Postgres, name: str, **env: str) -> House:
    return House(folder / name, postgres, **{**NORMAL, **env})


def seconds(job: Any, begin: str = "created_at", end: str = "ended_at") -> float:
    """Seconds between two times of a job's record."""
    return (datetime.fromisoformat(job[end]) - datetime.fromisoformat(job[begin])).total_seconds()


async def completed(h: House, uid: str, timeout_s: float = 300.0) -> Any:
    """A job's record once it is completed, by requests that wait: nothing polls beside what is measured."""
    async with asyncio.timeout(timeout_s):
        while not (job := await h.call("GET", f"/jobs/{uid}", params={"wait_s": 20}))["ended_at"]:
            pass
    assert job["status"] == "completed", job
    return job


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and worst of many."""
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), 1),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 1),
        "worst": round(ordered[-1], 1),
    }


class Fleet(NamedTuple):
    """Accounts and what the upstream makes of them."""

    accounts: int
    latency_ms: float
    rate_per_s: float | None = None  # what the adapter declares
    slow: int = 0
    slow_factor: float = 1.0

    @property
    def items_per_s(self) -> float:
        """What all accounts do together if none is ever idle."""
        most = self.rate_per_s or math.inf
        quick, slow = 1000 / self.latency_ms, 1000 / (self.latency_ms * self.slow_factor)
        return (self.accounts - self.slow) * min(most, quick) + self.slow * min(most, slow)


@asynccontextmanager
async def fleet(
    folder: Path,
    postgres: Postgres,
    name: str,
    work: Fleet,
    items: int,
    env: Mapping[str, str] | None = None,
    **upstream: Any,
) -> AsyncIterator[House]:
    """A deployment over the plain reference upstream, warm: every seat has logged in and knows its account's pace."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    adapter = folder / name / "adapter.toml"
    limits = f"[limits]\nrate_per_s = {work.rate_per_s}\n\n" if work.rate_per_s else ""
    adapter.write_text((REFERENCE / "plain.toml").read_text().replace("[login]", limits + "[login]"))
    workers = min(2, work.accounts)
    async with house(folder, postgres, name, upstream=str(adapter), **(env or {})) as h:
        options = {"slow": work.slow, "slow_factor": work.slow_factor, **upstream}
        await h.upstream(work.accounts, work.latency_ms, **options)
        await h.entry()
        await h.reaper()
        for _ in range(workers):
            await h.worker(seats=str(work.accounts // workers))
        await h.accounts(work.accounts)
        await h.catalogue(items)
        await h.catalogue(work.accounts * 12, "warm up")
        await h.seats(work.accounts)
        await completed(h, await h.submit("warm up", "warm up"))
        yield h
