"""Every error answer is an RFC 9457 problem document that names the field and the fix; never a traceback."""

import difflib
import re
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.openapi.datastructures import ResponseSpec
from msgspec import Struct

from cuscuta.errors import BrokerRefused, BrokerUnavailable, DatabaseUnavailable, InputError, QueueFull
from cuscuta.logs import get

MEDIA_TYPE = "application/problem+json"
_TITLES = {
    400: "The request is malformed",
    401: "No valid token",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "The body is too large",
    415: "Unsupported media type",
    422: "The request cannot be accepted",
    429: "Too many requests",
    500: "A fault of ours",
    503: "Temporarily unavailable",
}


class FieldError(Struct, omit_defaults=True):
    """One fault of the input: which field, what is wrong, how to mend it."""

    field: str
    message: str
    fix: str = ""


class Problem(Struct, omit_defaults=True):
    """A problem document."""

    status: int
    title: str
    detail: str
    type: str = "about:blank"
    errors: list[FieldError] = []


def problem(
    status: int, detail: str, errors: list[FieldError] | None = None, headers: dict[str, str] | None = None
) -> Response[Problem]:
    """A problem document as an answer."""
    body = Problem(status, _TITLES.get(status, "Error"), detail, errors=errors or [])
    return Response(body, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def on_input(_: Request[Any, Any, Any], error: InputError) -> Response[Problem]:
    """The caller's input is at fault."""
    return problem(error.status, str(error), [FieldError(error.field, error.message, error.fix)])


def on_validation(request: Request[Any, Any, Any], error: ValidationException) -> Response[Problem]:
    """Litestar's own validation: translated field by field."""
    extra = error.extra if isinstance(error.extra, list) else []
    fields = [_field(entry) for entry in extra if isinstance(entry, dict)]
    if not fields:
        fields = [_field({"message": error.detail})]
    detail = "; ".join(f"{f.field}: {f.message}" if f.field else f.message for f in fields)
    return problem(400, detail, fields)


def on_http(_: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """Whatever Litestar raises: unknown path, method, media type, size."""
    status = error.status_code
    detail = {
        404: "There is nothing here. The API is described at /openapi.json.",
        413: "The body is larger than this route takes; docs/guarantees.md lists the limits.",
    }.get(status, error.detail)
    if status >= 500:
        get("cuscuta.entry").error("a fault in a route", exc_info=error)
        detail = "Something went wrong inside; the log says what."
    if status == 400:
        return problem(400, detail, [_field({"message": detail})])
    return problem(status, detail, headers=error.headers)


def on_unavailable(_: Request[Any, Any, Any], error: BrokerUnavailable | DatabaseUnavailable) -> Response[Problem]:
    """NATS or PostgreSQL is away: the caller may try again."""
    part = "NATS" if isinstance(error, BrokerUnavailable) else "PostgreSQL"
    get("cuscuta.entry").warning("unavailable", part=part, cause=str(error))
    return problem(503, f"{part} is not reachable at the moment; try again.", headers={"Retry-After": "2"})


def on_refused(_: Request[Any, Any, Any], error: BrokerRefused) -> Response[Problem]:
    """JetStream refused: full, or a fault of ours."""
    get("cuscuta.entry").error("refused by JetStream", cause=str(error))
    if isinstance(error, QueueFull):
        return problem(503, "The backlog is full; try again when jobs have ended.", headers={"Retry-After": "30"})
    return problem(503, "NATS refused the request; the log says why.", headers={"Retry-After": "5"})


def on_deep(_: Request[Any, Any, Any], error: RecursionError) -> Response[Problem]:
    """Nothing of ours recurses but the decoding of what callers send."""
    get("cuscuta.entry").warning("a body was nested too deeply", cause=str(error))
    return problem(400, "The body is nested too deeply.")


def on_any(_: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """A fault of ours: logged in full, shown without detail."""
    get("cuscuta.entry").error("a fault in a route", exc_info=error)
    return problem(500, "Something went wrong inside; the log says what.")


_WHEN = {
    400: "The body or a parameter is malformed; `errors` names each field and its fix.",
    401: "The token is missing, unknown, revoked or has expired.",
    403: "The token's scope or group does not reach.",
    404: "There is no such thing.",
    409: "It contradicts what stands.",
    413: "The body is larger than this route takes.",
    422: "A value cannot be accepted; `errors` names the field and the fix.",
    429: "Too many requests with a wrong token; see `Retry-After`.",
    503: "NATS or PostgreSQL is away, this replica is starting, or the backlog is full; see `Retry-After`.",
}
REFUSALS = {
    status: ResponseSpec(Problem, description=text, media_type=MEDIA_TYPE, generate_examples=False)
    for status, text in _WHEN.items()
}

_AT = re.compile(r" - at `\$(?:\.)?([^`]*)`$")
_UNKNOWN = re.compile(r"[Uu]nknown field `([^`]+)`")
_MISSING = re.compile(r"missing required field `([^`]+)`")
KNOWN_FIELDS: set[str] = set()


def _field(entry: dict[str, Any]) -> FieldError:
    message = str(entry.get("message", "")).strip()
    field = str(entry.get("key", ""))
    if match := _AT.search(message):
        field = match.group(1) or field
        message = message[: match.start()]
    if match := _UNKNOWN.search(message):
        name = match.group(1)
        near = difflib.get_close_matches(name, KNOWN_FIELDS, n=1)
        return FieldError(name, "there is no such field", f"Did you mean {near[0]}?" if near else "Leave it out.")
    if match := _MISSING.search(message):
        return FieldError(match.group(1), "is required", "Add it to the body.")
    message = message.replace("`", "")
    return FieldError(field, message[:1].lower() + message[1:], "The API is described at /openapi.json.")
