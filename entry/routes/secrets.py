"""Secrets at rest: sealed anew when the keys have changed."""

from typing import Annotated

from litestar import post
from litestar.params import QueryParameter
from litestar.status_codes import HTTP_200_OK

from cuscuta.db.rotation import Rotated, rotate
from entry import access
from entry.context import Context
from entry.problems import REFUSALS
from entry.routes.jobs import Limit


@post(
    "/secrets/rotate",
    opt=access.ADMIN,
    status_code=HTTP_200_OK,
    tags=["accounts"],
    summary="Seal secrets with the newest key",
    responses=REFUSALS,
)
async def rotate_secrets(
    context: Context,
    after: Annotated[int, QueryParameter(ge=0, le=2**62, description="`next` of the page before")] = 0,
    limit: Limit = 500,
) -> Rotated:
    """Seal a page of accounts' passwords and upstream tokens with the first of `secret_keys`; safe to repeat."""
    return await rotate(context.database, context.vault, after, limit)
