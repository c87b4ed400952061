"""Records what stands on the bus while a job runs: `python -m tests.support.record_job FILE`.

Run by a version when it is released; later versions must finish that job (tests/contract/test_upgrade.py).
"""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

from cuscuta.broker.translation import NOT_FOUND
from cuscuta.errors import BrokerRefused
from cuscuta.model import Essential, JobStatus, JobTag, Queue
from cuscuta.seal import sealed
from cuscuta.spans import Span
from cuscuta.uids import new_uid
from tests.support.alone import alone
from tests.support.house import House

ITEMS = 40
STREAMS = ("KV_cuscuta_catalogues", "KV_cuscuta_tags", "KV_cuscuta_active", "KV_cuscuta_results", "CUSCUTA_WORK")
_OURS = ("name", "durable_name", "deliver_policy", "ack_policy", "ack_wait", "max_deliver", "filter_subject",
         "replay_policy", "max_waiting", "max_ack_pending", "metadata", "description")  # fmt: skip


async def messages(h: House, stream: str) -> list[dict[str, Any]]:
    """All messages of a stream, oldest first."""
    bus, found = await h.bus(), []
    last = (await bus.broker.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
    for sequence in range(1, last + 1):
        try:
            message = (await bus.broker.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence}))["message"]
        except BrokerRefused as error:
            if error.code not in NOT_FOUND:
                raise
            continue
        headers = base64.b64decode(message.get("hdrs", "")).decode()
        pairs = [line.split(": ", 1) for line in headers.split("\r\n")[1:] if ": " in line]
        kept = {name: value for name, value in pairs if not name.startswith("Nats-")}
        data = base64.b64decode(message.get("data", "")).decode()
        found.append({"subject": message["subject"], "headers": kept, "data": data})
    return found


async def record(h: House) -> dict[str, Any]:
    """A lane of two, the first of which was begun by a worker that is no more, and one job that was only accepted."""
    await h.upstream(accounts=1, latency_ms=100)
    entry = await h.entry()
    await h.accounts(1)
    await h.catalogue(ITEMS)
    worker = await h.worker(seats="1")
    await h.seats(1)
    uids = [await h.submit(target, key="lane", priority="high") for target in ("player 1", "player 2")]
    await h.done(uids[0], 12)
    worker.kill()
    entry.kill()
    uids.append(await _accepted(h))
    bus = await h.bus()
    name = f"job-{uids[0]}"
    config = (await bus.broker.api(f"CONSUMER.INFO.CUSCUTA_WORK.{name}"))["config"]
    return {
        "jobs": dict(zip(("player 1", "player 2", "player 3"), uids, strict=True)),
        "consumers": {name: {key: config[key] for key in _OURS if key in config}},
        "streams": {stream: await messages(h, stream) for stream in STREAMS},
    }


async def _accepted(h: House) -> str:
    """What an entry leaves that dies right after it has written the tag."""
    bus = await h.bus()
    songs = await bus.catalogues.resolve("songs")
    assert songs is not None
    now = bus.clock.wall()
    uid = new_uid(now)
    essential = Essential("player 3", songs.hash, "songs", Span(0, ITEMS))
    essential = sealed(bus.settings.seal_keys, uid, essential, [uid])
    assert await bus.tags.create(JobTag(uid, JobStatus.QUEUEING, essential, Queue(now), run_ids=[uid]))
    return uid


async def _main(file: Path) -> None:
    async with alone() as h:
        file.write_text(json.dumps(await record(h), indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
