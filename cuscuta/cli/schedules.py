"""`cuscuta schedules`."""

from typing import IO, Any
from urllib.parse import quote

import rich_click as click

from cuscuta.cli import show
from cuscuta.cli.client import Client
from cuscuta.cli.jobs import as_json_option, pair, read_body


@click.group()
def schedules() -> None:
    """Submit jobs again and again, or at a time to come."""


@schedules.command()
@click.argument("when")
@click.argument("target")
@click.argument("catalogue")
@click.option("--time-zone", help="Of cron's fields, for example Europe/Berlin. Default: UTC.")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]), help="Default: normal.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE")
@click.option("--deadline-s", type=float, help="Fail each job if it has not ended so long after it was made.")
@click.option("--webhook", help="URL that is told of each job's end.")
@click.option("--body", type=click.File(), help="JSON file with more fields of the job; options go before it.")
@click.option("--unique", is_flag=True, help="Make no job while one of this target and catalogue runs.")
@as_json_option
@click.pass_obj
def add(
    client: Client,
    when: str,
    target: str,
    catalogue: str,
    time_zone: str | None,
    priority: str | None,
    labels: tuple[str, ...],
    deadline_s: float | None,
    webhook: str | None,
    body: IO[str] | None,
    unique: bool,
    as_json: bool,
) -> None:
    """Ask about TARGET for every item of CATALOGUE whenever WHEN says so.

    WHEN is cron ("0 9 * * 1-5"), "@every 15m", "@hourly" and the like, or a time (2027-01-31T09:00:00+01:00).
    """
    job = read_body(body) | {"target": target, "catalogue": catalogue}
    if labels:
        job["labels"] = dict(pair(label) for label in labels)
    more = {"priority": priority, "deadline_s": deadline_s, "webhook": webhook, "unique": unique or None}
    job.update({name: value for name, value in more.items() if value is not None})
    request = {"when": when, "job": job} | ({"time_zone": time_zone} if time_zone else {})
    _print(client.call("POST", "/schedules", json=request), as_json)


def _path(uid: str) -> str:
    return f"/schedules/{quote(uid, safe='')}"


def _print(schedule: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show.as_json(schedule)
        return
    show.fields(
        [
            ("schedule", schedule["id"]),
            ("when", schedule["when"]),
            ("time zone", schedule["time_zone"]),
            ("state", _state(schedule)),
            ("target", schedule["job"]["target"]),
            ("catalogue", schedule["job"]["catalogue"]),
            ("next", "\n".join(show.when(time) for time in schedule["next"])),
            ("fired", show.when(schedule["fired_at"])),
            ("last job", schedule["last_uid"]),
            ("error", schedule["error"]),
        ]
    )


def _state(schedule: dict[str, Any]) -> str:
    return "done" if schedule["done"] else "paused" if schedule["paused"] else "runs"


@schedules.command("list")
@click.option("--limit", type=click.IntRange(1, 500), default=50)
@click.option("--after", help="`next` of the page before.")
@as_json_option
@click.pass_obj
def list_schedules(client: Client, limit: int, after: str | None, as_json: bool) -> None:
    """List schedules."""
    page = client.call("GET", "/schedules", params={"limit": limit} | ({"after": after} if after else {}))
    if as_json:
        show.as_json(page)
        return
    show.table(
        ["schedule", "when", "state", "target", "catalogue", "next", "last job"],
        (
            [
                *(s["id"], s["when"], _state(s), s["job"]["target"][:40], s["job"]["catalogue"]),
                *(show.when(s["next"][0]) if s["next"] else None, s["last_uid"]),
            ]
            for s in page["schedules"]
        ),
    )
    if page["next"]:
        show.messages.print(f"more: --after {page['next']}")


@schedules.command("show")
@click.argument("uid")
@as_json_option
@click.pass_obj
def show_schedule(client: Client, uid: str, as_json: bool) -> None:
    """Show a schedule and its next times."""
    _print(client.call("GET", _path(uid)), as_json)


@schedules.command()
@click.argument("uid")
@as_json_option
@click.pass_obj
def pause(client: Client, uid: str, as_json: bool) -> None:
    """Let a schedule make no jobs until it is resumed."""
    _print(client.call("PATCH", _path(uid), json={"paused": True}), as_json)


@schedules.command()
@click.argument("uid")
@as_json_option
@click.pass_obj
def resume(client: Client, uid: str, as_json: bool) -> None:
    """Let a paused schedule go on."""
    _print(client.call("PATCH", _path(uid), json={"paused": False}), as_json)


@schedules.command()
@click.argument("uid")
@as_json_option
@click.pass_obj
def remove(client: Client, uid: str, as_json: bool) -> None:
    """End a schedule; the jobs that it has made go on."""
    client.call("DELETE", _path(uid))
    if as_json:
        show.as_json({"removed": uid})
    else:
        show.messages.print("removed")
