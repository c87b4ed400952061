"""`cuscuta migrate`: what entry does at its start, for those who want it done before."""

import asyncio

import rich_click as click

from cuscuta.cli import show
from cuscuta.cli.jobs import as_json_option
from cuscuta.cli.tokens import opened, own_postgres_url
from cuscuta.errors import DatabaseUnavailable


@click.command()
@as_json_option
def migrate(as_json: bool) -> None:
    """Bring PostgreSQL's tables up to date (CUSCUTA_POSTGRES_URL); harmless if they are, and beside running parts."""
    try:
        done = asyncio.run(_migrate(own_postgres_url()))
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
