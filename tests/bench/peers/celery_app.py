"""Celery with Redis as its documentation advises for long tasks: late acknowledgement, no prefetching."""

import asyncio
import os
from typing import Any

from celery import Celery

from tests.bench.peers.work import Poller

app = Celery("peers", broker=os.environ["PEER_REDIS"], backend=os.environ["PEER_REDIS"])
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)
_loop = asyncio.new_event_loop()
_pollers: list[Poller] = []


@app.task
def poll(target: str, items: list[str]) -> list[Any]:
    """One task."""
    if not _pollers:
        _pollers.append(Poller())
    return _loop.run_until_complete(_pollers[0].poll(target, items))
