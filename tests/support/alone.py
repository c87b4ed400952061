"""A deployment for a script, beside no test runner: servers and folder of its own, gone afterwards."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.support.house import House


@asynccontextmanager
async def alone() -> AsyncIterator[House]:
    """A house with its own PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="cuscuta-", ignore_cleanup_errors=True) as name:
        base = Path(name)
        base.chmod(0o755)  # PostgreSQL's user must reach it
        postgres = Postgres(base / "postgres", fast=True)
        postgres.start()
        try:
            async with House(base / "house", postgres) as h:
                yield h
        finally:
            postgres.stop()
