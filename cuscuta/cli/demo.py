"""`cuscuta demo`: the main job on this box in a few seconds, against the reference upstream."""

import asyncio
import importlib.util
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import rich_click as click
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cuscuta.cli import show
from cuscuta.cli.client import Client
from cuscuta.cli.up import admin_token, run, say, secret_key, until_ready
from cuscuta.embedded.postgres import free_port
from cuscuta.embedded.stack import Stack
from cuscuta.embedded.supervisor import module

_UPSTREAM = "worker.upstream.reference.server"
_SLOW, _SLOW_FACTOR = 2, 3.0  # of the accounts, when there are more than this


class Plan:
    """What the demo does, and what would be ideal."""

    def __init__(self, items: int, accounts: int, latency_ms: float, workers: int, seats: int, kill: bool) -> None:
        self.items, self.accounts, self.latency_ms = items, accounts, latency_ms
        self.workers, self.seats, self.kill = workers, seats, kill
        self.slow = _SLOW if accounts > _SLOW else 0

    @property
    def single_s(self) -> float:
        """One (quick) account alone."""
        return self.items * self.latency_ms / 1000

    @property
    def ideal_s(self) -> float:
        """All accounts that have a seat, busy to the end: total work / total capacity."""
        quick = self.accounts - self.slow
        used = min(self.accounts, self.workers * self.seats)
        capacity = min(used, quick) + max(0, used - quick) / _SLOW_FACTOR
        return self.single_s / capacity


@click.command()
@click.option("--items", type=click.IntRange(1, 1_000_000), default=1200, show_default=True, help="Items to ask for.")
@click.option("--accounts", type=click.IntRange(1, 200), default=8, show_default=True, help="Accounts; two are slow.")
@click.option("--latency-ms", type=click.FloatRange(1, 10_000), default=40.0, show_default=True, help="Time of a poll.")
@click.option("--workers", type=click.IntRange(1, 32), default=2, show_default=True, help="Worker processes.")
@click.option("--seats", type=click.IntRange(1, 64), default=4, show_default=True, help="Seats of each process.")
@click.option("--kill", is_flag=True, help="kill -9 one worker process half-way.")
@click.option("--verbose", is_flag=True, help="Show the logs of all parts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line.")
def demo(
    items: int, accounts: int, latency_ms: float, workers: int, seats: int, kill: bool, verbose: bool, as_json: bool
) -> None:
    """Run the main job here and now: embedded servers, a reference upstream, one target, a whole catalogue."""
    if kill and workers < 2:
        raise click.BadParameter("needs at least two worker processes", param_hint="--kill")
    plan = Plan(items, accounts, latency_ms, workers, seats, kill)
    with tempfile.TemporaryDirectory(prefix="cuscuta-demo-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # PostgreSQL's user must reach its data below it
        raise SystemExit(run(_demo(plan, Path(folder), verbose, as_json)))


async def _demo(plan: Plan, folder: Path, verbose: bool, as_json: bool) -> int:
    log = (folder / "log").open("a")

    def to_log(part: str, line: str) -> None:
        log.write(f"{part} | {line}\n")
        log.flush()

    port = free_port()
    upstream = module(
        _UPSTREAM,
        *("--port", str(port), "--accounts", str(plan.accounts), "--latency-ms", str(plan.latency_ms)),
        *("--slow", str(plan.slow), "--slow-factor", str(_SLOW_FACTOR)),
    )
    adapter = importlib.util.find_spec("worker.upstream.reference")
    if adapter is None or adapter.origin is None:
        raise click.ClickException("the package `worker` is not installed")
    env = {
        "CUSCUTA_UPSTREAM": str(Path(adapter.origin).with_name("reference.toml")),
        "CUSCUTA_UPSTREAM_URL": f"http://127.0.0.1:{port}",
        "CUSCUTA_SEATS": str(plan.seats),
        "CUSCUTA_HEARTBEAT_S": "0.5",
        "CUSCUTA_LOG_FORMAT": "console",
    }
    stack = Stack(
        folder,
        say if verbose else to_log,
        workers=plan.workers,
        secret_key=secret_key(folder),
        seal_key=secret_key(folder, "seal-key"),
        env=env,
        extra={"upstream": upstream},
        durable=False,
    )
    with show.messages.status("starting NATS, PostgreSQL, entry, workers, reaper and the reference upstream") as status:
        async with stack.running():
            client = Client(stack.url, (await admin_token(stack))[0])
            await until_ready(client, stack)
            status.update("importing accounts and the catalogue")
            await _prepare(client, plan)
            status.stop()
            job = await _watch(client, plan, stack, quiet=as_json)
            report = await asyncio.to_thread(_report, client, plan, job, port)
            await asyncio.to_thread(_print, client, report, job, as_json)
            if plan.kill and not stack.killed:
                show.messages.print("the job had ended before half of it was seen: nobody was killed; try more --items")
    return 0 if report["missing"] == 0 else 1


async def _prepare(client: Client, plan: Plan) -> None:
    accounts = [{"email": f"account-{n}@example.com", "password": f"password-{n}"} for n in range(1, plan.accounts + 1)]
    await asyncio.to_thread(client.call, "POST", "/accounts/import", json=accounts)
    songs = {"items": [f"song-{n:04}" for n in range(1, plan.items + 1)]}
    await asyncio.to_thread(client.call, "PUT", "/catalogues/songs", json=songs)
    wanted = min(plan.accounts, plan.workers * plan.seats)
    async with asyncio.timeout(60):
        while sum(w["seats"] for w in await asyncio.to_thread(client.call, "GET", "/workers")) < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def _watch(client: Client, plan: Plan, stack: Stack, quiet: bool) -> dict[str, Any]:
    accepted = await asyncio.to_thread(client.call, "POST", "/jobs", json={"target": "player 1", "catalogue": "songs"})
    bar = Progress(
        TextColumn("player 1 × songs"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    task = bar.add_task("", total=plan.items, rate="")
    killed = False
    with Live(bar, console=show.messages, transient=True, refresh_per_second=8) as live:
        if quiet:
            live.stop()
        while True:
            job = await asyncio.to_thread(client.call, "GET", f"/jobs/{accepted['uid']}")
            if job["status"] in ("completed", "failed", "cancelled"):
                return dict(job)
            done = job["progress"]["done"]
            bar.update(task, completed=done, rate=f"{job['rate_per_s'] or 0:.0f} items/s")
            if not quiet:
                live.update(Group(bar, _seats(await asyncio.to_thread(client.call, "GET", "/workers"))))
            if plan.kill and not killed and done >= plan.items / 2:
                killed = stack.killed = True
                stack.worker_parts()[0].kill()
                show.messages.print("kill -9 of worker-1: its chunks are handed on after 10 s")
            await asyncio.sleep(0.1)


def _seats(workers: list[dict[str, Any]]) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("worker", "account", "at work on"):
        shown.add_column(heading)
    for worker in workers:
        for account, doing in zip(worker["accounts"], worker["working"], strict=False):
            shown.add_row(worker["worker"].split("-")[-2], account, doing.rpartition(" ")[2])
    return shown


def _report(client: Client, plan: Plan, job: dict[str, Any], port: int) -> dict[str, Any]:
    ended, created = (datetime.fromisoformat(job[key]) for key in ("ended_at", "created_at"))
    seconds = (ended - created).total_seconds()
    world = httpx.get(f"http://127.0.0.1:{port}/_world", timeout=30).json()
    results = client.call("GET", f"{job['results_url']}")
    return {
        "items": plan.items,
        "seconds": round(seconds, 3),
        "ideal_seconds": round(plan.ideal_s, 3),
        "ratio": round(seconds / plan.ideal_s, 3),
        "single_seconds": round(plan.single_s, 3),
        "polls": world["counts"].get("polls", 0),
        "missing": plan.items - len(results["items"]),
    }


def _print(client: Client, report: dict[str, Any], job: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show.as_json(report)
        return
    results = client.call("GET", job["results_url"], params={"from": 0, "to": min(5, report["items"])})
    show.table(["#", "song", "score"], ([r["index"], r["id"], r.get("value")] for r in results["items"]))
    show.console.print(f"… {report['items']} items, {report['missing']} missing, {report['polls']} polls")
    show.console.print(
        f"[bold]{report['items']} items in {report['seconds']:.1f} s, ideal {report['ideal_seconds']:.1f} s"
        f" ({report['ratio']:.2f}x), one account alone {report['single_seconds']:.0f} s"
    )
