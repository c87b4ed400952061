"""A job on a terminal: as it stands, and as it goes on."""

import time
from typing import Any
from urllib.parse import quote

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cuscuta.cli import show
from cuscuta.cli.client import Client

ENDED = ("completed", "failed", "cancelled")


def print_job(job: dict[str, Any]) -> None:
    """All there is to know of a job, and its newest failures."""
    progress = job["progress"]
    show.fields(
        [
            ("job", job["uid"]),
            ("status", job["status"]),
            ("waits for", job["waiting_for"]),
            ("target", job["target"]),
            ("catalogue", job["catalogue"]),
            ("progress", f"{progress['done']} of {progress['total']} items ({progress['share']:.0%})"),
            ("rate", f"{job['rate_per_s']} items/s" if job["rate_per_s"] else None),
            ("eta", f"{job['eta_s']} s" if job["eta_s"] is not None else None),
            ("missing", [f"{a}-{b}" for a, b in progress["missing"]] if job["status"] in ENDED else None),
            ("retries", job["retries"] or None),
            ("failures", job["failure_counts"]),
            ("labels", job["labels"]),
            ("submitted", show.when(job["created_at"])),
            ("admitted", show.when(job["admitted_at"])),
            ("ended", show.when(job["ended_at"])),
        ]
    )
    for failure in job["failures"][-5:]:
        show.console.print(f"  {show.when(failure['at'])} {failure['type']}: {failure['message']}", markup=False)


def watch_job(client: Client, uid: str, as_json: bool) -> None:
    """Show progress until the job has ended; raises SystemExit(1) if it did not complete."""
    path = f"/jobs/{quote(uid, safe='')}"
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=show.messages, disable=as_json) as bar:
        job = client.call("GET", path)
        task = bar.add_task("", total=job["progress"]["total"], rate="")
        while True:
            rate = f"{job['rate_per_s']}/s" if job["rate_per_s"] else ""
            doing = f"waits for {job['waiting_for']}" if job["waiting_for"] else job["status"]
            bar.update(task, description=doing, completed=job["progress"]["done"], rate=rate)
            if job["status"] in ENDED:
                break
            time.sleep(0.2)
            job = client.call("GET", path)
    if as_json:
        show.as_json(job)
    else:
        print_job(job)
    if job["status"] != "completed":
        raise SystemExit(1)
