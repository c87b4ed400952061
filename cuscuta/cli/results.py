"""`cuscuta jobs results`, `jobs graph` and `cuscuta events`: what is read as it comes."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import rich_click as click

from cuscuta.cli import show
from cuscuta.cli.client import Client
from cuscuta.cli.jobs import as_json_option, jobs

_TYPES = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet", "ndjson": "application/x-ndjson"}


@jobs.command()
@click.argument("uid")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, as the API sends them.")
@click.option("--follow", is_flag=True, help="Print items as they come, until the job has ended.")
@click.option("--format", "kind", type=click.Choice(list(_TYPES)), help="Download them; see --output.")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="File to write; - is the terminal."
)
@click.pass_obj
def results(client: Client, uid: str, as_json: bool, follow: bool, kind: str | None, output: Path | None) -> None:
    """Print a job's results, item and value with a tab between them, or download them."""
    path = f"/jobs/{quote(uid, safe='')}/results"
    if kind or output:
        if follow or as_json:
            raise click.UsageError("--follow and --json print; --format and --output download. Use one of them.")
        _download(client, path, uid, kind, output)
        return
    with client.lines(path, follow=follow) as lines:
        for line in lines:
            if as_json:
                print(line, flush=follow)
                continue
            item = json.loads(line)
            error = item.get("error")
            value = f"error {error['type']}: {error['message']}" if error else json.dumps(item.get("value"))
            print(item.get("id", ""), value, sep="\t", flush=follow)


def _download(client: Client, path: str, uid: str, kind: str | None, output: Path | None) -> None:
    if kind is None:
        kind = {".csv": "csv", ".parquet": "parquet"}.get(output.suffix if output else "", "ndjson")
    if output is None:
        output = Path(f"{uid}.{kind}")
    with client.download(path, _TYPES[kind]) as answer:
        missing = int(answer.headers.get("cuscuta-missing-items", 0))
        if str(output) == "-":
            for part in answer.iter_bytes():
                sys.stdout.buffer.write(part)
        else:
            unfinished = output.with_name(output.name + ".part")
            with unfinished.open("wb") as file, show.bytes_bar("results", None) as move:
                for part in answer.iter_bytes():
                    file.write(part)
                    move(len(part))
            unfinished.replace(output)
            show.messages.print(f"wrote {output}", markup=False)
    if missing:
        show.messages.print(f"{missing:,} items have no result (yet)", markup=False)


@jobs.command()
@click.argument("uid")
@as_json_option
@click.pass_obj
def graph(client: Client, uid: str, as_json: bool) -> None:
    """Show the jobs that a job runs after, and those that run after it."""
    found = client.call("GET", f"/jobs/{quote(uid, safe='')}/graph")
    if as_json:
        show.as_json(found)
        return
    before: dict[str, list[str]] = {}
    for first, second in found["edges"]:
        before.setdefault(second, []).append(first)
    rows = ([j["uid"], j["status"], j["target"][:40], " ".join(before.get(j["uid"], []))] for j in found["jobs"])
    show.table(["job", "status", "target", "after"], rows)


@click.command()
@click.argument("uid", required=False)
@click.option("--follow", "-f", is_flag=True, help="Go on until Ctrl-C with all jobs; with UID until its end.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_obj
def events(client: Client, uid: str | None, follow: bool, as_json: bool) -> None:
    """Print what happens to a job until it has ended, or to all jobs until Ctrl-C.

    There is nothing else to do with events, so --follow is as good as said.
    """
    path = f"/jobs/{quote(uid, safe='')}/events" if uid else "/events"
    for what, event in client.events(path):
        if as_json:
            print(json.dumps(event), flush=True)
        else:
            print(*_shown(what, event), sep="\t", flush=True)


def _shown(what: str, event: dict[str, Any]) -> list[str]:
    if what == "progress":
        return ["", event["uid"], what, f"{event['done']} items"]
    return [show.when(event["at"]), event["uid"], what, event.get("detail") or ""]
