"""The `cuscuta` command."""

import base64
import os
import sys
from secrets import token_bytes

import rich_click as click

from cuscuta import __version__
from cuscuta.cli import show
from cuscuta.cli.accounts import accounts
from cuscuta.cli.catalogues import catalogues
from cuscuta.cli.client import Client, default_url
from cuscuta.cli.demo import demo
from cuscuta.cli.doctor import doctor
from cuscuta.cli.jobs import as_json_option, jobs
from cuscuta.cli.migrate import migrate
from cuscuta.cli.profiles import client_of, profiles
from cuscuta.cli.results import events
from cuscuta.cli.schedules import schedules
from cuscuta.cli.secrets import secrets
from cuscuta.cli.tokens import tokens
from cuscuta.cli.top import top
from cuscuta.cli.up import up
from cuscuta.settings import SettingsError, load


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cuscuta")
@click.option("--url", default=default_url, show_default="CUSCUTA_URL or http://127.0.0.1:8000", help="The REST API.")
@click.option("--profile", envvar="CUSCUTA_PROFILE", metavar="NAME", help="A deployment of `cuscuta profiles`.")
@click.pass_context
def cuscuta(context: click.Context, url: str, profile: str | None) -> None:
    """Run one job over a whole catalogue as fast as all your upstream accounts together allow.

    The API wants a token: CUSCUTA_TOKEN, or a file named by CUSCUTA_TOKEN_FILE.
    """
    source = context.get_parameter_source("url")
    if profile and source is not None and source.name == "COMMANDLINE":
        raise click.UsageError("--url and --profile both say which deployment. Use one of them.")
    context.obj = client_of(profile) if profile and context.invoked_subcommand != "profiles" else Client(url)
    context.call_on_close(context.obj.close)


@cuscuta.command("check-config")
@as_json_option
def check_config(as_json: bool) -> None:
    """Check CUSCUTA_* settings and the CUSCUTA_CONFIG file without connecting to anything."""
    try:
        load(os.environ)
    except SettingsError as error:
        if as_json:
            show.as_json({"faults": list(error.faults)})
        for fault in error.faults:
            click.echo(fault, err=True)
        sys.exit(2)
    if as_json:
        show.as_json({"faults": []})
    else:
        show.console.print("the settings are in order")


@cuscuta.command("secret-key")
@as_json_option
def secret_key(as_json: bool) -> None:
    """Print a fresh key for CUSCUTA_SECRET_KEYS or CUSCUTA_SEAL_KEYS."""
    from cuscuta.db.vault import new_key

    _print_key(new_key(), as_json)


@cuscuta.command("webhook-secret")
@as_json_option
def webhook_secret(as_json: bool) -> None:
    """Print a fresh key for CUSCUTA_WEBHOOK_SECRETS."""
    _print_key("whsec_" + base64.b64encode(token_bytes(32)).decode(), as_json)


def _print_key(key: str, as_json: bool) -> None:
    show.as_json({"key": key}) if as_json else click.echo(key)


for command in (
    jobs,
    events,
    schedules,
    accounts,
    catalogues,
    tokens,
    secrets,
    doctor,
    top,
    profiles,
    migrate,
    up,
    demo,
):
    cuscuta.add_command(command)


def main() -> None:
    """The console script; Ctrl-C ends without a traceback."""
    try:
        cuscuta(prog_name="cuscuta", standalone_mode=False)
    except click.Abort:
        click.echo("stopped", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
