"""What telemetry costs: chunks a second of no-op items with all of it off, with metrics, and traced to a collector."""

import os
import statistics
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import completed, house, seconds
from tests.support.checks import nothing_left
from tests.support.collector import collector
from tests.support.house import House

CHUNKS = 2_000


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    rounds = 1 if quick else rounds or 7
    rates: dict[str, list[float]] = {"off": [], "metrics": [], "traces": []}
    async with AsyncExitStack() as stack:
        got = await stack.enter_async_context(collector(keep=False))
        environments = {
            "off": {"OTEL_SDK_DISABLED": "true"},
            "metrics": {},
            "traces": {"OTEL_EXPORTER_OTLP_ENDPOINT": got.env["OTEL_EXPORTER_OTLP_ENDPOINT"]},
        }
        houses = {}
        for name, env in environments.items():
            h = houses[name] = await stack.enter_async_context(
                house(folder, postgres, f"tracing-{name}", upstream="noop", upstream_url="")
            )
            h.otel = env
            await _ready(h)
        for n in range(rounds + 1):  # the first round warms up and is not counted
            names = list(houses)[n % 3 :] + list(houses)[: n % 3]  # whoever comes first has the quietest machine
            for name in names:
                h = houses[name]
                job = await completed(h, await h.submit(f"target {n}", chunk_items=1))
                if n:
                    rates[name].append(CHUNKS / seconds(job))
                await nothing_left(h)
    shares = {
        name: round(statistics.median(a / b for a, b in zip(values, rates["off"], strict=True)), 3)
        for name, values in rates.items()
    }
    return {
        "bench": "tracing",
        "chunks": CHUNKS,
        "rounds": rounds,
        "chunks_per_s": {name: round(statistics.median(values)) for name, values in rates.items()},
        "share_of_off": shares,
        "all": {name: [round(v) for v in values] for name, values in rates.items()},
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
    }


async def _ready(h: House) -> None:
    await h.entry()
    await h.reaper()
    await h.worker(seats="4")
    await h.accounts(4)
    await h.catalogue(CHUNKS)
    await h.seats(4)
