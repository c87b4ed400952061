"""`cuscuta migrate`: what entry does at its start, for those who want it done before."""

import asyncio
import os

import rich_click as click

from cuscuta.cli import show
from cuscuta.cli.jobs import as_json_option
from cuscuta.cli.tokens import opened
from cuscuta.errors import DatabaseUnavailable
from cuscuta.settings import SettingsError, load


@click.command()
@as_json_option
def migrate(as_json: bool) -> None:
    """Bring PostgreSQL's tables up to date (CUSCUTA_POSTGRES_URL); harmless if they are, and beside running parts."""
    try:
        settings = load({key: value for key, value in os.environ.items() if key.startswith("CUSCUTA_")})
        settings.require("postgres_url")
    except SettingsError as error:
        raise click.ClickException("\n".join(error.faults)) from None
    try:
        done = asyncio.run(_migrate(settings.postgres_url))
    except TimeoutError:
        raise click.ClickException("PostgreSQL does not answer within 60 s. Check CUSCUTA_POSTGRES_URL.") from None
    except DatabaseUnavailable as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        show.as_json({"migrated": done})
    else:
        show.console.print("\n".join(done) or "nothing to do", markup=False)


async def _migrate(postgres_url: str) -> list[str]:
    async with asyncio.timeout(60), opened(postgres_url) as database:
        return await database.migrate()
