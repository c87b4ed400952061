"""`cuscuta tokens`."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import rich_click as click

from cuscuta.cli import show
from cuscuta.cli.client import Client
from cuscuta.cli.jobs import as_json_option
from cuscuta.errors import DatabaseUnavailable
from cuscuta.settings import Settings, SettingsError, load

if TYPE_CHECKING:
    from cuscuta.db import Database

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SCOPES = ["read", "submit", "operate", "admin"]


class Duration(click.ParamType[float]):
    """Seconds, written as 90, 15m, 12h or 30d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises BadParameter."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value))
        if not found:
            self.fail(f"{value!r} is no duration: write 90, 15m, 12h or 30d", param, ctx)
        return float(found[1]) * _UNITS[found[2] or "s"]


@click.group()
def tokens() -> None:
    """Tokens for the REST API."""


@tokens.command()
@click.argument("name")
@click.option("--scope", type=click.Choice(_SCOPES), required=True, help="Each includes those before it.")
@click.option("--group", default="", help="Below operate: see and make jobs of this group only.")
@click.option("--expires", type=Duration(), help="For how long it is good, for example 12h or 30d. Default: for ever.")
@as_json_option
@click.pass_obj
def make(client: Client, name: str, scope: str, group: str, expires: float | None, as_json: bool) -> None:
    """Make a token called NAME. It is shown this once."""
    body = {"name": name, "scope": scope, "group": group, "expires_s": expires}
    made = client.call("POST", "/tokens", json=body)
    if as_json:
        show.as_json(made)
    else:
        click.echo(made["token"])
        show.messages.print("this is shown once; keep it where secrets are kept")


@tokens.command("list")
@as_json_option
@click.pass_obj
def list_tokens(client: Client, as_json: bool) -> None:
    """List tokens, without their secrets."""
    found = client.call("GET", "/tokens")
    if as_json:
        show.as_json(found)
        return
    times = ("created_at", "used_at", "expires_at", "revoked_at")
    show.table(
        ["id", "name", "scope", "group", "made", "used", "expires", "revoked"],
        ([t["id"], t["name"], t["scope"], t["group"], *(show.when(t[time]) for time in times)] for t in found),
    )


@tokens.command()
@click.argument("token", type=int)
@as_json_option
@click.pass_obj
def revoke(client: Client, token: int, as_json: bool) -> None:
    """End a token, by id."""
    gone = client.call("DELETE", f"/tokens/{token}")
    if as_json:
        show.as_json(gone)
    else:
        show.console.print(f"token {token} ({gone['name']}) is revoked", markup=False)


@tokens.command()
@click.option("--another", is_flag=True, help="Also if there is an admin's token already.")
@as_json_option
def bootstrap(another: bool, as_json: bool) -> None:
    """Make the first admin's token, over the database instead of the API (CUSCUTA_POSTGRES_URL).

    For whoever has the database but no token: at the first start, or when all tokens are lost.
    """
    try:
        made = asyncio.run(_bootstrap(own_postgres_url(), another))
    except TimeoutError:
        raise click.ClickException("PostgreSQL does not answer within 10 s. Check CUSCUTA_POSTGRES_URL.") from None
    except DatabaseUnavailable as error:
        raise click.ClickException(f"{error}. Start entry once, which makes the tables, and try again.") from None
    if made is None:
        raise click.ClickException("there is an admin's token already. Use it, or make one more with --another.")
    if as_json:
        show.as_json({"token": made})
    else:
        click.echo(made)
    show.messages.print("this is shown once; keep it where secrets are kept")


def own_postgres_url() -> str:
    """The database that the environment names, for commands that go past the API. Raises ClickException."""
    try:
        settings = load({key: value for key, value in os.environ.items() if key.startswith("CUSCUTA_")})
        settings.require("postgres_url")
    except SettingsError as error:
        raise click.ClickException("\n".join(error.faults)) from None
    return settings.postgres_url


async def _bootstrap(postgres_url: str, another: bool) -> str | None:
    from cuscuta.db.tokens import Scope, Tokens

    async with asyncio.timeout(10), opened(postgres_url) as database:
        tokens = Tokens(database)
        return None if not another and await tokens.has_admin() else await tokens.make("bootstrap", Scope.ADMIN)


async def folder_token(postgres_url: str, known: str) -> str:
    """The token that `cuscuta up` goes by: the one it has kept if that is still good, else a fresh one."""
    from cuscuta.db.tokens import Scope, Tokens, parse

    async with opened(postgres_url) as database:
        await database.insist(database.migrate)
        tokens = Tokens(database)
        token = await tokens.check(key) if (key := parse(known)) else None
        good = token is not None and token.scope is Scope.ADMIN
        return known if good else await tokens.make("cuscuta up", Scope.ADMIN)


@asynccontextmanager
async def opened(postgres_url: str) -> "AsyncIterator[Database]":
    """The database, past the API; waits for it for ever."""
    from cuscuta.clock import SystemClock
    from cuscuta.db import Database
    from cuscuta.logs import set_up

    settings = Settings(postgres_url=postgres_url, log_level="warning")
    database = Database(settings, SystemClock(), set_up(settings, "cuscuta.cli"))
    try:
        await database.connect()
        yield database
    finally:
        await database.close()
