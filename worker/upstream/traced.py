"""A span around a request to the upstream, by HTTP's semantic conventions.

An adapter of your own may use it, or OpenTelemetry's instrumentation of its client: both hang below the chunk's span.
"""

from contextlib import AbstractContextManager, nullcontext

from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, get_current_span
from yarl import URL

from cuscuta import telemetry


def call(method: str, template: str, url: URL, step: str) -> AbstractContextManager[Span]:
    """`template`: the path with its placeholders. Of the address only the server is named: the rest may be secret."""
    if not get_current_span().get_span_context().is_valid:  # for no job: an account that tidies up after itself
        return nullcontext(INVALID_SPAN)
    attributes = {
        "http.request.method": method,
        "server.address": url.host or "",
        "server.port": url.port or 0,
        "url.scheme": url.scheme,
        "url.template": template,
        "cuscuta.step": step,
    }
    return telemetry.span(f"{method} {template}", kind=SpanKind.CLIENT, attributes=attributes)
