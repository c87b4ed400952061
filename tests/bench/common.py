"""What benchmarks share: production's own timings, and times taken from the job's record."""

import statistics
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

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
    "log_level": "info",
}


def house(folder: Path, postgres: Postgres, name: str, **env: str) -> House:
    return House(folder / name, postgres, **{**NORMAL, **env})


def seconds(job: Any, begin: str = "created_at", end: str = "ended_at") -> float:
    """Seconds between two times of a job's record."""
    return (datetime.fromisoformat(job[end]) - datetime.fromisoformat(job[begin])).total_seconds()


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and worst of many."""
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), 1),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 1),
        "worst": round(ordered[-1], 1),
    }
