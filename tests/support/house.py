"""A whole deployment of real processes on loopback, each part of which a test can start, stop, kill and ask."""

import asyncio
import base64
import json
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg
import httpx

from cuscuta.broker import Bus
from cuscuta.clock import SystemClock
from cuscuta.db import Database, Scope, Tokens
from cuscuta.db.vault import new_key
from cuscuta.embedded.nats import Nats
from cuscuta.embedded.postgres import Postgres
from cuscuta.logs import get
from cuscuta.settings import Settings, load
from tests.support import users
from tests.support.process import Proc, clean_env, module
from tests.support.quick import QUICK
from tests.support.wait import until

REFERENCE = Path(__file__).parents[2] / "worker" / "upstream" / "reference" / "reference.toml"
ENDED = ("completed", "failed", "cancelled")


class House:
    """Enter it, then start what the test needs."""

    def __init__(self, folder: Path, postgres: Postgres, **env: str) -> None:
        self.folder, self.postgres = folder, postgres
        self.nats = Nats(folder / "nats", extra=f'http: "127.0.0.1:-1"\n{users.conf()}')
        self.database = f"test_{secrets.token_hex(6)}"
        self.key = new_key()
        self.extra_env = {f"CUSCUTA_{name.upper()}": value for name, value in env.items()}
        self.otel: dict[str, str] = {}  # OTEL_* of every part
        self.procs: list[Proc] = []
        self.http = httpx.AsyncClient(timeout=30)
        self.upstream_url = ""
        self._closed = False
        self.urls: dict[str, str] = {}
        self._bus: Bus | None = None
        self._count = 0

    async def __aenter__(self) -> Self:
        self.nats.start()
        await self.sql(f"CREATE DATABASE {self.database}", database="postgres")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        self._closed = True
        for proc in self.procs:
            if proc.running():
                proc.kill()
        if self._bus:
            await self._bus.broker.close()
        await self.http.aclose()
        self.nats.kill()
        logs = "".join(log.read_text() for log in self.nats.folder.rglob("nats.log"))
        beyond = [line for line in logs.splitlines() if "Violation" in line]  # of deploy/nats/users.conf
        await self.sql(f"DROP DATABASE IF EXISTS {self.database} WITH (FORCE)", database="postgres")
        for proc in self.procs:  # pytest shows it if the test failed
            lines = (line for line in proc.text().splitlines() if '"level": "debug"' not in line)
            print(f"--- {proc.name}", *[*lines][-40:], sep="\n", file=sys.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)
        assert not beyond, beyond[:5]

    # --- processes -----------------------------------------------------------------------------------------------

    def env(self, **more: str) -> dict[str, str]:
        return {
            **clean_env(),
            **QUICK,
            "CUSCUTA_NATS_URL": self.nats.url,
            "CUSCUTA_NATS_USER": "tests",
            "CUSCUTA_NATS_PASSWORD": users.password("tests"),
            "CUSCUTA_POSTGRES_URL": self.postgres.url(self.database),
            "CUSCUTA_SECRET_KEYS": self.key,
            "CUSCUTA_UPSTREAM": str(REFERENCE),
            "CUSCUTA_UPSTREAM_URL": self.upstream_url,
            "CUSCUTA_ENTRY_PORT": "0",
            **self.otel,
            **self.extra_env,
            **{f"CUSCUTA_{name.upper()}": value for name, value in more.items()},
        }

    def spawn(self, name: str, argv: list[str], env: dict[str, str]) -> Proc:
        self._count += 1
        proc = Proc(f"{self._count:02}-{name}", argv, env, self.folder)
        self.procs.append(proc)
        return proc

    async def _served(self, name: str, target: str, **more: str) -> tuple[Proc, str]:
        port_file = self.folder / f"port-{self._count + 1}"
        proc = self.spawn(name, module(target), self.env(port_file=str(port_file), **{**users.login(name), **more}))
        self.urls[proc.name] = f"http://127.0.0.1:{await self.port(port_file, proc)}"
        return proc, self.urls[proc.name]

    async def port(self, file: Path, proc: Proc) -> int:
        async def written() -> int:
            assert proc.running(), f"{proc.name} ended:\n{proc.text()[-3000:]}"
            return int(file.read_text() or 0) if file.exists() else 0

        return await until(written, 20, f"{proc.name} listens", 0.02)

    async def ready(self, url: str, proc: Proc, timeout: float = 20) -> None:
        causes = ""

        async def yes() -> bool:
            nonlocal causes
            assert proc.running(), f"{proc.name} ended:\n{proc.text()[-3000:]}"
            try:
                answer = await self.http.get(f"{url}/readyz")
            except httpx.TransportError:
                return False
            causes = answer.text
            return answer.status_code == 200

        try:
            await until(yes, timeout, f"{proc.name} is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}: {causes}") from None

    async def token(self, scope: Scope = Scope.ADMIN, group: str = "", **more: Any) -> str:
        """A token for the API, made over the database."""
        async with self.database_of_ours() as database:
            await database.migrate()
            return await Tokens(database).make("tests", scope, group, **more)

    @property
    def cli(self) -> dict[str, str]:
        """What the command line needs in its environment."""
        return {
            "CUSCUTA_URL": str(self.http.base_url),
            "CUSCUTA_TOKEN": self.http.headers["authorization"].removeprefix("Bearer "),
        }

    @asynccontextmanager
    async def database_of_ours(self) -> AsyncIterator[Database]:
        database = Database(self.settings(), SystemClock(), get("test"))
        await database.connect()
        try:
            yield database
        finally:
            await database.close()

    async def entry(self, wait: bool = True, **more: str) -> Proc:
        if "authorization" not in self.http.headers:
            self.http.headers["authorization"] = f"Bearer {await self.token()}"
        proc, url = await self._served("entry", "entry.run", **more)
        self.http.base_url = httpx.URL(url)
        if wait:
            await self.ready(url, proc)
        return proc

    async def worker(self, wait: bool = True, **more: str) -> Proc:
        proc, url = await self._served("worker", "worker.run", **more)
        if wait:
            await self.ready(url, proc)
        return proc

    async def reaper(self, wait: bool = True, **more: str) -> Proc:
        proc, url = await self._served("reaper", "reaper.run", **more)
        if wait:
            await self.ready(url, proc)
        return proc

    async def upstream(self, accounts: int = 4, latency_ms: float = 10, **options: Any) -> Proc:
        """The reference upstream; options are those of its command line."""
        file = self.folder / "upstream-port"
        args = ["--port-file", str(file), "--accounts", str(accounts), "--latency-ms", str(latency_ms)]
        for name, value in options.items():
            if value is None:
                continue
            args += [f"--{name.replace('_', '-')}", str(value)]
        proc = self.spawn("upstream", module("worker.upstream.reference.server", *args), self.env())
        self.upstream_url = f"http://127.0.0.1:{await self.port(file, proc)}"
        return proc

    # --- the API -------------------------------------------------------------------------------------------------

    async def call(self, method: str, path: str, status: int | None = None, **options: Any) -> Any:
        response = await self.http.request(method, path, **options)
        good = response.status_code < 300 if status is None else response.status_code == status
        assert good, f"{method} {path}: {response.status_code} {response.text[:2000]}"
        return response.json() if response.content else None

    async def accounts(self, count: int) -> None:
        """Import the reference upstream's accounts 1 to count."""
        body = [{"email": f"account-{n}@example.com", "password": f"password-{n}"} for n in range(1, count + 1)]
        await self.call("POST", "/accounts/import", json=body)

    async def catalogue(self, items: int | list[Any], name: str = "songs") -> list[Any]:
        made = [f"song-{n}" for n in range(items)] if isinstance(items, int) else items
        await self.call("PUT", f"/catalogues/{name}", json={"items": made})
        return made

    async def submit(self, target: str = "player 1", catalogue: str = "songs", **body: Any) -> str:
        accepted = await self.call("POST", "/jobs", 202, json={"target": target, "catalogue": catalogue, **body})
        return str(accepted["uid"])

    async def job(self, uid: str) -> Any:
        return await self.call("GET", f"/jobs/{uid}")

    async def ended(self, uid: str, timeout: float = 60, every: float = 0.05) -> Any:
        last: Any = None

        async def over() -> bool:
            nonlocal last
            last = await self.job(uid)
            return last["status"] in ENDED

        try:
            await until(over, timeout, f"job {uid} has ended", every)
        except AssertionError as error:
            bus = await self.bus()
            left = [*await bus.work.subjects("cuscuta.>")][:20]
            figures = await bus.work.consumer_delivered(uid)
            raise AssertionError(f"{error}\njob {last}\nleft {left}\nconsumer {figures}") from None
        return last

    async def done(self, uid: str, at_least: int, timeout: float = 30) -> Any:
        async def enough() -> Any:
            job = await self.job(uid)
            return job if job["progress"]["done"] >= at_least else None

        return await until(enough, timeout, f"job {uid} has {at_least} items", 0.02)

    async def results(self, uid: str) -> list[Any]:
        lines = await self.http.get(f"/jobs/{uid}/results", headers={"accept": "application/x-ndjson"})
        assert lines.status_code in (200, 206), lines.text
        return [json.loads(line) for line in lines.text.splitlines()]

    async def seats(self, count: int) -> None:
        async def there() -> bool:
            return bool(sum(w["seats"] for w in await self.call("GET", "/workers")) >= count)

        await until(there, 20, f"{count} seats are alive")

    # --- the upstream --------------------------------------------------------------------------------------------

    async def world(self) -> Any:
        return (await self.http.get(f"{self.upstream_url}/_world", timeout=60)).json()

    async def control(self, account: str | None = None, **body: Any) -> None:
        await self.call("POST", f"{self.upstream_url}/_control", 200, json={"account": account, **body})

    # --- the truth on bus and database ---------------------------------------------------------------------------

    def settings(self, **more: str) -> Settings:
        return load({k: v for k, v in self.env(seal_keys=users.SEAL, **more).items() if k.startswith("CUSCUTA_")})

    async def bus(self) -> Bus:
        """The test's own view of the bus."""
        if self._bus is None:
            self._bus = Bus(self.settings(), SystemClock(), get("test"), "test")
            await self._bus.broker.connect()
        return self._bus

    async def sql(self, statement: str, *values: Any, database: str | None = None) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.postgres.url(database or self.database))
        try:
            return list(await connection.fetch(statement, *values))
        finally:
            await connection.close()

    async def states(self) -> dict[str, int]:
        rows = await self.sql("SELECT state, count(*) AS n FROM account_table GROUP BY state")
        return {row["state"]: row["n"] for row in rows}

    async def messages(self, subject: str) -> list[str]:
        return await (await self.bus()).work.subjects(subject)

    async def nats_messages(self) -> int:
        """Messages that the server has received and sent so far."""
        ports = json.loads(next(self.nats.folder.glob("*.ports")).read_text())
        varz = (await self.http.get(f"{ports['monitoring'][0]}/varz")).json()
        return int(varz["in_msgs"] + varz["out_msgs"])

    async def raw_value(self, bucket: str, key: str) -> bytes:
        asked = {"last_by_subj": f"$KV.{bucket}.{key}"}
        answer = await (await self.bus()).broker.api(f"STREAM.MSG.GET.KV_{bucket}", asked)
        return base64.b64decode(answer["message"]["data"])


async def gather(*work: Any) -> list[Any]:
    """asyncio.gather, typed for tests."""
    return list(await asyncio.gather(*work))
