"""API tokens: make, list, revoke."""

from datetime import datetime, timedelta
from typing import Annotated

from litestar import Response, delete, get, post
from litestar.status_codes import HTTP_200_OK, HTTP_201_CREATED
from msgspec import Meta, Struct

from cuscuta import limits
from cuscuta.db import Scope, Token
from cuscuta.errors import InputError
from entry import access
from entry.context import Context
from entry.problems import KNOWN_FIELDS, REFUSALS
from entry.requests import YEARS_S, bounded


class TokenRequest(Struct, forbid_unknown_fields=True):
    """A token to be made. Below `operate` its bearer sees and makes jobs of its `group` only."""

    name: Annotated[str, Meta(min_length=1, max_length=120, description="whose it is", examples=["nightly import"])]
    scope: Scope
    group: Annotated[str, Meta(max_length=limits.LABEL_BYTES)] = ""
    expires_s: Annotated[float, Meta(gt=0, le=YEARS_S, description="seconds from now")] | None = None


class MadeToken(Struct):
    """A new token; `token` is shown this once."""

    token: str
    name: str
    scope: Scope
    group: str
    expires_at: datetime | None

    def __repr__(self) -> str:
        return "MadeToken(***)"


KNOWN_FIELDS.update(TokenRequest.__struct_encode_fields__)


@post("/tokens", opt=access.ADMIN, status_code=HTTP_201_CREATED, tags=["tokens"], summary="Make", responses=REFUSALS)
async def make_token(context: Context, data: TokenRequest) -> Response[MadeToken]:
    """Make a token. It is shown in this answer only; keep it where secrets are kept."""
    for field, text in (("name", data.name), ("group", data.group)):
        bounded(field, text, limits.LABEL_BYTES)
        if text and not text.isprintable():
            raise InputError(field, "is not printable", "Use any printable text.")
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
    context.gate.forget(token)  # first, so that nothing is believed whose revocation was stored but not answered
    found = await context.gate.tokens.revoke(token if 0 < token < 2**62 else 0)
    if found is None:
        context.gate.recall(token)
        raise InputError("token", f"there is no token {token}", "GET /tokens lists them.", 404)
    return found
