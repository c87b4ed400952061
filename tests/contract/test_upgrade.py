"""A rolling upgrade: what an earlier version left on the bus in the middle of its work is finished by this one."""

import json
from pathlib import Path

import pytest

from cuscuta.broker.assets import ensure
from tests.conftest import MakeHouse
from tests.support import checks

RUNNING = Path(__file__).parent / "running"


@pytest.mark.parametrize("path", sorted(RUNNING.glob("*.json")), ids=lambda path: path.stem)
async def test_a_job_begun_by_an_earlier_version_is_finished(make_house: MakeHouse, path: Path) -> None:
    """`<version>.json`, made by tests/support/record_job.py: a begun job, the next of its lane, one in no queue yet."""
    found = json.loads(path.read_text())
    h = await make_house()
    bus = await h.bus()
    await ensure(bus.broker, bus.settings)
    for stream, messages in found["streams"].items():
        assert messages, stream
        for message in messages:
            await bus.broker.publish(message["subject"], message["data"].encode(), message["headers"] or None)
    for name, config in found["consumers"].items():
        await bus.broker.api(
            f"CONSUMER.DURABLE.CREATE.CUSCUTA_WORK.{name}", {"stream_name": "CUSCUTA_WORK", "config": config}
        )
    first = found["jobs"]["player 1"]
    stored = sum(span.size for span in await bus.results.stored(first))
    assert 0 < stored < 40
    await h.upstream(accounts=2, latency_ms=5)
    await h.entry()
    await h.reaper()
    await h.accounts(2)
    await h.worker(seats="2")
    items = [f"song-{n}" for n in range(40)]
    for target, uid in found["jobs"].items():
        await h.ended(uid)
        await checks.complete_values(h, uid, target, items)
    await checks.nothing_left(h)
    assert sum((await checks.polls(h, "player 1")).values()) <= 40 - stored  # what was stored is not asked again
    calls = (await h.world())["calls"]
    last = max(call[3] for call in calls if call[1] == "player 1")
    assert last <= min(call[3] for call in calls if call[1] == "player 2")  # its lane
