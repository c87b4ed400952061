"""Everything on one box: servers from wheels and Cuscuta's parts over a data folder."""

import asyncio
import contextlib
import fcntl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from cuscuta.embedded.environment import plain_env
from cuscuta.embedded.nats import EmbeddedError, Nats
from cuscuta.embedded.postgres import Postgres, free_port
from cuscuta.embedded.supervisor import Part, Say, end_leftovers, module, remember


class Stack:
    """Options, then `running()`. `env` goes to every part, over what the stack sets itself."""

    def __init__(
        self,
        folder: Path,
        say: Say,
        *,
        workers: int = 2,
        port: int = 0,
        secret_key: str = "",
        seal_key: str = "",
        env: Mapping[str, str] | None = None,
        extra: Mapping[str, list[str]] | None = None,
        durable: bool = True,
    ) -> None:
        self.folder, self._say, self._workers, self._port = folder, say, workers, port
        self._env, self._extra, self._secret_key = dict(env or {}), dict(extra or {}), secret_key
        self._seal_key = seal_key
        self.nats = Nats(folder / "nats", _kept_port(folder / "nats"), sync_always=durable)
        self.postgres = Postgres(folder / "postgres", _kept_port(folder / "postgres"), fast=not durable)
        self.parts: list[Part] = []
        self.killed = False  # whether somebody killed a part on purpose, as `demo --kill` does

    @property
    def url(self) -> str:
        """The REST API."""
        return f"http://127.0.0.1:{self._port}"

    def worker_parts(self) -> list[Part]:
        """The worker processes."""
        return [part for part in self.parts if part.name.startswith("worker")]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start everything; stop it in order at the end: parts, then servers. Raises EmbeddedError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder):
            end_leftovers(self.folder)
            try:
                await asyncio.gather(asyncio.to_thread(self._start_nats), asyncio.to_thread(self._start_postgres))
                self._port = self._port or free_port()
                async with asyncio.TaskGroup() as group:
                    guards = [group.create_task(self._guard_servers())]
                    guards += self._start_parts(group)
                    try:
                        yield
                    finally:
                        await asyncio.shield(asyncio.gather(*(part.stop() for part in self.parts)))
                        for guard in guards:
                            guard.cancel()
            finally:
                self.postgres.stop()
                self.nats.stop()
                (self.folder / "parts.json").unlink(missing_ok=True)

    def _start_nats(self) -> None:
        self.nats.start()
        (self.folder / "nats" / "port").write_text(str(self.nats.port))

    def _start_postgres(self) -> None:
        self.postgres.start()
        (self.folder / "postgres" / "port").write_text(str(self.postgres.port))

    def _start_parts(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        env = {
            **plain_env(),
            "PYTHONUNBUFFERED": "1",
            "CUSCUTA_NATS_URL": self.nats.url,
            "CUSCUTA_POSTGRES_URL": self.postgres.url(),
            "CUSCUTA_ENTRY_PORT": str(self._port),
            **self._env,
        }
        commands = {"entry": module("entry.run"), "reaper": module("reaper.run"), **self._extra}
        for n in range(1, self._workers + 1):
            commands[f"worker-{n}"] = module("worker.run")
        keys = {"CUSCUTA_SECRET_KEYS": self._secret_key}  # for those that open secrets
        seal = {"CUSCUTA_SEAL_KEYS": self._seal_key}  # for those that accept jobs
        self.parts = [
            Part(
                name,
                argv,
                env
                | (keys if name.startswith(("entry", "worker", "reaper")) else {})
                | (seal if seal["CUSCUTA_SEAL_KEYS"] and name.startswith(("entry", "reaper")) else {}),
                self._say,
            )
            for name, argv in commands.items()
        ]
        return [group.create_task(self._keep(part)) for part in self.parts]

    async def _keep(self, part: Part) -> None:
        try:
            await part.run()
        except RuntimeError as error:
            raise EmbeddedError(f"{error}; see its last lines above") from error

    async def _guard_servers(self) -> None:
        """Start a server again that died, and keep the list of pids fresh."""
        while True:
            await asyncio.sleep(0.5)
            remember(self.folder, self.parts)
            for name, server in (("nats", self.nats), ("postgres", self.postgres)):
                if server.process and server.process.poll() is not None:
                    self._say(name, "died; starting it again")
                    await asyncio.to_thread(server.start)


def _kept_port(folder: Path) -> int:
    """The port of the last time, so that addresses survive restarts."""
    with contextlib.suppress(OSError, ValueError):
        return int((folder / "port").read_text())
    return 0


@contextlib.contextmanager
def _locked(folder: Path):  # type: ignore[no-untyped-def]
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise EmbeddedError(f"another cuscuta runs over {folder}. Stop it, or choose another --data.") from error
        yield
