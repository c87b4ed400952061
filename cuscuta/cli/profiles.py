"""`cuscuta profiles`: several deployments by name, with addresses and tokens, in a file that only its owner reads."""

import json
import os
import re
from pathlib import Path
from typing import Any

import platformdirs
import rich_click as click

from cuscuta.cli import show
from cuscuta.cli.client import Client, checked_token
from cuscuta.cli.jobs import as_json_option

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def file() -> Path:
    """Where profiles are kept."""
    return platformdirs.user_config_path("cuscuta") / "profiles.json"


def _load() -> dict[str, dict[str, str]]:
    path = file()
    try:
        found: dict[str, dict[str, str]] = json.loads(path.read_text())
        return {name: {"url": str(one["url"]), "token": str(one["token"])} for name, one in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise click.ClickException(f"{path} holds something that is no list of profiles. Mend or remove it.") from None


def _save(profiles: dict[str, dict[str, str]]) -> None:
    path = file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump(profiles, out, indent=1)
    new.replace(path)


def client_of(name: str) -> Client:
    """A client of a profile's deployment. Raises ClickException with the names that there are."""
    found = _load()
    if name not in found:
        there = ", ".join(sorted(found)) or "none"
        raise click.ClickException(f"there is no profile {name!r}; there is: {there}. Make one: cuscuta profiles add")
    return Client(found[name]["url"], found[name]["token"])


@click.group()
def profiles() -> None:
    """Several deployments by name: `cuscuta --profile garden jobs list`, or CUSCUTA_PROFILE."""


@profiles.command()
@click.argument("name")
@click.argument("url")
@click.option("--token", prompt="Token", hide_input=True, envvar="CUSCUTA_TOKEN", help="Asked for if it is left out.")
@as_json_option
def add(name: str, url: str, token: str, as_json: bool) -> None:
    """Remember a deployment; a known name gets the new address and token."""
    if not _NAME.fullmatch(name):
        raise click.ClickException("a profile's name is letters, digits, and - _ . between them")
    if not re.match(r"https?://[^\s/]", url):
        raise click.ClickException(f"{url!r} is no address. It looks like https://cuscuta.example")
    _save({**_load(), name: {"url": url.rstrip("/"), "token": checked_token("the token", token)}})
    if as_json:
        show.as_json({"name": name, "url": url})
    else:
        show.console.print(f"{name}: {url}", markup=False)


@profiles.command("list")
@as_json_option
def list_profiles(as_json: bool) -> None:
    """Names and addresses; tokens are not shown."""
    found: list[dict[str, Any]] = [{"name": name, "url": one["url"]} for name, one in sorted(_load().items())]
    if as_json:
        show.as_json(found)
    else:
        show.table(("name", "url"), [(one["name"], one["url"]) for one in found])


@profiles.command()
@click.argument("name")
@as_json_option
def remove(name: str, as_json: bool) -> None:
    """Forget a deployment."""
    found = _load()
    if found.pop(name, None) is None:
        raise click.ClickException(f"there is no profile {name!r}")
    _save(found)
    if as_json:
        show.as_json({"removed": name})
    else:
        show.console.print(f"{name} removed", markup=False)
