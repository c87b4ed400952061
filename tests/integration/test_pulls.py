"""The pull loop and the projection against a real nats-server, also across its restart."""

import asyncio
from datetime import UTC, datetime

from cuscuta import subjects
from cuscuta.broker import Bus, Delivery, Puller
from cuscuta.broker.projection import Projection
from cuscuta.clock import SystemClock
from cuscuta.embedded.nats import Nats
from cuscuta.logs import get
from cuscuta.model import ChunkBody
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from cuscuta.uids import new_uid
from tests.support.tags import UID, make_tag
from tests.support.wait import until


async def _true(value: object) -> bool:
    return bool(value)


async def test_a_pull_takes_what_is_there_and_waits_for_what_is_not(bus: Bus) -> None:
    await bus.work.make_job_consumer(UID, "t")
    consumer = subjects.job_consumer(UID)
    strays: list[Delivery] = []
    puller = Puller(bus.broker, strays.append)
    await puller.start()
    empty = await puller.take(bus.work.stream, consumer, 5)
    assert (empty.deliveries, empty.gone) == ([], False)
    await bus.work.publish_chunks([ChunkName(UID, Span(n, n + 1), 1) for n in range(7)], ChunkBody(UID, "c", "t"))
    first = (await puller.take(bus.work.stream, consumer, 5)).deliveries
    rest = (await puller.take(bus.work.stream, consumer, 5)).deliveries
    assert [d.delivered for d in first + rest] == [1] * 7
    assert [d.pending for d in first + rest] == [6, 5, 4, 3, 2, 1, 0]
    for delivery in first + rest:
        await delivery.ack_sync()
    assert await bus.work.next_chunk(UID) is None
    wake = asyncio.Event()
    waiting = asyncio.ensure_future(puller.wait(bus.work.stream, consumer, 10, wake))
    await asyncio.wait({waiting}, timeout=0.3)
    assert not waiting.done()
    await bus.work.publish_chunks([ChunkName(UID, Span(9, 10), 1)], ChunkBody(UID, "c", "t"))
    assert len((await asyncio.wait_for(waiting, 2)).deliveries) == 1
    waiting = asyncio.ensure_future(puller.wait(bus.work.stream, consumer, 10, wake))
    await asyncio.wait({waiting}, timeout=0.2)
    wake.set()
    woken = await asyncio.wait_for(waiting, 2)
    assert (woken.deliveries, woken.gone) == ([], False)
    await bus.work.publish_chunks([ChunkName(UID, Span(11, 12), 1)], ChunkBody(UID, "c", "t"))
    await until(lambda: _true(strays), 5, "the late message went astray")
    assert strays[0].subject.endswith("11-12.1")
    await puller.stop()


async def test_a_pull_on_a_consumer_that_is_gone_says_so(bus: Bus) -> None:
    puller = Puller(bus.broker, lambda delivery: None)
    await puller.start()
    assert (await puller.take(bus.work.stream, "job-none", 1)).gone
    await bus.work.make_job_consumer(UID, "t")
    waiting = asyncio.ensure_future(puller.wait(bus.work.stream, subjects.job_consumer(UID), 30, asyncio.Event()))
    await asyncio.wait({waiting}, timeout=0.3)
    await bus.work.drop_job_consumer(UID)
    assert (await asyncio.wait_for(waiting, 3)).gone
    await puller.stop()


async def test_an_open_pull_notices_that_the_server_restarted(bus: Bus, nats: Nats) -> None:
    await bus.work.make_job_consumer(UID, "t")
    puller = Puller(bus.broker, lambda delivery: None)
    await puller.start()
    consumer = subjects.job_consumer(UID)
    waiting = asyncio.ensure_future(puller.wait(bus.work.stream, consumer, 30, asyncio.Event()))
    await asyncio.wait({waiting}, timeout=0.3)
    nats.kill()
    nats.start()
    assert (await asyncio.wait_for(waiting, 5)).gone  # not after its 30 s
    await asyncio.wait_for(bus.broker.connected.wait(), 10)
    await bus.broker.insist(lambda: bus.work.publish_chunks([ChunkName(UID, Span(0, 1), 1)], ChunkBody(UID, "c", "t")))
    pulled = await puller.wait(bus.work.stream, consumer, 5, asyncio.Event())
    assert len(pulled.deliveries) == 1
    await puller.stop()


async def test_the_projection_follows_without_a_watch(bus: Bus, nats: Nats) -> None:
    uids = [new_uid(datetime(2026, 1, 1, 0, 0, n % 60, tzinfo=UTC)) for n in range(50)]
    for uid in uids[:40]:
        await bus.tags.create(make_tag(uid))
    projection = Projection(bus.tag_bucket, SystemClock(), get("test"), retention_s=1e9)
    following = asyncio.ensure_future(projection.follow())
    await asyncio.wait_for(projection.caught_up.wait(), 5)
    assert len(projection) == 40
    nats.kill()
    nats.start()
    await asyncio.wait_for(bus.broker.connected.wait(), 10)
    for uid in uids[40:]:
        await bus.broker.insist(lambda uid=uid: bus.tags.create(make_tag(uid)))  # type: ignore[misc]
    await until(lambda: _true(len(projection) == 50), 5, "all 50 are in")
    following.cancel()
    assert len(projection.open_jobs()) == 50
