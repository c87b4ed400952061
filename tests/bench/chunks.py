"""2,000 chunks of one no-op item each, submit to settled, one worker process; beside a raw loop on the same server."""

import asyncio
import base64
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import nats
from nats.aio.msg import Msg

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import completed, house, seconds
from tests.support import users
from tests.support.checks import nothing_left
from tests.support.house import House

CHUNKS = 2_000
IN_FLIGHT = 256


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    rounds = 1 if quick else rounds or 5
    ours, raw = [], []
    async with house(folder, postgres, "chunks", upstream="noop", upstream_url="") as h:
        await h.entry()
        await h.reaper()
        await h.worker(seats="4")
        await h.accounts(4)
        await h.catalogue(CHUNKS)
        await h.seats(4)
        size = 0
        for n in range(rounds + 1):  # the first round warms up and is not counted
            uid = await h.submit(f"target {n}", chunk_items=1)
            job = await completed(h, uid)
            assert job["chunks"] == CHUNKS, job["chunks"]
            if n == 0:
                size = len(await _one_result(h, uid))
            await nothing_left(h)  # what the job leaves to be cleared away is not the raw loop's
            rate = await _raw_loop(h, size)
            if n:
                ours.append(CHUNKS / seconds(job))
                raw.append(rate)
    return {
        "bench": "chunks",
        "chunks": CHUNKS,
        "rounds": rounds,
        "chunks_per_s": round(statistics.median(ours)),
        "raw_per_s": round(statistics.median(raw)),
        "share_of_raw": round(statistics.median(a / b for a, b in zip(ours, raw, strict=True)), 3),
        "all": [round(v) for v in ours],
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
    }


async def _one_result(h: House, uid: str) -> bytes:
    bus = await h.bus()
    answer = await bus.broker.api(
        "STREAM.MSG.GET.KV_cuscuta_results", {"seq": 1, "next_by_subj": f"$KV.cuscuta_results.{uid}.>"}
    )
    return base64.b64decode(answer["message"]["data"])


async def _raw_loop(h: House, size: int) -> float:
    """Pull by callback, write a result of the same size, acknowledge: nothing else. Chunks a second."""
    nc = await nats.connect(h.nats.url, user="tests", password=users.password("tests"))
    js = nc.jetstream()
    for stream, subject, retention in (("RAW", "raw.chunk.>", "workqueue"), ("RAWOUT", "raw.out.>", "limits")):
        await js.add_stream(name=stream, subjects=[subject], retention=retention)
    await js.add_consumer("RAW", durable_name="raw", ack_policy="explicit", max_ack_pending=50_000)
    await asyncio.gather(*(js.publish(f"raw.chunk.{n}", b"x" * 120) for n in range(CHUNKS)))
    done, left = asyncio.Event(), CHUNKS
    body = b"r" * size
    waiting: dict[str, str] = {}
    inbox = nc.new_inbox()

    async def stored(msg: Msg) -> None:
        nonlocal left
        await nc.publish(waiting.pop(msg.subject), b"+ACK")
        left -= 1
        if not left:
            done.set()

    async def chunk(msg: Msg) -> None:
        if msg.reply:
            answer = f"{inbox}.{msg.subject.rsplit('.', 1)[1]}"
            waiting[answer] = msg.reply
            await nc.publish(f"raw.out.{msg.subject}", body, reply=answer)

    await nc.subscribe(f"{inbox}.*", cb=stored)
    pulls = nc.new_inbox()
    await nc.subscribe(pulls, cb=chunk)
    began = time.perf_counter()
    for _ in range(-(-CHUNKS // IN_FLIGHT)):
        request: dict[str, Any] = {"batch": IN_FLIGHT, "expires": 5_000_000_000}
        await nc.publish("$JS.API.CONSUMER.MSG.NEXT.RAW.raw", json.dumps(request).encode(), reply=pulls)
    async with asyncio.timeout(60):
        await done.wait()
    took = time.perf_counter() - began
    for stream in ("RAW", "RAWOUT"):
        await js.delete_stream(stream)
    await nc.close()
    return CHUNKS / took
