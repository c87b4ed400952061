"""A real OpenTelemetry collector (Rotel) before a server that keeps what it exports."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import rotel
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cuscuta.embedded.postgres import free_port
from tests.support.process import Proc, clean_env
from tests.support.wait import until


class Link(NamedTuple):
    span: str
    trace: str
    why: str


class Span(NamedTuple):
    """A span as it was exported."""

    name: str
    service: str
    kind: int
    trace: str
    span: str
    parent: str
    attributes: dict[str, Any]
    links: list[Link]
    events: list[tuple[str, dict[str, Any]]]
    failed: bool


class Collected:
    """What has come out of the collector, and the environment that sends it there."""

    def __init__(self, endpoint: str) -> None:
        self.env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
        }
        self.spans: list[Span] = []
        self.metrics: dict[str, str] = {}  # unit by name
        self.raw = b""

    def named(self, *beginnings: str) -> list[Span]:
        return [span for span in self.spans if span.name.startswith(beginnings)]

    async def until(self, seen: Callable[[], bool], what: str) -> None:
        async def there() -> bool:
            return seen()

        await until(there, 30, f"the collector has {what}", 0.1)


def _values(attributes: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value") or "string_value") for a in attributes}


@asynccontextmanager
async def collector(*, keep: bool = True) -> AsyncIterator[Collected]:
    """`keep`: else it throws everything away, as a benchmark wants."""
    port, grpc = free_port(), free_port()
    got = Collected(f"http://127.0.0.1:{port}")

    async def traces(request: web.Request) -> web.Response:
        body = await request.read()
        got.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _values(resource.resource.attributes).get("service.name", "")
            for s in (s for scope in resource.scope_spans for s in scope.spans):
                links = [
                    Link(li.span_id.hex(), li.trace_id.hex(), _values(li.attributes).get("cuscuta.link", ""))
                    for li in s.links
                ]
                events = [(event.name, _values(event.attributes)) for event in s.events]
                ids = s.trace_id.hex(), s.span_id.hex(), s.parent_span_id.hex()
                failed = s.status.code == 2
                got.spans.append(Span(s.name, service, s.kind, *ids, _values(s.attributes), links, events, failed))
        return web.Response(content_type="application/x-protobuf")

    async def metrics(request: web.Request) -> web.Response:
        for resource in ExportMetricsServiceRequest.FromString(await request.read()).resource_metrics:
            for metric in (m for scope in resource.scope_metrics for m in scope.metrics):
                got.metrics[metric.name] = metric.unit
        return web.Response(content_type="application/x-protobuf")

    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/traces", traces)
    app.router.add_post("/v1/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    agent = Path(rotel.__file__).with_name("rotel-agent")
    with tempfile.TemporaryDirectory(prefix="cuscuta-collector-") as folder:
        argv = [
            str(agent), "start", "--otlp-http-endpoint", f"127.0.0.1:{port}",
            "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}",
            "--exporter", "otlp" if keep else "blackhole",
            "--otlp-exporter-protocol", "http", "--otlp-exporter-compression", "none",
            "--otlp-exporter-endpoint", f"http://127.0.0.1:{runner.addresses[0][1]}",
        ]  # fmt: skip
        proc = Proc("rotel", argv, clean_env(), Path(folder))
        try:
            await until(lambda: _listens(port, proc), 20, "the collector listens")
            yield got
        finally:
            await asyncio.to_thread(proc.stop)
            await runner.cleanup()


async def _listens(port: int, proc: Proc) -> bool:
    assert proc.running(), proc.text()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
