"""Admission in one replica whose queue is kept full."""

import asyncio
from datetime import UTC, datetime

import pytest

from cuscuta import limits, subjects
from cuscuta.broker import Bus
from cuscuta.broker.projection import Projection
from cuscuta.broker.submit import Offer, queue_it, submit
from cuscuta.logs import get
from cuscuta.model import ActiveJob, Announcement, Essential, Item, Priority
from cuscuta.spans import Span
from cuscuta.uids import new_uid
from entry.admission import Admission
from tests.support.wait import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("bus", [200], indirect=True)
async def test_a_job_taken_past_the_queue_does_not_wait_until_it_is_empty(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken while nothing waits, in the moment before a look; then others fill the queue."""
    songs = await bus.catalogues.put([Item(f"song-{n}") for n in range(10)])
    admission = Admission(bus, bus.settings, get("test"), Projection(bus.tag_bucket, bus.clock, get("test"), 600))
    looking, go, active_jobs = asyncio.Event(), asyncio.Event(), bus.active_jobs

    async def held_up() -> list[ActiveJob]:
        looking.set()
        await go.wait()
        return await active_jobs()

    async def job(offer: Offer) -> str:
        uid = new_uid(NOW)
        await submit(bus, uid, Essential("t", songs.hash, "songs", Span(0, 10)), offer=offer)
        return uid

    async def admitted(uids: list[str]) -> list[datetime]:
        tags = [await bus.tags.get(uid) for uid in uids]
        times = [tag.queue.admitted_at for tag in tags if tag and tag.queue.admitted_at]
        return times if len(times) == len(uids) else []

    async with asyncio.TaskGroup() as group:
        running = group.create_task(admission.run(group.create_task))
        monkeypatch.setattr(bus, "active_jobs", held_up)
        go.set()
        await asyncio.wait_for(looking.wait(), 10)  # the first look, which finds nothing
        looking.clear()
        go.clear()
        await asyncio.wait_for(looking.wait(), 10)
        first = await job(admission.offer)
        assert not await bus.work.subjects(subjects.ADMITS)
        others = [await job(queue_it) for _ in range(40)]
        admission.heard(Announcement("submitted", others[0], queue=(Priority.NORMAL, "")))
        go.set()
        times = await until(lambda: admitted(others), 30, "all are admitted")
        (its_time,) = await admitted([first])
        admission.halt()
        await running
    assert sum(time < its_time for time in times) <= limits.OFFERS
