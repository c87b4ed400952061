"""`cuscuta jobs`."""

import json
from collections.abc import Callable
from typing import IO, Any, TypeVar
from urllib.parse import quote

import rich_click as click
from rich.progress import Progress

from cuscuta.cli import show
from cuscuta.cli.client import Client
from cuscuta.cli.watch import ENDED, print_job, watch_job

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def jobs() -> None:
    """Submit jobs and see what becomes of them."""


@jobs.command()
@click.argument("target")
@click.argument("catalogue")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]), help="Default: normal.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE")
@click.option("--key", help="The job's lane; jobs of one lane run one after another. Default: the target.")
@click.option("--no-lane", is_flag=True, help="Do not wait for other jobs of this target.")
@click.option("--stop-after-failure", is_flag=True, help="Fail the job if the one before it in its lane has failed.")
@click.option("--deadline-s", type=float, help="Fail the job if it has not ended by then.")
@click.option("--start-by-s", type=float, help="Fail the job if it has not begun by then.")
@click.option("--tolerance-items", type=int, help="So many items may be given up for `completed`.")
@click.option("--tolerance-share", type=float, help="Such a share of the items may be given up for `completed`.")
@click.option("--after", multiple=True, metavar="UID", help="Wait until this job is completed; may be repeated.")
@click.option("--webhook", help="URL that is told of the job's end.")
@click.option("--unique", is_flag=True, help="If a job of this target and catalogue runs already, name that one.")
@click.option("--body", type=click.File(), help="JSON file with more fields of POST /jobs; options go before it.")
@click.option("--idempotency-key", help="The same key never makes two jobs.")
@click.option("--watch", "watching", is_flag=True, help="Show progress until the job has ended.")
@as_json_option
@click.pass_obj
def submit(
    client: Client,
    target: str,
    catalogue: str,
    priority: str | None,
    labels: tuple[str, ...],
    key: str | None,
    no_lane: bool,
    stop_after_failure: bool,
    deadline_s: float | None,
    start_by_s: float | None,
    tolerance_items: int | None,
    tolerance_share: float | None,
    after: tuple[str, ...],
    webhook: str | None,
    unique: bool,
    body: IO[str] | None,
    idempotency_key: str | None,
    watching: bool,
    as_json: bool,
) -> None:
    """Ask about TARGET for every item of CATALOGUE."""
    job = read_body(body) | {"target": target, "catalogue": catalogue}
    if labels:
        job["labels"] = dict(pair(label) for label in labels)
    if key is not None or no_lane:
        job["key"] = None if no_lane else key
    more = {
        "priority": priority,
        "lane_policy": "stop" if stop_after_failure else None,
        "deadline_s": deadline_s,
        "start_by_s": start_by_s,
        "tolerance_items": tolerance_items,
        "tolerance_share": tolerance_share,
        "unique": unique or None,
        "after": after or None,
        "webhook": webhook,
    }
    job.update({name: value for name, value in more.items() if value is not None})
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
    accepted = client.call("POST", "/jobs", json=job, headers=headers)
    if watching:
        watch_job(client, accepted["uid"], as_json)
    elif as_json:
        show.as_json(accepted)
    else:
        show.console.print(accepted["uid"])
        show.messages.print(f"see: cuscuta jobs watch {accepted['uid']}")


def read_body(file: IO[str] | None) -> dict[str, Any]:
    """The fields that a JSON file gives."""
    try:
        body = json.load(file) if file else {}
    except ValueError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint="--body") from None
    if not isinstance(body, dict):
        raise click.BadParameter("is not a JSON object", param_hint="--body")
    return body


def pair(text: str) -> tuple[str, str]:
    """A label's key and value."""
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--label")
    return key, value


@jobs.command("show")
@click.argument("uid")
@as_json_option
@click.pass_obj
def show_job(client: Client, uid: str, as_json: bool) -> None:
    """Show one job."""
    job = client.call("GET", f"/jobs/{quote(uid, safe='')}")
    if as_json:
        show.as_json(job)
    else:
        print_job(job)


def _filters(statuses: list[str]) -> Callable[[CommandT], CommandT]:
    """The options that say which jobs are meant."""

    def with_options(command: CommandT) -> CommandT:
        for option in (
            click.option("--label", "labels", multiple=True, metavar="KEY=VALUE"),
            click.option("--catalogue"),
            click.option("--target"),
            click.option("--status", multiple=True, type=click.Choice(statuses)),
        ):
            command = option(command)
        return command

    return with_options


def _filter(
    status: tuple[str, ...], target: str | None, catalogue: str | None, labels: tuple[str, ...]
) -> dict[str, Any]:
    wanted = {"status": status, "target": target, "catalogue": catalogue}
    params: dict[str, Any] = {name: value for name, value in wanted.items() if value not in (None, ())}
    if labels:
        params["label"] = [":".join(pair(label)) for label in labels]
    return params


@jobs.command("list")
@_filters(["queueing", "pending", *ENDED])
@click.option("--limit", type=click.IntRange(1, 500), default=50)
@click.option("--before", help="`next` of the page before.")
@as_json_option
@click.pass_obj
def list_jobs(
    client: Client,
    status: tuple[str, ...],
    target: str | None,
    catalogue: str | None,
    labels: tuple[str, ...],
    limit: int,
    before: str | None,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    params = _filter(status, target, catalogue, labels)
    params.update({"limit": limit} | ({"before": before} if before else {}))
    page = client.call("GET", "/jobs", params=params)
    if as_json:
        show.as_json(page)
        return
    show.table(
        ["job", "status", "target", "catalogue", "items", "failures", "submitted"],
        (
            [
                *(j["uid"], j["status"], j["target"][:40], j["catalogue"], f"{j['done']}/{j['items']}"),
                *(j["failures"] or None, show.when(j["created_at"])),
            ]
            for j in page["jobs"]
        ),
    )
    if page["next"]:
        show.messages.print(f"more: --before {page['next']}")


@jobs.command()
@click.argument("uid")
@as_json_option
@click.pass_obj
def watch(client: Client, uid: str, as_json: bool) -> None:
    """Show a job's progress until it has ended; exit code 1 if it did not complete."""
    watch_job(client, uid, as_json)


@jobs.command()
@click.argument("uid")
@click.option("--watch", "watching", is_flag=True, help="Show progress until the job has ended.")
@as_json_option
@click.pass_obj
def retry(client: Client, uid: str, watching: bool, as_json: bool) -> None:
    """Run what an ended job has no result for, under the same uid."""
    accepted = client.call("POST", f"/jobs/{quote(uid, safe='')}/retry")
    if watching:
        watch_job(client, uid, as_json)
    elif as_json:
        show.as_json(accepted)
    else:
        show.console.print(accepted["uid"])


@jobs.command()
@click.argument("uid", required=False)
@_filters(["queueing", "pending"])
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json_option
@click.pass_obj
def cancel(
    client: Client,
    uid: str | None,
    status: tuple[str, ...],
    target: str | None,
    catalogue: str | None,
    labels: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """End a job now, or all that a filter matches, which are counted first; what is stored stays readable."""
    params = _filter(status, target, catalogue, labels)
    if bool(uid) == bool(params):
        raise click.UsageError("Name a job or a filter: --status, --target, --catalogue, --label.")
    if uid:
        job = client.call("DELETE", f"/jobs/{quote(uid, safe='')}")
        show.as_json(job) if as_json else print_job(job)
        return
    matched = client.call("DELETE", "/jobs", params=params)["matched"]
    if matched and not yes:
        click.confirm(f"Cancel {matched:,} jobs?", abort=True, err=True)
    cancelled = 0
    with Progress(console=show.messages, transient=True, disable=not show.messages.is_terminal) as bar:
        task = bar.add_task("cancelling", total=matched)
        while matched:
            done = client.call("DELETE", "/jobs", params={**params, "dry_run": False})
            cancelled += done["cancelled"]
            bar.advance(task, done["cancelled"])
            if done["cancelled"] >= done["matched"] or not done["cancelled"]:
                break
    if as_json:
        show.as_json({"cancelled": cancelled})
    else:
        show.console.print(f"cancelled {cancelled:,} jobs")
