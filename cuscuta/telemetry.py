"""OpenTelemetry, off unless the standard `OTEL_EXPORTER_OTLP_ENDPOINT` is set. Traces cross NATS in `traceparent`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_propagator = TraceContextTextMapPropagator()


def set_up(part: str, version: str) -> None:
    """Export traces of this process if the environment says where to."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return
    # The SDK and its exporter take 3 MB of every process, so they are loaded only where something is exported.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": part, "service.version": version}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def traceparent() -> str | None:
    """The current span as a W3C traceparent, None if nothing is traced."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get("traceparent")


@contextmanager
def span(name: str, parent: str | None = None, **attributes: str | int | float) -> Iterator[trace.Span]:
    """A span around a step; `parent` is a traceparent that came with a message."""
    context = _propagator.extract({"traceparent": parent}) if parent else None
    tracer = trace.get_tracer("cuscuta")
    # An exception's text may hold what an upstream or an adapter put into it; only its type is exported.
    with tracer.start_as_current_span(
        name, context=context, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except Exception as error:
            current.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise
