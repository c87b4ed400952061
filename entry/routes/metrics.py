"""Everything measured in this replica, for Prometheus."""

from litestar import Response, get

from cuscuta import telemetry
from cuscuta.errors import InputError
from entry import access
from entry.problems import REFUSALS


@get("/metrics", opt=access.READ, tags=["health"], summary="Metrics for Prometheus", responses=REFUSALS)
async def show_metrics() -> Response[bytes]:
    """This replica's metrics in Prometheus' text format; docs/telemetry.md says what each one means."""
    try:
        body, kind = telemetry.exposition()
    except LookupError as error:
        raise InputError("OTEL_METRICS_EXPORTER", str(error), "Add prometheus to it.", 404) from None
    return Response(body, media_type=kind)
