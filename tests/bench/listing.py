"""50 rows of 100,000 jobs from the projection of an entry replica: pages near and far, rare filters and none."""

import statistics
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cuscuta.broker.projection import Projection, Summary
from cuscuta.embedded.postgres import Postgres
from cuscuta.logs import get
from cuscuta.model import Essential, JobStatus, JobTag, Queue
from cuscuta.spans import Span
from cuscuta.uids import new_uid
from tests.bench.common import house


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    jobs, rounds = (2_000, 1) if quick else (100_000, rounds or 5)
    async with house(folder, postgres, "listing") as h:
        await h.entry()  # makes the bucket
        bus = await h.bus()
        projection = Projection(bus.tag_bucket, bus.clock, get("bench"), 1e9)
        start = datetime(2026, 1, 1, tzinfo=UTC)
        uids = []
        for n in range(jobs):
            now = start + timedelta(seconds=n)
            uids.append(new_uid(now))
            essential = Essential(f"player {n}", "c", "songs", Span(0, 10), labels={"team": str(n % 100)})
            projection.take(JobTag(uids[-1], JobStatus.COMPLETED, essential, Queue(now, ended_at=now), [uids[-1]]))
    times: dict[str, list[float]] = {"newest": [], "far_page": [], "rare_label": [], "no_match": []}
    for _ in range(rounds):
        times["newest"].append(_page(projection, lambda row: True))
        times["far_page"].append(_page(projection, lambda row: True, uids[100]))
        times["rare_label"].append(_page(projection, lambda row: row.labels.get("team") == "7"))
        times["no_match"].append(_page(projection, lambda row: row.target == "nobody"))
    return {
        "bench": "listing",
        "jobs": jobs,
        **{f"{k}_seconds": round(statistics.median(v), 4) for k, v in times.items()},
    }


def _page(projection: Projection, keep, before: str | None = None) -> float:  # type: ignore[no-untyped-def]
    began = time.perf_counter()
    rows: list[Summary] = []
    for row in projection.newest(keep, before):
        rows.append(row)
        if len(rows) == 50:
            break
    return time.perf_counter() - began
