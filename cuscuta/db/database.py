"""The connection pool, errors translated once, and migrations under an advisory lock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from importlib.resources import files
from typing import Any, TypeVar

import asyncpg

from cuscuta.clock import Clock
from cuscuta.errors import DatabaseUnavailable
from cuscuta.logs import Logger
from cuscuta.settings import Settings

ResultT = TypeVar("ResultT")

# Any numbers that nothing else in this database uses.
MIGRATION_LOCK = 0x43_55_53_43  # "CUSC"
REAPER_LOCK = 0x43_55_53_52  # "CUSR"
_GONE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the connection ended while a statement was being prepared
    # Whatever the server says: starting up, shutting down, read-only after a fail-over, deadlock, disk full. A caller
    # can do no better than to try again or to report it, and no answer of PostgreSQL's may end a process.
    asyncpg.PostgresError,
)


class Database:
    """One process's pool. `connect` waits for ever, with a log line."""

    COMMAND_S = 5.0  # a statement that takes longer is stuck: all of ours touch a handful of rows
    CLOSE_S = 3.0
    SILENT_S = 10.0  # the server ends the session of a lock's holder that says nothing for so long

    def __init__(self, settings: Settings, clock: Clock, log: Logger) -> None:
        self._settings, self._clock, self._log = settings, clock, log
        self._pool: asyncpg.Pool[Any] | None = None

    async def connect(self) -> None:
        """Open the pool; tries again until it works."""
        tries = 0
        while True:
            try:
                self._pool = await asyncpg.create_pool(
                    self._settings.postgres_url,
                    min_size=1,
                    max_size=self._settings.postgres_pool,
                    command_timeout=self.COMMAND_S,
                    timeout=5,
                )
                return
            except _GONE as error:
                tries += 1
                if tries in (1, 10) or tries % 60 == 0:
                    self._log.warning("waiting for PostgreSQL", cause=str(error) or type(error).__name__)
                await self._clock.sleep(0.5)

    async def close(self) -> None:
        """Close the pool; bounded."""
        if self._pool is not None:
            try:
                async with asyncio.timeout(self.CLOSE_S):
                    await self._pool.close()
            except TimeoutError:
                self._pool.terminate()

    async def rows(self, sql: str, *values: Any) -> list[asyncpg.Record]:
        """Run one statement. Raises DatabaseUnavailable."""
        if self._pool is None:
            raise DatabaseUnavailable("not connected yet")
        with _translated():
            async with self._held(self._pool) as connection:
                return list(await connection.fetch(sql, *values))

    @contextlib.asynccontextmanager
    async def _held(self, pool: asyncpg.Pool[Any]) -> AsyncIterator[Any]:
        """A connection of the pool. One that does not answer is dropped, and so are those that were opened with it.

        asyncpg would ask the server to cancel the statement and wait for its word, which a silent one never gives.
        """
        async with pool.acquire(timeout=5) as connection:
            try:
                yield connection
            except (TimeoutError, asyncio.CancelledError) as error:
                connection.terminate()
                if isinstance(error, TimeoutError):
                    await pool.expire_connections()
                raise

    async def row(self, sql: str, *values: Any) -> asyncpg.Record | None:
        """The first row of one statement. Raises DatabaseUnavailable."""
        found = await self.rows(sql, *values)
        return found[0] if found else None

    async def many(self, sql: str, values: list[tuple[Any, ...]]) -> None:
        """Run one statement for each row of values, all or none. Raises DatabaseUnavailable."""
        if self._pool is None:
            raise DatabaseUnavailable("not connected yet")
        with _translated():
            async with self._held(self._pool) as connection, connection.transaction():
                await connection.executemany(sql, values, timeout=60)

    async def insist(self, what: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Do something that is safe to repeat until PostgreSQL answers, for ever."""
        said = False
        while True:
            try:
                return await what()
            except DatabaseUnavailable as error:
                if not said:
                    self._log.warning("PostgreSQL is gone, trying again until it is back", cause=str(error))
                    said = True
                await self._clock.sleep(0.5)

    async def ping(self) -> str | None:
        """A round trip; the cause if it fails."""
        try:
            await self.rows("SELECT 1")
        except DatabaseUnavailable as error:
            return str(error)
        return None

    async def migrate(self) -> list[str]:
        """Run the migrations that are missing, one process at a time; their names."""
        with _translated():
            connection = await asyncpg.connect(self._settings.postgres_url, timeout=5)
            try:
                return await _migrate(connection)
            finally:
                connection.terminate()  # frees the lock too, without waiting for a server that may be gone

    async def lacking(self) -> list[str]:
        """The migrations that were not run. Raises DatabaseUnavailable."""
        if not (await self.rows("SELECT to_regclass('migration') IS NOT NULL AS made"))[0]["made"]:
            return [name for name, _ in migrations()]
        run = {row["name"] for row in await self.rows("SELECT name FROM migration")}
        return [name for name, _ in migrations() if name not in run]

    async def held(self, lock: int) -> bool:
        """Whether somebody holds an advisory lock. Raises DatabaseUnavailable."""
        sql = """SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
                 AND classid = 0 AND objid = $1
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS held"""
        return bool((await self.rows(sql, lock))[0]["held"])

    async def time(self) -> datetime:
        """The server's clock. Raises DatabaseUnavailable."""
        found: datetime = (await self.rows("SELECT clock_timestamp() AS now"))[0]["now"]
        return found

    async def await_schema(self) -> None:
        """Wait until entry has run every migration; says so once."""
        said = False
        while await self.insist(self.lacking):
            if not said:
                self._log.warning("waiting for entry to run the migrations")
                said = True
            await self._clock.sleep(0.3)

    @contextlib.asynccontextmanager
    async def exclusive(self, lock: int) -> AsyncIterator[Callable[[], Awaitable[None]] | None]:
        """Hold an advisory lock on a connection of its own while the block runs; None if another has it.

        Yields a check that raises DatabaseUnavailable once the connection, and so the lock, is lost. It is to be made
        every few seconds: of a holder that was cut off without a word the server would know nothing for hours.
        """
        url, silent_ms = self._settings.postgres_url, str(int(self.SILENT_S * 1000))
        silent = {"idle_session_timeout": silent_ms}
        with _translated():
            connection = await asyncpg.connect(url, timeout=5, command_timeout=self.COMMAND_S, server_settings=silent)
        try:
            with _translated():
                got = await connection.fetchval("SELECT pg_try_advisory_lock($1)", lock)

            async def check() -> None:
                with _translated():
                    await connection.fetchval("SELECT 1")

            yield check if got else None
        finally:
            connection.terminate()  # also frees the lock, without waiting for a server that may be gone


async def _migrate(connection: asyncpg.Connection[Any]) -> list[str]:
    await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS migration (name text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())"
    )
    standing = {row["name"] for row in await connection.fetch("SELECT name FROM migration")}
    done = []
    for name, sql in migrations():
        if name not in standing:
            async with connection.transaction():
                await connection.execute(sql)
                await connection.execute("INSERT INTO migration (name) VALUES ($1)", name)
            done.append(name)
    return done


def migrations() -> list[tuple[str, str]]:
    """(name, SQL) of every migration, in order."""
    folder = files("cuscuta.db") / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(name, (folder / name).read_text("utf-8")) for name in names]


@contextlib.contextmanager
def _translated() -> Any:
    try:
        yield
    except _GONE as error:
        raise DatabaseUnavailable(f"{type(error).__name__}: {error}") from error
