"""`cuscuta top`."""

import time
from typing import Any

import rich_click as click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cuscuta.cli import show
from cuscuta.cli.client import Client
from cuscuta.cli.jobs import as_json_option

_EVERY_S = 1.0
_ROWS = 30


@click.command()
@click.option("--once", is_flag=True, help="Show it once, and end.")
@as_json_option
@click.pass_obj
def top(client: Client, once: bool, as_json: bool) -> None:
    """Watch the deployment: what runs, what waits, who works. Ctrl-C ends it."""
    overview = client.call("GET", "/deployment")
    if as_json:
        show.as_json(overview)
        return
    if once or not show.console.is_terminal:
        show.console.print(_picture(overview))
        return
    last = _picture(overview)
    with Live(last, console=show.console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(_EVERY_S)
            try:
                last = _picture(client.call("GET", "/deployment"))
                live.update(last, refresh=True)
            except click.ClickException as error:  # it may come back
                live.update(Group(Text(f"{error.message}; trying again", style="red"), last), refresh=True)


def _plain(name: str) -> Text:
    """A name as text: no markup, and nothing that would move the cursor."""
    return Text("".join(c if c.isprintable() else "?" for c in name))


def _picture(o: dict[str, Any]) -> RenderableType:
    accounts = ", ".join(f"{count} {state}" for state, count in o["accounts"].items()) or "none"
    head = Text.assemble(
        (o["name"], "bold"),
        f"   {o['version']}   {o['running_total']} running   {o['waiting_total']} waiting"
        f" (the oldest for {o['oldest_waiting_s']:.0f} s)   {o['items_per_s']:g} items/s\n",
        f"{o['workers']} workers   {o['seats_working']} of {o['seats']} seats at work   accounts: {accounts}",
    )
    troubles = [Text(f"{part}: {cause}", style="red") for part, cause in o["parts"].items()]
    table = Table("target", "catalogue", "progress", "items", "items/s", "left", expand=True, box=None)
    for job in o["running"][:_ROWS]:
        left = "-" if job["eta_s"] is None else f"{job['eta_s']:.0f} s"
        table.add_row(
            _plain(job["target"]),
            _plain(job["catalogue"]),
            ProgressBar(total=job["total"], completed=job["done"], width=24),
            f"{job['done']}/{job['total']}",
            "-" if job["rate_per_s"] is None else f"{job['rate_per_s']:g}",
            left,
        )
    for job in o["waiting"][:_ROWS]:
        table.add_row(
            _plain(job["target"]), _plain(job["catalogue"]), "waiting", str(job["items"]), "", "", style="dim"
        )
    return Group(head, *troubles, "", table)
