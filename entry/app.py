"""The Litestar application: routes, limits, problem documents, OpenAPI."""

import re
from typing import Any

from litestar import Litestar, Request, Response, Router
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException, ValidationException
from litestar.middleware import DefineMiddleware
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import Scope

from cuscuta import __version__, limits, telemetry
from cuscuta.errors import BrokerRefused, BrokerUnavailable, DatabaseUnavailable, InputError
from entry import access, problems
from entry.context import Context, provide_context
from entry.routes import (
    accounts,
    catalogues,
    deployment,
    doctor,
    events,
    graph,
    health,
    jobs,
    metrics,
    page,
    queue,
    results,
    scaling,
    schedules,
    secrets,
    tokens,
    workers,
)

ROUTES = [
    jobs.submit_job,
    jobs.list_jobs,
    jobs.show_job,
    jobs.cancel_job,
    jobs.cancel_jobs,
    jobs.retry_job,
    graph.show_graph,
    schedules.make_schedule,
    schedules.list_schedules,
    schedules.show_schedule,
    schedules.change_schedule,
    schedules.remove_schedule,
    results.read_results,
    events.follow_all,
    events.follow_job,
    accounts.list_accounts,
    accounts.add_accounts,
    accounts.import_accounts,
    accounts.show_account,
    accounts.change_account,
    accounts.release_account,
    accounts.remove_account,
    catalogues.list_catalogues,
    catalogues.put_catalogue,
    catalogues.show_catalogue,
    queue.show_queue,
    scaling.show_scaling,
    deployment.show_overview,
    deployment.show_workers,
    deployment.find_jobs,
    deployment.show_detail,
    deployment.show_accounts,
    deployment.show_history,
    deployment.follow_changes,
    deployment.show_fleet,
    workers.list_workers,
    doctor.show_findings,
    secrets.rotate_secrets,
    tokens.make_token,
    tokens.list_tokens,
    tokens.revoke_token,
    page.show_page,
    page.show_file,
    metrics.show_metrics,
    health.live,
    health.ready,
]


async def _when_started(request: Request[Any, Any, Any]) -> Response[problems.Problem] | None:
    """Until the streams stand and the lists are complete, only health and description are answered."""
    if request.url.path in ("/", "/livez", "/readyz", "/openapi.json") or request.url.path.startswith("/page/"):
        return None
    _, causes = request.app.state["context"].health.ready()
    if "start" not in causes:
        return None
    return problems.problem(503, "This replica is still starting; try again.", headers={"Retry-After": "1"})


def _telemetry() -> list[DefineMiddleware]:
    """A span and a measurement for each request, by its route; health and the page's own files are left out.

    Not Litestar's own plugin: it stands before the router, and would name spans by addresses, of which there is no end.
    """
    if not (telemetry.tracing() or telemetry.measuring()):
        return []
    from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
    from opentelemetry.util.http import parse_excluded_urls

    class Measured(OpenTelemetryMiddleware):
        """That is shown no header which is not UTF-8: it would raise at some of them."""

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            scope["headers"] = [(name, value) for name, value in scope["headers"] if _is_text(value)]
            await super().__call__(scope, receive, send)

    return [
        DefineMiddleware(
            Measured,
            default_span_details=_route,
            excluded_urls=parse_excluded_urls("/livez,/readyz,/metrics,/page/"),
            exclude_spans=["receive", "send"],
        )
    ]


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _route(scope: Scope) -> tuple[str, dict[str, Any]]:
    template = re.sub(r":\w+}", "}", min(scope["route_handler"].paths))
    return f"{scope['method']} {template}", {"http.route": template}  # type: ignore[typeddict-item]


def make(context: Context) -> Litestar:
    """The application over a context."""
    return Litestar(
        route_handlers=ROUTES,
        dependencies={
            "context": Provide(provide_context, sync_to_thread=False),
            "caller": Provide(access.provide_caller, sync_to_thread=False),
        },
        middleware=[*_telemetry(), DefineMiddleware(access.Authentication, exclude_http_methods=[])],
        guards=[access.guard],
        state=State({"context": context}),
        before_request=_when_started,
        request_max_body_size=limits.REQUEST_BODY_BYTES,
        exception_handlers={
            InputError: problems.on_input,
            ValidationException: problems.on_validation,
            HTTPException: problems.on_http,
            BrokerUnavailable: problems.on_unavailable,
            DatabaseUnavailable: problems.on_unavailable,
            BrokerRefused: problems.on_refused,
            RecursionError: problems.on_deep,
            Exception: problems.on_any,
        },
        openapi_config=OpenAPIConfig(
            title="Cuscuta",
            version=__version__,
            summary="Runs one job over a whole catalogue as fast as all your upstream accounts together allow.",
            create_examples=False,
            openapi_router=Router("/openapi.json", route_handlers=[], opt=access.OPEN, include_in_schema=False),
            components=Components(
                security_schemes={
                    "token": SecurityScheme(
                        type="http", scheme="bearer", description="`cuscuta tokens make` makes one."
                    )
                }
            ),
            security=[{"token": []}],
            render_plugins=[JsonRenderPlugin(path="/")],
        ),
        debug=False,
        logging_config=None,
    )
