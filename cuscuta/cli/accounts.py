"""`cuscuta accounts`."""

import sys
from pathlib import Path
from typing import Any

import rich_click as click

from cuscuta.cli import show
from cuscuta.cli.client import Client
from cuscuta.cli.jobs import as_json_option

_TYPES = {".json": "application/json", ".csv": "text/csv"}


@click.group()
def accounts() -> None:
    """Accounts for the upstream."""


@accounts.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@as_json_option
@click.pass_obj
def import_accounts(client: Client, file: Path, as_json: bool) -> None:
    """Import accounts from FILE: .json, .csv with a header, else email:password lines; - reads standard input."""
    body = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    kind = _TYPES.get(file.suffix.lower(), "text/plain")
    done = client.upload("POST", "/accounts/import", body, kind)
    if as_json:
        show.as_json(done)
    else:
        show.console.print(f"{done['added']} added, {done['changed']} changed")


@accounts.command()
@click.argument("email")
@click.option(
    "--password", prompt=True, hide_input=True, envvar="CUSCUTA_ACCOUNT_PASSWORD", help="Asked for if left out."
)
@as_json_option
@click.pass_obj
def add(client: Client, email: str, password: str, as_json: bool) -> None:
    """Add an account, or give a known one a new password."""
    done = client.call("POST", "/accounts", json=[{"email": email, "password": password}])
    if as_json:
        show.as_json(done)
    else:
        show.console.print("added" if done["added"] else "changed")


@accounts.command("list")
@click.option("--state", type=click.Choice(["Idle", "Using", "Resting", "Disabled"]))
@as_json_option
@click.pass_obj
def list_accounts(client: Client, state: str | None, as_json: bool) -> None:
    """List all accounts."""
    found: list[dict[str, Any]] = []
    while True:
        params = {"limit": 500, "after": found[-1]["id"] if found else 0, **({"state": state} if state else {})}
        page = client.call("GET", "/accounts", params=params)
        found += page
        if len(page) < 500:
            break
    if as_json:
        show.as_json(found)
        return
    show.table(
        ["id", "email", "state", "rate", "pace", "holder", "rests until", "last error"],
        (
            [
                *(a["id"], a["email"], a["state"], a["rate"], f"{a['pace']:.1f}/s" if a["pace"] else None),
                *(a["lease_owner"], show.when(a["rest_until"]), a["last_error"]),
            ]
            for a in found
        ),
    )


def _shown(account: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show.as_json(account)
    else:
        show.fields(list(account.items()))


@accounts.command("show")
@click.argument("account", type=int)
@as_json_option
@click.pass_obj
def show_account(client: Client, account: int, as_json: bool) -> None:
    """Show one account, by id."""
    _shown(client.call("GET", f"/accounts/{account}"), as_json)


@accounts.command()
@click.argument("account", type=int)
@as_json_option
@click.pass_obj
def release(client: Client, account: int, as_json: bool) -> None:
    """Make an account available again."""
    _shown(client.call("POST", f"/accounts/{account}/release"), as_json)


@accounts.command()
@click.argument("account", type=int)
@as_json_option
@click.pass_obj
def disable(client: Client, account: int, as_json: bool) -> None:
    """Let nobody lease an account until it is released; its holder stops within the lease."""
    _shown(client.call("PATCH", f"/accounts/{account}", json={"disabled": True}), as_json)


@accounts.command()
@click.argument("account", type=int)
@click.option(
    "--password", prompt=True, hide_input=True, envvar="CUSCUTA_ACCOUNT_PASSWORD", help="Asked for if left out."
)
@as_json_option
@click.pass_obj
def password(client: Client, account: int, password: str, as_json: bool) -> None:
    """Give an account a new password; needs a token of scope admin."""
    _shown(client.call("PATCH", f"/accounts/{account}", json={"password": password}), as_json)


@accounts.command()
@click.argument("account", type=int)
@click.argument("rate", type=click.FloatRange(0, 1))
@as_json_option
@click.pass_obj
def rate(client: Client, account: int, rate: float, as_json: bool) -> None:
    """Set an account's rating, from 0 (never used) to 1."""
    _shown(client.call("PATCH", f"/accounts/{account}", json={"rate": rate}), as_json)


@accounts.command()
@click.argument("account", type=int)
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json_option
@click.pass_obj
def remove(client: Client, account: int, yes: bool, as_json: bool) -> None:
    """Remove an account and its credentials."""
    if not yes:
        click.confirm(f"Remove account {account} and its credentials?", abort=True)
    client.call("DELETE", f"/accounts/{account}")
    if as_json:
        show.as_json({"removed": account})
    else:
        show.console.print(f"account {account} removed")
