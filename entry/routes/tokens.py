"""API tokens: make, list, revoke."""

from datetime import datetime, timedelta

from litestar import Response, delete, get, post
from litestar.status_codes import HTTP_200_OK, HTTP_201_CREATED
from msgspec import Struct

from cuscuta.db import Scope, Token
from cuscuta.errors import InputError
from entry import access
from entry.context import Context
from entry.problems import REFUSALS
from entry.requests import TokenRequest


class MadeToken(Struct):
    """A new token; `token` is shown this once."""

    token: str
    name: str
    scope: Scope
    group: str
    expires_at: datetime | None


@post("/tokens", opt=access.ADMIN, status_code=HTTP_201_CREATED, tags=["tokens"], summary="Make", responses=REFUSALS)
async def make_token(context: Context, data: TokenRequest) -> Response[MadeToken]:
    """Make a token. It is shown in this answer only; keep it where secrets are kept."""
    now = context.clock.wall()
    expires_at = now + timedelta(seconds=data.expires_s) if data.expires_s else None
    text = await context.gate.tokens.make(data.name, data.scope, data.group, expires_at)
    made = MadeToken(text, data.name, data.scope, data.group, expires_at)
    return Response(made, headers={"Cache-Control": "no-store"})


@get("/tokens", opt=access.ADMIN, tags=["tokens"], summary="List tokens", responses=REFUSALS)
async def list_tokens(context: Context) -> list[Token]:
    """Every token by id, without its secret; the dead ones for 30 days."""
    return await context.gate.tokens.all()


@delete(
    "/tokens/{token:int}",
    opt=access.ADMIN,
    status_code=HTTP_200_OK,
    tags=["tokens"],
    summary="Revoke",
    responses=REFUSALS,
)
async def revoke_token(context: Context, token: int) -> Token:
    """End a token: here at once, at other replicas within 5 s."""
    found = await context.gate.tokens.revoke(token if 0 < token < 2**62 else 0)
    context.gate.forget(token)
    if found is None:
        raise InputError("token", f"there is no token {token}", "GET /tokens lists them.", 404)
    return found
