"""`cuscuta catalogues`."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import rich_click as click

from cuscuta.cli import show
from cuscuta.cli.client import Client
from cuscuta.cli.jobs import as_json_option


@click.group()
def catalogues() -> None:
    """Catalogues: the items that jobs run over."""


@catalogues.command()
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@as_json_option
@click.pass_obj
def put(client: Client, name: str, file: Path, as_json: bool) -> None:
    """Store FILE as catalogue NAME: a JSON list of ids or objects, or one id a line; - reads standard input."""
    raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        items = _items(raw.decode("utf-8-sig"))
    except ValueError as error:
        raise click.ClickException(f"{file}: {error}") from None
    body = json.dumps({"items": items}).encode()
    stored = client.upload("PUT", f"/catalogues/{quote(name, safe='')}", body, "application/json")
    if as_json:
        show.as_json(stored)
    else:
        show.console.print(f"{stored['name']}: {stored['items']} items, {stored['hash']}", markup=False)


def _items(text: str) -> list[Any]:
    if text.lstrip()[:1] in ("[", "{"):
        found = json.loads(text)
        items = found.get("items") if isinstance(found, dict) else found
        if not isinstance(items, list):
            raise ValueError('JSON must be a list, or {"items": [...]}')
        return items
    return [line for line in (line.strip() for line in text.splitlines()) if line]


@catalogues.command("list")
@as_json_option
@click.pass_obj
def list_catalogues(client: Client, as_json: bool) -> None:
    """List catalogues."""
    found = client.call("GET", "/catalogues")
    if as_json:
        show.as_json(found)
    else:
        columns = ["name", "items", "weight", "updated", "hash"]
        show.table(
            columns, ([c["name"], c["items"], c["weight"], show.when(c["updated_at"]), c["hash"]] for c in found)
        )


@catalogues.command("show")
@click.argument("name")
@click.option("--from", "start", type=click.IntRange(0), default=0)
@click.option("--limit", type=click.IntRange(1, 500), default=20)
@as_json_option
@click.pass_obj
def show_catalogue(client: Client, name: str, start: int, limit: int, as_json: bool) -> None:
    """Show a catalogue and some of its items."""
    found = client.call("GET", f"/catalogues/{quote(name, safe='')}", params={"from": start, "limit": limit})
    if as_json:
        show.as_json(found)
        return
    show.fields([(key, found[key]) for key in ("name", "hash", "items", "weight", "cells")])
    rows = ([start + i, item["id"], item.get("weight", 1), item.get("params")] for i, item in enumerate(found["page"]))
    show.table(["#", "id", "weight", "params"], rows)
