"""`cuscuta up`: everything on this box, until Ctrl-C."""

import asyncio
import os
import secrets
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import platformdirs
import rich_click as click

from cuscuta.cli import show
from cuscuta.cli.client import Client, token_file, url_file
from cuscuta.cli.tokens import folder_token
from cuscuta.embedded.nats import EmbeddedError
from cuscuta.embedded.stack import Stack
from cuscuta.health import listen
from cuscuta.settings import SettingsError, load

# What `up` decides itself, so that its parts meet at the servers that it starts.
_OURS = frozenset(
    f"CUSCUTA_{name}"
    for name in (
        "URL",
        "TOKEN",
        "TOKEN_FILE",
        "NATS_URL",
        "POSTGRES_URL",
        "SECRET_KEYS",
        "SEAL_KEYS",
        "ENTRY_PORT",
        "ENTRY_HOST",
        "PORT_FILE",
    )
)


def say(part: str, line: str) -> None:
    """One line of a part's log, prefixed."""
    show.console.print(f"{part:>9} | {line}", markup=False, highlight=False, soft_wrap=True)


def secret_key(folder: Path, name: str = "secret-key") -> str:
    """One of the data folder's own keys, made at the first start and readable by its owner only."""
    from cuscuta.db.vault import new_key

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    if not file.exists():
        _keep(file, new_key())
    return file.read_text().strip()


async def admin_token(stack: Stack) -> tuple[str, bool]:
    """The token of the data folder, readable by its owner only, and whether it was made just now."""
    file = token_file(stack.folder)
    _keep(url_file(stack.folder), stack.url)
    known = file.read_text().strip() if file.exists() else ""
    async with asyncio.timeout(60):
        token = await folder_token(stack.postgres.url(), known)
    if token != known:
        _keep(file, token)
    return token, token != known


def _keep(file: Path, text: str) -> None:
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.rename(file)


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run until it ends or Ctrl-C; a second Ctrl-C does not interrupt the clean-up of the first."""

    async def guarded() -> int:
        task = asyncio.ensure_future(main)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, _once(task))
        try:
            return await task
        except asyncio.CancelledError:
            return 130

    try:
        return asyncio.run(guarded())
    except* (EmbeddedError, click.ClickException, TimeoutError) as errors:
        raise click.ClickException(_first(errors)) from None


def check_port(port: int) -> None:
    """Refuse a port that somebody listens on already."""
    try:
        listen("127.0.0.1", port).close()
    except OSError as error:
        raise click.ClickException(f"{error.strerror}. Choose another one with --port.") from None


def _once(task: "asyncio.Future[int]") -> Any:
    asked = [False]

    def stop() -> None:
        if not asked[0]:
            asked[0] = True
            show.messages.print("\nstopping; this takes a few seconds")
            task.cancel()

    return stop


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.message if isinstance(error, click.ClickException) else str(error) or "it took too long"


async def until_ready(client: Client, stack: Stack) -> None:
    """Wait until the API and, if there are any, the workers answer."""
    cause = ""
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    await asyncio.to_thread(client.call, "GET", "/readyz")
                    if len(await asyncio.to_thread(client.call, "GET", "/workers")) >= len(stack.worker_parts()):
                        return
                except click.ClickException as error:
                    cause = error.message
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise EmbeddedError(f"not ready within 60 s: {cause or 'workers are missing'}") from None


@click.command()
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Data folder; default: the user's own.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port of the REST API.")
@click.option("--workers", type=click.IntRange(0, 64), default=2, show_default=True, help="Worker processes.")
@click.option("--seats", type=click.IntRange(1, 256), help="Accounts a worker works with; default: the setting, or 4.")
@click.option("--upstream", help="The adapter; default: the setting.")
@click.option("--insecure", is_flag=True, help="The API asks for no token: whoever is on this box may do anything.")
def up(data: Path | None, port: int, workers: int, seats: int | None, upstream: str | None, insecure: bool) -> None:
    """Run NATS, PostgreSQL, entry, workers and reaper on this box. Data survive restarts.

    Other CUSCUTA_* settings, of the environment or the CUSCUTA_CONFIG file, reach every part.
    """
    folder = (data or Path(platformdirs.user_data_path("cuscuta"))).resolve()
    check_port(port)
    passed = {key: value for key, value in os.environ.items() if key.startswith("CUSCUTA_") and key not in _OURS}
    if seats is not None:
        passed["CUSCUTA_SEATS"] = str(seats)
    if upstream is not None:
        passed["CUSCUTA_UPSTREAM"] = upstream
    if insecure:
        passed["CUSCUTA_INSECURE"] = "true"
    try:
        settings = load(passed)
    except SettingsError as error:
        raise click.ClickException("\n".join(error.faults)) from None
    if settings.insecure:
        show.messages.print("[yellow]insecure: whoever is on this box may do anything over the API")
    if workers and not settings.upstream:
        show.messages.print(
            "[yellow]no adapter is set, so no worker starts. Set --upstream or CUSCUTA_UPSTREAM; see docs/upstreams.md."
        )
        workers = 0
    env = {"CUSCUTA_LOG_FORMAT": "console", **passed}
    stack = Stack(
        folder,
        say,
        workers=workers,
        port=port,
        secret_key=secret_key(folder),
        seal_key=secret_key(folder, "seal-key"),
        env=env,
    )
    raise SystemExit(run(_up(stack)))


async def _up(stack: Stack) -> int:
    show.messages.print(f"data: {stack.folder}", highlight=False, soft_wrap=True)
    async with stack.running():
        token, new = await admin_token(stack)
        await until_ready(Client(stack.url, token), stack)
        show.messages.print(f"\ndashboard  {stack.url}/", soft_wrap=True)
        show.messages.print(f"REST API   {stack.url}   described at {stack.url}/openapi.json", soft_wrap=True)
        show.messages.print(f"NATS       {stack.nats.url}   look: nats -s {stack.nats.url} stream ls", soft_wrap=True)
        show.messages.print(f"PostgreSQL 127.0.0.1:{stack.postgres.port}   Ctrl-C stops everything\n")
        if new:
            show.messages.print(f"admin's token, shown this once: {token}", soft_wrap=True, highlight=False)
        show.messages.print(
            f"export CUSCUTA_URL={stack.url} CUSCUTA_TOKEN_FILE={token_file(stack.folder)}\n", soft_wrap=True
        )
        await asyncio.Event().wait()
    return 0
