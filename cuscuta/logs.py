"""structlog set up once a process: JSON lines for machines, colours for a terminal. Secrets are masked by key."""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, cast

import structlog

from cuscuta import telemetry
from cuscuta.settings import Settings

Logger = structlog.typing.FilteringBoundLogger
_SECRET = re.compile(r"password|token|secret|authorization|api_key", re.I)


def _mask(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in event:
        if _SECRET.search(key):
            event[key] = "***"
    return event


def _trace(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if found := telemetry.identity():
        event["trace_id"], event["span_id"] = found
    return event


def set_up(settings: Settings, part: str) -> Logger:
    """Configure logging for a process and return the part's logger (`cuscuta.worker` and so on)."""
    console = settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty())
    # Never the frames' local variables, which both formats show by default: they hold passwords and tokens.
    renderer: Any = structlog.processors.JSONRenderer()
    if console:
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _trace,
        _mask,
    ]
    if not console:
        shared.append(
            structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
        )
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    return get(part)


def get(part: str) -> Logger:
    """A logger by its dotted name."""
    return cast(Logger, structlog.get_logger().bind(logger=part))
