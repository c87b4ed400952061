"""Real servers for every test process: one PostgreSQL for all its tests, one nats-server for each test."""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import hypothesis
import pytest

from cuscuta.embedded.postgres import Postgres
from tests.support.house import House

hypothesis.settings.register_profile("cuscuta", deadline=None)  # machines differ; speed is for benchmarks
hypothesis.settings.load_profile("cuscuta")

MakeHouse = Callable[..., Awaitable[House]]


@pytest.fixture(scope="session")
def base() -> Iterator[Path]:
    """A short folder that PostgreSQL's user can reach."""
    with tempfile.TemporaryDirectory(prefix="cuscuta-test-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def postgres(base: Path) -> Iterator[Postgres]:
    server = Postgres(base / "postgres", fast=True)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def folder(base: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=base))


@pytest.fixture
async def make_house(folder: Path, postgres: Postgres) -> AsyncIterator[MakeHouse]:
    """Builds a deployment; its processes end with the test."""
    async with AsyncExitStack() as stack:

        async def make(**env: str) -> House:
            return await stack.enter_async_context(House(folder, postgres, **env))

        yield make
