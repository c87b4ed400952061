"""`python -m tests.bench.peers [--rounds N]`: seconds over ideal of Celery, arq and taskiq-nats, tasks of 10 and of 1.

The work is that of `policies`: 600 items, 8 accounts of 25 polls a second, 20 ms a poll, two of them 60 ms. Each has 8
worker processes, one for each account, configured as its documentation advises for work of this kind; results are
stored. The time runs, for Cuscuta too, from the first request to the last result read, in the same rounds.
Redis comes from Debian (`redis-server`).
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuscuta.embedded.nats import Nats
from cuscuta.embedded.postgres import Postgres, free_port
from tests.bench.__main__ import RESULTS
from tests.bench.common import fleet
from tests.bench.policies import WORK

ITEMS = [f"song-{n}" for n in range(600)]
IDEAL_S = len(ITEMS) / WORK.items_per_s
SIZES = (10, 1)
_KEPT: list[Any] = []


def celery(target: str, size: int) -> int:
    from tests.bench.peers.celery_app import poll

    sent = [poll.delay(target, ITEMS[i : i + size]) for i in range(0, len(ITEMS), size)]
    _KEPT.extend(sent)  # a result that is collected while another one is waited for takes a lock that is held
    return sum(len(result.get(timeout=120)) for result in sent)


def arq(target: str, size: int) -> int:
    return asyncio.run(_arq(target, size))


async def _arq(target: str, size: int) -> int:
    from arq import create_pool

    from tests.bench.peers.arq_app import WorkerSettings

    pool = await create_pool(WorkerSettings.redis_settings)
    sent = [await pool.enqueue_job("poll", target, ITEMS[i : i + size]) for i in range(0, len(ITEMS), size)]
    done = [await job.result(timeout=120, poll_delay=0.01) for job in sent if job]
    await pool.aclose()
    return sum(map(len, done))


def taskiq(target: str, size: int) -> int:
    return asyncio.run(_taskiq(target, size))


async def _taskiq(target: str, size: int) -> int:
    from tests.bench.peers.taskiq_app import broker, poll

    await broker.startup()
    await _room_for_consumers(broker.js)
    sent = [await poll.kiq(target, ITEMS[i : i + size]) for i in range(0, len(ITEMS), size)]
    done = [(await task.wait_result(check_interval=0.05, timeout=120)).return_value for task in sent]
    await broker.shutdown()
    return sum(map(len, done))


async def _room_for_consumers(js: Any) -> None:
    """Every look for a result is a consumer that lives for seconds, and 2.15 takes 1,000 a stream unless told."""
    config = (await js.stream_info("OBJ_taskiq_results")).config
    config.max_consumers = 100_000
    await js.update_stream(config)


PEERS: dict[str, tuple[Callable[[str, int], int], list[str]]] = {
    "celery": (celery, ["celery", "-A", "tests.bench.peers.celery_app", "worker", "--pool=solo", "--loglevel=error"]),
    "arq": (arq, ["arq", "tests.bench.peers.arq_app.WorkerSettings"]),
    "taskiq-nats": (
        taskiq,
        ["taskiq", "worker", "tests.bench.peers.taskiq_app:broker", "--workers=1", "--max-async-tasks=1"],
    ),
}


async def _main(rounds: int) -> dict[str, object]:
    redis = shutil.which("redis-server")
    if redis is None:
        sys.exit("redis-server is not installed; on Debian: apt-get install redis-server")
    found: dict[str, list[float]] = {}
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="cuscuta-peers-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        postgres = Postgres(folder / "postgres", fast=True)
        postgres.start()
        nats = Nats(folder / "peers-nats")
        nats.start()
        port = free_port()
        processes.append(subprocess.Popen([redis, "--port", str(port), "--bind", "127.0.0.1", "--dir", name,
                                           "--loglevel", "warning"]))  # fmt: skip
        try:
            async with fleet(folder, postgres, "cuscuta", WORK, len(ITEMS)) as h:
                for peer in PEERS:
                    for account in range(1, WORK.accounts + 1):
                        env = _env(nats.url, port, h.upstream_url, account)
                        argv = [str(Path(sys.executable).parent / PEERS[peer][1][0]), *PEERS[peer][1][1:]]
                        if peer == "celery":
                            argv += ["-n", f"worker-{account}"]
                        log = (folder / f"{peer}-{account}.log").open("wb")
                        processes.append(subprocess.Popen(argv, env=env, stdout=log, stderr=log))
                os.environ.update(_env(nats.url, port, h.upstream_url, 1))
                await asyncio.sleep(15)  # all workers are up: none has a way to say so that the others have too
                for n in range(rounds + 1):  # the first round warms up
                    for peer, (run, _) in PEERS.items():
                        for size in SIZES:
                            began = time.perf_counter()
                            count = await asyncio.to_thread(run, f"{peer} {size} {n}", size)
                            took = time.perf_counter() - began
                            assert count == len(ITEMS), (peer, count)
                            if n:
                                found.setdefault(f"{peer}, tasks of {size}", []).append(took / IDEAL_S)
                    began = time.perf_counter()
                    uid = await h.submit(f"cuscuta {n}")
                    await h.call("GET", f"/jobs/{uid}", params={"wait_s": 30})
                    count = len(await h.results(uid))
                    took = time.perf_counter() - began
                    assert count == len(ITEMS), count
                    if n:
                        found.setdefault("cuscuta", []).append(took / IDEAL_S)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
            nats.kill()
            postgres.stop()
    return {
        "bench": "peers",
        "items": len(ITEMS),
        "rounds": rounds,
        "ideal_seconds": round(IDEAL_S, 3),
        "seconds_over_ideal": {name: round(statistics.median(v), 3) for name, v in found.items()},
        "all": {name: [round(r, 3) for r in v] for name, v in found.items()},
    }


def _env(nats: str, redis: int, upstream: str, account: int) -> dict[str, str]:
    return {
        **os.environ,
        "PEER_NATS": nats,
        "PEER_REDIS": f"redis://127.0.0.1:{redis}/0",
        "PEER_UPSTREAM": upstream,
        "PEER_ACCOUNT": str(account),
        "PEER_RATE": str(WORK.rate_per_s),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep the result in docs/benchmarks")
    args = parser.parse_args()
    report = asyncio.run(_main(args.rounds))
    if args.record:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "peers.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report), flush=True)
    os._exit(0)  # Celery's results would look for their Redis for minutes
