"""taskiq with NATS JetStream: pull consumers, results in an object store."""

import os
from typing import Any

from taskiq import TaskiqEvents, TaskiqState
from taskiq_nats import NATSObjectStoreResultBackend, PullBasedJetStreamBroker

from tests.bench.peers.work import Poller

NATS = os.environ["PEER_NATS"]
broker = PullBasedJetStreamBroker(servers=[NATS], pull_consume_batch=1).with_result_backend(
    NATSObjectStoreResultBackend(servers=[NATS])
)


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def startup(state: TaskiqState) -> None:
    """Log in."""
    state.poller = Poller()


@broker.task
async def poll(target: str, items: list[str]) -> list[Any]:
    """One task."""
    values: list[Any] = await broker.state.poller.poll(target, items)
    return values
