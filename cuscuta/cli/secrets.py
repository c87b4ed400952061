"""`cuscuta secrets`."""

import rich_click as click
from rich.progress import Progress, TextColumn

from cuscuta.cli import show
from cuscuta.cli.client import Client
from cuscuta.cli.jobs import as_json_option


@click.group()
def secrets() -> None:
    """Secrets that are stored."""


@secrets.command()
@as_json_option
@click.pass_obj
def rotate(client: Client, as_json: bool) -> None:
    """Seal accounts' passwords and upstream tokens with the newest key.

    docs/security.md says in which order keys are changed; after this the old one can go.
    """
    seen = sealed = 0
    unreadable: list[int] = []
    after: int | None = 0
    with Progress(TextColumn("{task.description}"), console=show.messages, transient=True) as progress:
        task = progress.add_task("sealing", total=None)
        while after is not None:
            page = client.call("POST", "/secrets/rotate", params={"after": after})
            seen, sealed, after = seen + page["seen"], sealed + page["sealed"], page["next"]
            unreadable += page["unreadable"]
            progress.update(task, description=f"{seen} accounts seen")
    if as_json:
        show.as_json({"seen": seen, "sealed": sealed, "unreadable": unreadable})
    else:
        show.console.print(f"{seen} accounts: {sealed} sealed anew, {seen - sealed - len(unreadable)} were in order")
    if unreadable:
        some = ", ".join(map(str, unreadable[:10]))
        raise click.ClickException(
            f"{len(unreadable)} accounts are sealed with a key that entry does not have ({some}). Add that key to "
            "CUSCUTA_SECRET_KEYS, or set their passwords anew."
        )
