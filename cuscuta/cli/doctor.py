"""`cuscuta doctor`."""

import sys
from typing import Any

import httpx
import rich_click as click

from cuscuta.cli import show
from cuscuta.cli.client import Client
from cuscuta.cli.jobs import as_json_option

_COLOURS = {"good": "green", "doubtful": "yellow", "bad": "red"}


@click.command()
@click.option("--nats-monitor", metavar="URL", help="A NATS server's monitoring port, such as http://127.0.0.1:8222.")
@as_json_option
@click.pass_obj
def doctor(client: Client, nats_monitor: str | None, as_json: bool) -> None:
    """Examine the deployment; exit code 1 if something is bad.

    Whether NATS writes to the disk before it answers is known to its monitoring port only.
    """
    found = client.call("GET", "/doctor")
    copies = next((f for f in found if f["what"] == "replication"), None)
    found.append(_syncing(nats_monitor, alone=copies is None or copies["state"] == "doubtful"))
    if as_json:
        show.as_json(found)
    else:
        for finding in found:
            state = f"[{_COLOURS[finding['state']]}]{finding['state']:<8}[/]"
            show.console.print(f"{state}  {finding['what']}: ", end="")
            show.console.print(finding["detail"], markup=False, highlight=False)
            if finding["fix"]:
                show.console.print(f"          {finding['fix']}", markup=False, highlight=False)
    if any(finding["state"] == "bad" for finding in found):
        sys.exit(1)


def _syncing(url: str | None, *, alone: bool) -> dict[str, Any]:
    """What is lost if the power fails at the NATS server."""
    name = "NATS syncing"
    if url is None:
        fix = "Say where its monitoring port is: cuscuta doctor --nats-monitor http://127.0.0.1:8222"
        return {"what": name, "state": "doubtful", "detail": "not looked at", "fix": fix}
    try:
        config = httpx.get(f"{url.rstrip('/')}/varz", timeout=5).raise_for_status().json()["jetstream"]["config"]
    except (httpx.HTTPError, httpx.InvalidURL, KeyError, TypeError, ValueError) as error:
        raise click.ClickException(f"{url} does not answer as a NATS server's monitoring port: {error}") from error
    if config.get("sync_always"):
        return {"what": name, "state": "good", "detail": "always, before it answers", "fix": ""}
    detail = f"every {config.get('sync_interval', 0) / 1e9:g} s"
    if not alone:
        return {"what": name, "state": "good", "detail": f"{detail}; the other copies have the rest", "fix": ""}
    lost = f"{detail}: with so few copies of each stream, a power failure loses what was accepted since"
    fix = "Set sync_interval: always in its jetstream block (deploy/nats/nats.conf), or run three servers."
    return {"what": name, "state": "doubtful", "detail": lost, "fix": fix}
