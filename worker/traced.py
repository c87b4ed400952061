"""What a stretch of chunks leaves in traces and metrics."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from opentelemetry.trace import Link, SpanKind, get_current_span
from opentelemetry.trace import Span as TraceSpan

from cuscuta import instruments, subjects, telemetry
from cuscuta.clock import Clock
from cuscuta.model import ChunkResult
from cuscuta.spans import Span
from worker import pieces
from worker.account import LeaseLost
from worker.jobs import Jobs
from worker.pieces import Piece


def above(jobs: Jobs, piece: Piece) -> str | None:
    """What a chunk hangs below: its message says it, or, where there are very many of them, the active entry."""
    if carried := piece.hold.delivery.headers.get(telemetry.TRACEPARENT):
        return carried
    job = jobs.get(piece.name.uid)
    return job.active.traceparent if job else None


@contextmanager
def stretch(held: list[Piece], jobs: Jobs, clock: Clock) -> Iterator[str | None]:
    """Around the work on some chunks of one job: the span's traceparent, with links to whoever had them before."""
    first, outcome, began = held[0], "stored", clock.monotonic()
    if again := sum(piece.hold.delivery.delivered > 1 for piece in held):
        instruments.REDELIVERIES.add(again)
    try:
        with telemetry.span(
            f"process {subjects.work_stream()}",
            above(jobs, first),
            kind=SpanKind.CONSUMER,
            links=_links(held) if telemetry.tracing() else (),
            attributes=_attributes(held) if telemetry.tracing() else None,
        ):
            yield telemetry.traceparent()
    except BaseException as error:
        outcome = type(error).__name__
        if isinstance(error, LeaseLost):
            instruments.LEASES_LOST.add(1)
        raise
    finally:
        instruments.CHUNKS.add(len(held), {"cuscuta.outcome": outcome})
        instruments.CHUNK_DURATION.record(clock.monotonic() - began, {"cuscuta.outcome": outcome})


def write(uid: str, span: Span) -> AbstractContextManager[Any]:
    """Around the writing of some items' results."""
    attributes = {
        "messaging.system": "nats",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": subjects.RESULTS,
        "messaging.batch.message_count": 1,
        "cuscuta.job": uid,
        "cuscuta.span": str(span),
    }
    return telemetry.span(f"send {subjects.RESULTS}", kind=SpanKind.PRODUCER, attributes=attributes)


def stored(result: ChunkResult) -> None:
    """A result was written that was not there."""
    instruments.ITEMS.add(len(result.values) - len(result.errors), {"cuscuta.outcome": "value"})
    if result.errors:
        instruments.ITEMS.add(len(result.errors), {"cuscuta.outcome": "error"})


def ride(traceparent: str | None, uid: str) -> TraceSpan:
    """A job that takes part in another one's polls: a span in its own trace; each of the two links to the other."""
    instruments.RIDES.add(1)
    span = telemetry.begin("ride", traceparent, telemetry.link(telemetry.traceparent(), "rides on"))
    if span.is_recording():
        span.set_attribute("cuscuta.job", uid)
        get_current_span().add_link(span.get_span_context(), {"cuscuta.link": "ride"})
    return span


def _links(held: list[Piece]) -> list[Link]:
    """By whom chunks were handed on, and of one that comes again, who published it."""
    links = []
    for piece in held:
        delivery = piece.hold.delivery
        if telemetry.LINK in delivery.headers:
            links += telemetry.handed_on(delivery.headers)
        if delivery.delivered > 1:
            links += telemetry.link(delivery.headers.get(telemetry.TRACEPARENT), "redelivered")
    return links


def _attributes(held: list[Piece]) -> dict[str, str | int]:
    first = held[0]
    return {
        "messaging.system": "nats",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": subjects.work_stream(),
        "messaging.destination.subscription.name": subjects.job_consumer(first.name.uid),
        "messaging.batch.message_count": len(held),
        "messaging.message.id": str(first.hold.delivery.sequence),
        "cuscuta.job": first.name.uid,
        "cuscuta.span": str(pieces.whole(held)),
        "cuscuta.deliveries": first.hold.delivery.delivered,
    }
