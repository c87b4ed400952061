"""OpenTelemetry: traces where the standard `OTEL_*` environment says so, metrics at /metrics of every part.

A trace crosses NATS in the header `traceparent`. What was handed on (a gift, a hedge, what a stopping worker put back)
names in `cuscuta-link` the span that handed it on. Baggage is neither read nor sent.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.trace import INVALID_SPAN, Link, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TRACEPARENT, LINK, LINK_WHY = "traceparent", "cuscuta-link", "cuscuta-why"
FLUSH_S = 3.0  # a collector that hangs must not keep a process from its end
_propagator = TraceContextTextMapPropagator()
_state: dict[str, Any] = {"traces": None, "metrics": None}


def set_up(part: str, version: str, instance: str, deployment: str) -> None:
    """Begin to measure, and to trace if the environment says where to. Raises ValueError with what is wrong in it."""
    propagate.set_global_textmap(_propagator)
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")  # the stable names of HTTP's attributes
    # The SDK takes some MB of every process, so each half of it is loaded only where it is used.
    from opentelemetry.sdk.resources import Resource

    known = {"service.instance.id": instance, "service.version": version, "cuscuta.deployment": deployment}
    if not os.environ.get("OTEL_SERVICE_NAME"):
        known["service.name"] = part
    resource = Resource.create(known)
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    if "otlp" in _exporters("TRACES", "otlp" if _given("TRACES", "ENDPOINT")[1] else "none"):
        _trace(resource)
    wanted = _exporters("METRICS", "prometheus,otlp" if _given("METRICS", "ENDPOINT")[1] else "prometheus")
    if wanted - {"none"}:
        _measure(resource, wanted)


def _given(signal: str, what: str) -> tuple[str, str]:
    """A variable's name and value: the one of this signal if it is set, else the one of all."""
    own, common = f"OTEL_EXPORTER_OTLP_{signal}_{what}", f"OTEL_EXPORTER_OTLP_{what}"
    name = own if os.environ.get(own) else common
    return name, os.environ.get(name, "")


def _exporters(signal: str, default: str) -> set[str]:
    """What `OTEL_<signal>_EXPORTER` names. Raises ValueError for what we cannot do."""
    name = f"OTEL_{signal}_EXPORTER"
    wanted = {part.strip() for part in (os.environ.get(name) or default).split(",")}
    known = {"otlp", "none"} | ({"prometheus"} if signal == "METRICS" else set())
    if unknown := wanted - known:
        raise ValueError(f"{name}: {', '.join(sorted(unknown))} is not known; use {', '.join(sorted(known))}")
    if "otlp" in wanted:
        given, protocol = _given(signal, "PROTOCOL")
        if protocol not in ("", "http/protobuf"):
            raise ValueError(f"{given}: {protocol} is not spoken here; use http/protobuf, port 4318")
        given, url = _given(signal, "ENDPOINT")
        if url and not url.startswith(("http://", "https://")):
            raise ValueError(f"{given}: begins with neither http:// nor https://; add it")
    return wanted


def _trace(resource: Any) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # its sampler is of the environment
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    _state["traces"] = provider


def _measure(resource: Any, wanted: set[str]) -> None:
    from opentelemetry.sdk.metrics import MeterProvider

    readers: list[Any] = []
    if "prometheus" in wanted:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader

        readers.append(PrometheusMetricReader(scope_info_enabled=False))
    if "otlp" in wanted:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    provider = MeterProvider(resource=resource, metric_readers=readers, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    _state["metrics"] = provider
    _state["prometheus"] = "prometheus" in wanted


def shut_down() -> None:
    """Send what is gathered, for a short while at the most."""

    def flush() -> None:
        for kind in ("traces", "metrics"):
            if _state[kind] is not None:
                with contextlib.suppress(Exception):  # whatever an exporter raises, the process ends
                    _state[kind].shutdown()

    if _state["traces"] is not None or _state["metrics"] is not None:
        flushing = threading.Thread(target=flush, daemon=True)
        flushing.start()
        flushing.join(FLUSH_S)


def tracing() -> bool:
    """Whether spans are made at all."""
    return _state["traces"] is not None


def measuring() -> bool:
    """Whether anything is measured."""
    return _state["metrics"] is not None


def exposition() -> tuple[bytes, str]:
    """Everything measured in this process as Prometheus reads it, and its content type. Raises LookupError if off."""
    if not _state.get("prometheus"):
        raise LookupError("metrics are off: OTEL_METRICS_EXPORTER does not name prometheus")
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    return generate_latest(), CONTENT_TYPE_LATEST


# --- spans -----------------------------------------------------------------------------------------------------------


def traceparent() -> str | None:
    """The current span as a W3C traceparent, None if nothing is traced."""
    if not tracing():
        return None
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get(TRACEPARENT)


def identity() -> tuple[str, str] | None:
    """Trace and span id of the current span, as logs carry them."""
    if not tracing():
        return None
    current = trace.get_current_span().get_span_context()
    return (f"{current.trace_id:032x}", f"{current.span_id:016x}") if current.is_valid else None


def link(to: str | None, why: str) -> list[Link]:
    """A link to a span given by its traceparent; none if there is none."""
    if not to or not tracing():
        return []
    found = trace.get_current_span(_propagator.extract({TRACEPARENT: to})).get_span_context()
    return [Link(found, {"cuscuta.link": why})] if found.is_valid else []


def handed_on(headers: Mapping[str, str]) -> list[Link]:
    """The link that a message carries to whoever handed it on."""
    return link(headers.get(LINK), headers.get(LINK_WHY, "handed on"))


def handing_on(parent: str | None, by: str | None, why: str) -> dict[str, str] | None:
    """Headers of a message that goes on with a job's trace and names who handed it on; None if nothing is traced."""
    if not parent:
        return None
    return {TRACEPARENT: parent, **({LINK: by, LINK_WHY: why} if by else {})}


@contextmanager
def span(
    name: str,
    parent: str | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    links: Iterable[Link] = (),
    attributes: Mapping[str, Any] | None = None,
) -> Iterator[trace.Span]:
    """A span around a step; `parent` is a traceparent that came with a message."""
    if not tracing():
        yield INVALID_SPAN
        return
    above = _propagator.extract({TRACEPARENT: parent}) if parent else None
    tracer = trace.get_tracer("cuscuta")
    current = tracer.start_span(name, above, kind, dict(attributes or {}), list(links))
    token = context.attach(trace.set_span_in_context(current))
    try:
        yield current
    except Exception as error:
        # An exception's text may hold what an upstream or an adapter put into it; only its type is exported.
        current.set_attribute("error.type", type(error).__name__)
        current.add_event("exception", {"exception.type": type(error).__qualname__})
        current.set_status(trace.StatusCode.ERROR, type(error).__name__)
        raise
    finally:
        context.detach(token)
        current.end()


@contextmanager
def below(parent: str | None) -> Iterator[None]:
    """What is done and logged inside belongs to a span that has ended; `parent` is its traceparent."""
    if not parent or not tracing():
        yield
        return
    token = context.attach(_propagator.extract({TRACEPARENT: parent}))
    try:
        yield
    finally:
        context.detach(token)


def begin(name: str, parent: str | None, links: Iterable[Link] = ()) -> trace.Span:
    """A span beside the current one, which whoever began it ends."""
    if not tracing():
        return INVALID_SPAN
    above = _propagator.extract({TRACEPARENT: parent}) if parent else None
    return trace.get_tracer("cuscuta").start_span(name, above, links=list(links))
