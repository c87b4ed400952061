"""Which scope a route needs, and who calls it: between Litestar and the gate."""

from typing import Any

from litestar.connection import ASGIConnection, Request
from litestar.handlers import BaseRouteHandler
from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult

from cuscuta.db import Scope
from cuscuta.relations import LOOPBACK
from entry.caller import Caller
from entry.gate import Gate, refused

OPEN: dict[str, Any] = {"scope": None}
READ: dict[str, Any] = {"scope": Scope.READ}
SUBMIT: dict[str, Any] = {"scope": Scope.SUBMIT}
OPERATE: dict[str, Any] = {"scope": Scope.OPERATE}
ADMIN: dict[str, Any] = {"scope": Scope.ADMIN}


class Authentication(AbstractAuthenticationMiddleware):
    """Puts the caller into `request.user`, on every route but the open ones."""

    async def authenticate_request(self, connection: ASGIConnection[Any, Any, Any, Any]) -> AuthenticationResult:
        """Raises HTTPException, DatabaseUnavailable."""
        if connection.route_handler.opt.get("scope", Scope.ADMIN) is None:
            return AuthenticationResult(user=None, auth=None)
        gate: Gate = connection.app.state["context"].gate
        if gate.insecure and (connection.url.hostname not in LOOPBACK or "x-forwarded-for" in connection.headers):
            raise refused(403, "Without tokens only this box itself is answered; a name or a proxy stands between.")
        address = connection.client.host if connection.client else ""
        caller = await gate.caller(connection.headers.get("authorization"), address)
        return AuthenticationResult(user=caller, auth=caller.token)


def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Refuse whoever's scope does not reach. A route that names none is for admins. Raises HTTPException (403)."""
    needed = handler.opt.get("scope", Scope.ADMIN)
    if needed is not None and not connection.user.scope.includes(needed):
        raise refused(403, f"This needs a token of scope {needed}; this one is of scope {connection.user.scope}.")


def provide_caller(request: Request[Any, Any, Any]) -> Caller:
    """Whoever has sent the request, for a route's `caller` argument."""
    caller = request.user
    assert isinstance(caller, Caller)  # noqa: S101 - put there by Authentication
    return caller
