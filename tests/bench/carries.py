"""What one nats-server carries: pulling beside many consumers, writing results, and what a job leaves on disk."""

import asyncio
import json
import statistics
import time
from pathlib import Path
from typing import Any

from cuscuta.broker import Bus
from cuscuta.embedded.postgres import Postgres
from cuscuta.model import ChunkBody
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from cuscuta.uids import new_uid
from tests.bench.common import completed, house
from tests.support.house import House

CONSUMERS = (1, 100, 400, 900)
CHUNKS, AT_ONCE, JOBS = 2_000, 64, 20


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    rounds = 1 if quick else rounds or 5
    sizes = CONSUMERS[:2] if quick else CONSUMERS
    pulls: dict[int, list[float]] = {n: [] for n in sizes}
    writes: list[float] = []
    async with house(folder, postgres, "carries", upstream="noop", max_active_jobs="1000") as h:
        entry = await h.entry()
        await h.accounts(4)
        await h.catalogue(100)
        bus = await h.bus()
        entry.stop()  # nobody is to tidy up what is made here
        for _ in range(rounds):
            await _clear(bus)
            made = 0
            for n in sizes:  # interleaved: each round has all
                while made < n:
                    await bus.work.make_job_consumer(new_uid(bus.clock.wall()), "x")
                    made += 1
                pulls[n].append(await _pull(bus))
            writes.append(await _write(bus))
        await _clear(bus)
        stored = await _job_bytes(h)
    alone = pulls[1]
    return {
        "bench": "carries",
        "rounds": rounds,
        "pull_and_ack_per_s": {n: round(statistics.median(found)) for n, found in pulls.items()},
        "beside_over_alone": {
            n: round(statistics.median(a / b for a, b in zip(found, alone, strict=True)), 3)
            for n, found in pulls.items()
        },
        "results_written_per_s": round(statistics.median(writes)),
        **stored,
    }


async def _clear(bus: Bus) -> None:
    for uid in await bus.work.job_consumers():
        await bus.work.drop_job_consumer(uid)


async def _pull(bus: Bus) -> float:
    """Chunks a second through one more consumer: pulled and acknowledged, nothing else."""
    uid = new_uid(bus.clock.wall())
    await bus.work.make_job_consumer(uid, "x")
    names = [ChunkName(uid, Span(n, n + 1), 1) for n in range(CHUNKS)]
    await bus.work.publish_chunks(names, ChunkBody(uid, "c", "x"))
    nc, left, done = bus.broker.nc, CHUNKS, asyncio.Event()

    async def chunk(msg: Any) -> None:
        nonlocal left
        if msg.reply and msg.reply.startswith("$JS.ACK"):
            await nc.publish(msg.reply, b"+ACK")
            left -= 1
            if not left:
                done.set()

    inbox = nc.new_inbox()
    sub = await nc.subscribe(inbox, cb=chunk)
    began = time.perf_counter()
    request = f'{{"batch": {CHUNKS}, "expires": 30000000000}}'.encode()
    await nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{bus.work.stream}.job-{uid}", request, reply=inbox)
    async with asyncio.timeout(60):
        await done.wait()
        while await bus.work.next_chunk(uid):  # until the last acknowledgement has counted
            pass
    took = time.perf_counter() - began
    await sub.unsubscribe()
    await bus.work.drop_job_consumer(uid)
    return CHUNKS / took


async def _write(bus: Bus) -> float:
    """Results of 200 bytes a second, so many at once."""
    uid, numbers = new_uid(bus.clock.wall()), iter(range(CHUNKS))

    async def client() -> None:
        for n in numbers:
            await bus.broker.publish(f"$KV.cuscuta_results.{uid}.{n}.{n + 1}", b"x" * 200)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return CHUNKS / (time.perf_counter() - began)


async def _job_bytes(h: House) -> dict[str, float]:
    """What a job of 100 items leaves once it has ended, and the messages that it took."""
    await h.entry()
    await h.reaper()
    await h.worker(seats="4")
    await h.seats(4)
    await completed(h, await h.submit("warm up"))
    before, began = await _state(h)
    for n in range(JOBS):
        await completed(h, await h.submit(f"player {n}", key=None))
    after, ended = await _state(h)
    return {
        "job_items": 100,
        "stored_bytes_per_job": round((after - before) / JOBS),
        "messages_to_nats_per_job": round((ended - began) / JOBS),
    }


async def _state(h: House) -> tuple[int, int]:
    bus = await h.bus()
    streams = ("KV_cuscuta_tags", "KV_cuscuta_results", "CUSCUTA_EVENTS", "CUSCUTA_WORK", "KV_cuscuta_active")
    size = 0
    for stream in streams:
        size += int((await bus.broker.api(f"STREAM.INFO.{stream}"))["state"]["bytes"])
    ports = json.loads(next(h.nats.folder.glob("*.ports")).read_text())
    return size, int((await h.http.get(f"{ports['monitoring'][0]}/varz")).json()["in_msgs"])
