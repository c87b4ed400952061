"""100,000 jobs kept: 50 rows from the projection of an entry replica, pages near and far, rare filters and none; and
every answer of the dashboard over HTTP.
"""

import statistics
import time
from datetime import timedelta
from pathlib import Path

from cuscuta.broker.projection import Projection, Summary
from cuscuta.codec import encode
from cuscuta.embedded.postgres import Postgres
from cuscuta.logs import get
from cuscuta.model import Essential, JobStatus, JobTag, Queue
from cuscuta.spans import Span
from cuscuta.uids import new_uid
from tests.bench.common import house
from tests.support.house import House

PATHS = ("", "/workers", "/accounts", "/history", "/jobs", "/jobs?search=nobody", "/jobs/{uid}")


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    jobs, rounds = (2_000, 1) if quick else (100_000, rounds or 5)
    async with house(folder, postgres, "listing") as h:
        entry = await h.entry()  # makes the streams
        await h.catalogue(10)
        content = (await h.call("GET", "/catalogues/songs"))["hash"]
        entry.kill()
        bus = await h.bus()
        projection = Projection(bus.tag_bucket, bus.clock, get("bench"), 1e9)
        start = bus.clock.wall() - timedelta(seconds=jobs)
        uids = []
        for n in range(jobs):
            now = start + timedelta(seconds=n)
            uids.append(new_uid(now))
            essential = Essential(f"player {n}", content, "songs", Span(0, 10), labels={"team": str(n % 100)})
            tag = JobTag(uids[-1], JobStatus.COMPLETED, essential, Queue(now, ended_at=now), [uids[-1]])
            projection.take(tag)
            await bus.broker.tell(f"$KV.cuscuta_tags.{tag.uid}", encode(tag))
            if n % 500 == 0:
                await bus.ping()  # what is told is not waited for
        began = time.perf_counter()
        await h.entry()
        start_s = time.perf_counter() - began
        api = {path: [await _asked(h, path.format(uid=uids[7])) for _ in range(rounds * 10)] for path in PATHS}
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
        "entry_start_seconds": round(start_s, 2),
        "dashboard_seconds": {path: round(statistics.median(v), 4) for path, v in api.items()},
        "dashboard_worst_seconds": round(max(max(v) for v in api.values()), 4),
    }


async def _asked(h: House, path: str) -> float:
    began = time.perf_counter()
    await h.call("GET", f"/deployment{path}")
    return time.perf_counter() - began


def _page(projection: Projection, keep, before: str | None = None) -> float:  # type: ignore[no-untyped-def]
    began = time.perf_counter()
    rows: list[Summary] = []
    for row in projection.newest(keep, before):
        rows.append(row)
        if len(rows) == 50:
            break
    return time.perf_counter() - began
