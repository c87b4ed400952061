"""Who calls: the token of a request, what it may do, and whose jobs it sees.

A token that was checked is believed for a few seconds, and while PostgreSQL is away for some minutes, so that its
absence keeps nobody from his jobs. Whoever fails too often is told to wait before anything is looked up.
"""

from collections import OrderedDict
from typing import Any, TypeVar

from litestar.connection import ASGIConnection, Request
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult
from msgspec import Struct
from msgspec.structs import replace

from cuscuta import limits
from cuscuta.clock import Clock
from cuscuta.db import Scope, Token, Tokens
from cuscuta.errors import DatabaseUnavailable, InputError
from entry.requests import FollowUp, ScheduledJob

JobT = TypeVar("JobT", bound=FollowUp)

OPEN: dict[str, Any] = {"scope": None}
READ: dict[str, Any] = {"scope": Scope.READ}
SUBMIT: dict[str, Any] = {"scope": Scope.SUBMIT}
OPERATE: dict[str, Any] = {"scope": Scope.OPERATE}
ADMIN: dict[str, Any] = {"scope": Scope.ADMIN}

BELIEVED_S = 5.0  # how long a revoked token may go on at a replica that has just seen it
_AWAY_S = 300.0  # the same while PostgreSQL cannot be asked
_FAILURES, _WINDOW_S = 10, 60.0  # of one address


class Caller(Struct, frozen=True):
    """Whoever has sent a request. `token` is its id, "" where no tokens are asked for."""

    token: str
    scope: Scope
    group: str = ""

    def sees(self, group: str) -> bool:
        """Whether a group's jobs are any of its business."""
        return self.scope.includes(Scope.OPERATE) or group == self.group

    def own(self, job: JobT) -> JobT:
        """A job as this caller may submit it: labelled with its group. Raises InputError (403)."""
        asked = job.labels.get("group", "")
        if asked and not self.sees(asked):
            raise InputError("labels.group", f"{asked[:60]!r} is not the group of this token", "Leave it out.", 403)
        group = asked or self.group
        labels = {**job.labels, "group": group} if group else job.labels
        mine = replace(job, labels=labels)
        if isinstance(mine, ScheduledJob):
            for field in ("on_success", "on_failure"):
                if (follow := getattr(mine, field)) is not None:
                    setattr(mine, field, self.own(follow))
        return mine


class Gate:
    """Knows the tokens that were seen, and who failed."""

    def __init__(self, tokens: Tokens, clock: Clock, *, insecure: bool) -> None:
        self.tokens, self._clock, self._insecure = tokens, clock, insecure
        self._seen: OrderedDict[str, tuple[Token, float]] = OrderedDict()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    async def caller(self, authorization: str | None, address: str) -> Caller:
        """Who sends this. Raises HTTPException (401, 429), DatabaseUnavailable."""
        if self._insecure:
            return Caller("", Scope.ADMIN)
        kind, _, text = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not text:
            raise _refused(401, "Send `Authorization: Bearer <token>`; `cuscuta tokens make` makes one.")
        now = self._clock.monotonic()
        token, seen_at = self._seen.get(text, (None, 0.0))
        if token is None or now - seen_at > BELIEVED_S:
            failures = self._failing(address, now)
            if token is None and len(failures) >= _FAILURES:
                wait = max(1, int(failures[0] + _WINDOW_S - now) + 1)
                raise _refused(
                    429, "Too many requests with a wrong token from this address.", {"Retry-After": str(wait)}
                )
            try:
                token = await self.tokens.check(text.strip())
            except DatabaseUnavailable:
                if token is None or now - seen_at > _AWAY_S:
                    raise
                return _caller(token)
            self._seen.pop(text, None)
            if token is None:
                self._note(address, [*failures, now])
                raise _refused(401, "The token is unknown, revoked or has expired.")
            self._seen[text] = (token, now)
            if len(self._seen) > limits.TOKENS:
                self._seen.popitem(last=False)
        return _caller(token)

    def forget(self, token: int) -> None:
        """A token was revoked here: nobody is to be believed any longer."""
        self._seen = OrderedDict((text, seen) for text, seen in self._seen.items() if seen[0].id != token)

    def _failing(self, address: str, now: float) -> list[float]:
        return [at for at in self._failures.get(address, ()) if now - at < _WINDOW_S]

    def _note(self, address: str, failures: list[float]) -> None:
        self._failures.pop(address, None)
        self._failures[address] = failures
        if len(self._failures) > limits.ADDRESSES:
            self._failures.popitem(last=False)


def _caller(token: Token) -> Caller:
    return Caller(str(token.id), token.scope, token.group)


def _refused(status: int, detail: str, headers: dict[str, str] | None = None) -> HTTPException:
    known = {401: {"WWW-Authenticate": 'Bearer realm="cuscuta"'}}
    return HTTPException(detail, status_code=status, headers={**known.get(status, {}), **(headers or {})})


class Authentication(AbstractAuthenticationMiddleware):
    """Puts the caller into `request.user`, on every route but the open ones."""

    async def authenticate_request(self, connection: ASGIConnection[Any, Any, Any, Any]) -> AuthenticationResult:
        """Raises HTTPException, DatabaseUnavailable."""
        if connection.route_handler.opt.get("scope", Scope.ADMIN) is None:
            return AuthenticationResult(user=None, auth=None)
        gate: Gate = connection.app.state["context"].gate
        address = connection.client.host if connection.client else ""
        caller = await gate.caller(connection.headers.get("authorization"), address)
        return AuthenticationResult(user=caller, auth=caller.token)


def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Refuse whoever's scope does not reach. A route that names none is for admins. Raises HTTPException (403)."""
    needed = handler.opt.get("scope", Scope.ADMIN)
    if needed is not None and not connection.user.scope.includes(needed):
        raise _refused(403, f"This needs a token of scope {needed}; this one is of scope {connection.user.scope}.")


def provide_caller(request: Request[Any, Any, Any]) -> Caller:
    """Whoever has sent the request, for a route's `caller` argument."""
    caller = request.user
    assert isinstance(caller, Caller)  # noqa: S101 - put there by Authentication
    return caller
