"""Accounts: what there is, import, change, release, remove. Passwords go in and never come out."""

from dataclasses import dataclass
from typing import Annotated, Any

from litestar import Request, delete, get, patch, post
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody, Schema
from litestar.params import QueryParameter
from litestar.status_codes import HTTP_200_OK

from cuscuta import limits
from cuscuta.db import Account, Scope
from cuscuta.errors import InputError
from cuscuta.transitions import AccountState
from entry import access, imports
from entry.caller import Caller
from entry.context import Context
from entry.problems import REFUSALS
from entry.requests import AccountChange, AccountRequest
from entry.routes.jobs import Limit
from entry.views import Imported


@get("/accounts", opt=access.OPERATE, tags=["accounts"], summary="List accounts", responses=REFUSALS)
async def list_accounts(
    context: Context,
    in_state: Annotated[
        AccountState | None, QueryParameter(name="state", required=False, description="only these")
    ] = None,
    after: Annotated[int, QueryParameter(ge=0, le=2**62, description="id of the last row of the page before")] = 0,
    limit: Limit = 100,
) -> list[Account]:
    """Accounts by id."""
    return await context.accounts.page(in_state, after, limit)


@get("/accounts/{account:int}", opt=access.OPERATE, tags=["accounts"], summary="Show an account", responses=REFUSALS)
async def show_account(context: Context, account: int) -> Account:
    """One account."""
    return _there(await context.accounts.get(_id(account)), account)


@post(
    "/accounts",
    opt=access.ADMIN,
    status_code=HTTP_200_OK,
    tags=["accounts"],
    summary="Add accounts",
    responses=REFUSALS,
)
async def add_accounts(context: Context, data: list[AccountRequest] | AccountRequest) -> Imported:
    """Add one account or several; a known email gets the new password."""
    accounts = data if isinstance(data, list) else [data]
    pairs = imports.unique([(f"[{i}]", (a.email, a.password)) for i, a in enumerate(accounts)])
    added, changed = await context.accounts.save(pairs)
    return Imported(added, changed)


@dataclass
class _ImportOperation(Operation):
    """Says what an import's body may be, which a typed argument cannot."""

    def __post_init__(self) -> None:
        text = OpenAPIMediaType(schema=Schema(type="string"))  # type: ignore[arg-type]
        self.request_body = RequestBody(
            description='JSON [{"email", "password"}], CSV with a header, or email:password lines',
            content=dict.fromkeys(imports.MEDIA_TYPES, text),
            required=True,
        )


@post(
    "/accounts/import",
    opt=access.ADMIN,
    status_code=HTTP_200_OK,
    tags=["accounts"],
    summary="Import accounts",
    request_max_body_size=limits.IMPORT_BODY_BYTES,
    operation_class=_ImportOperation,
    responses=REFUSALS,
)
async def import_accounts(context: Context, request: Request[Any, Any, Any]) -> Imported:
    """Import many accounts, all or none."""
    pairs = imports.parse(request.headers.get("content-type", ""), await request.body())
    added, changed = await context.accounts.save(pairs)
    return Imported(added, changed)


@patch(
    "/accounts/{account:int}", opt=access.OPERATE, tags=["accounts"], summary="Change an account", responses=REFUSALS
)
async def change_account(context: Context, caller: Caller, account: int, data: AccountChange) -> Account:
    """Set the rate, disable or enable; an admin's token may replace the password."""
    account, found = _id(account), None
    if data.rate is None and data.password is None and data.disabled is None:
        raise InputError("body", "changes nothing", "Send rate, password or disabled.")
    if data.password is not None and not caller.scope.includes(Scope.ADMIN):
        raise InputError("password", f"is beyond the scope {caller.scope}", "Use a token of scope admin.", 403)
    if data.password is not None:
        found = _there(await context.accounts.set_password(account, data.password), account)
    if data.rate is not None:
        found = _there(await context.accounts.set_rate(account, data.rate), account)
    if data.disabled is not None:
        act = context.accounts.disable if data.disabled else context.accounts.release
        found = _there(await act(account), account)
    return _there(found, account)


@post(
    "/accounts/{account:int}/release",
    opt=access.OPERATE,
    status_code=HTTP_200_OK,
    tags=["accounts"],
    summary="Release an account",
    responses=REFUSALS,
)
async def release_account(context: Context, account: int) -> Account:
    """Make an account available again. One in use is taken from its holder first, once its lease is over."""
    return _there(await context.accounts.release(_id(account)), account)


@delete("/accounts/{account:int}", opt=access.ADMIN, tags=["accounts"], summary="Remove an account", responses=REFUSALS)
async def remove_account(context: Context, account: int) -> None:
    """Remove an account. One in use must be released or disabled first, and its holder's lease be over."""
    removed = await context.accounts.remove(_id(account))
    if removed is None:
        _there(None, account)
    if removed is False:
        raise InputError(
            "account",
            f"{account} is in use",
            "PATCH it with disabled: true, and remove it within a minute.",
            status=409,
        )


def _id(account: int) -> int:
    return account if 0 <= account < 2**62 else 0  # past bigint: no such account


def _there(found: Account | None, account: int) -> Account:
    if found is None:
        raise InputError("account", f"there is no account {account}", "GET /accounts lists them.", status=404)
    return found
