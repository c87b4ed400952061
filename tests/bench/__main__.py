"""`python -m tests.bench NAME [--json] [--rounds N]`: run one benchmark; its last line is one JSON object."""

import argparse
import asyncio
import importlib
import json
import sys
import tempfile
from pathlib import Path

from cuscuta.embedded.postgres import Postgres

RESULTS = Path(__file__).parents[2] / "docs" / "benchmarks"
NAMES = (
    "policies", "slow-seat", "nine-minutes", "seats", "shared", "chunks", "latency", "backlog", "pace", "memory",
    "listing", "pickup", "handover", "lanes", "tracing",
    "start", "scale", "carries",
)  # fmt: skip


async def _run(name: str, rounds: int | None, quick: bool) -> dict[str, object]:
    bench = importlib.import_module(f"tests.bench.{name.replace('-', '_')}")
    with tempfile.TemporaryDirectory(prefix="cuscuta-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        postgres = Postgres(Path(folder) / "postgres", fast=True)
        postgres.start()
        try:
            report: dict[str, object] = await bench.run(Path(folder), postgres, rounds, quick)
        finally:
            postgres.stop()
    return report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--record", action="store_true", help="keep the result in docs/benchmarks")
    parser.add_argument("--json", action="store_true", help="print only the JSON line")
    parser.add_argument("--rounds", type=int, help="interleaved rounds; the medians are reported")
    parser.add_argument("--quick", action="store_true", help="one small round, to see that it runs")
    args = parser.parse_args()
    report = asyncio.run(_run(args.name, args.rounds, args.quick))
    if not args.json:
        for key, value in report.items():
            print(f"{key:>32}: {value}", file=sys.stderr)
    if args.record:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{args.name}.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
