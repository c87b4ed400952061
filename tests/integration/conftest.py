"""A broker on its own nats-server, with every asset made."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cuscuta.broker import Bus
from cuscuta.broker.assets import ensure
from cuscuta.clock import SystemClock
from cuscuta.embedded.nats import Nats
from cuscuta.logs import get
from cuscuta.settings import Settings


@pytest.fixture
def nats(folder: Path) -> Nats:
    server = Nats(folder / "nats")
    server.start()
    return server


@pytest.fixture
async def bus(nats: Nats, request: pytest.FixtureRequest) -> AsyncIterator[Bus]:
    settings = Settings(nats_url=nats.url, max_active_jobs=getattr(request, "param", 3))
    bus = Bus(settings, SystemClock(), get("test"), "test")
    await bus.broker.connect()
    await ensure(bus.broker, settings)
    yield bus
    await bus.broker.close()
    nats.kill()
