"""API tokens: who may call the REST API, and for what.

A token is `cus_<id>_<secret>`, the secret 32 random bytes. Only its SHA-256 is stored: a slow hash is for what people
choose, and nobody guesses 256 bits. The row is found by id, and the hash compared in constant time.
"""

import contextlib
import hashlib
import hmac
import re
import secrets
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from cuscuta.db.database import Database
from cuscuta.errors import DatabaseUnavailable, InputError
from cuscuta.limits import TOKENS

_SHAPE = re.compile(r"cus_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})")
_SHOWN = "id, name, scope, job_group, created_at, expires_at, revoked_at, used_at"
_LIVES = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())"


class Scope(StrEnum):
    """What a token is good for; each includes those before it."""

    READ = "read"
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMIN = "admin"

    def includes(self, other: "Scope") -> bool:
        """Whether this one is good for what needs the other."""
        order = tuple(Scope)
        return order.index(self) >= order.index(other)


class Token(Struct, frozen=True):
    """A token without its secret. `group`: below `operate`, its bearer has to do with this group's jobs only."""

    id: int
    name: str
    scope: Scope
    group: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


class Key(NamedTuple):
    """What a caller has sent: which token it claims to be, and the hash of its secret."""

    id: int
    digest: bytes


def parse(text: str) -> Key | None:
    """A token as it was sent; None for what cannot be one."""
    shape = _SHAPE.fullmatch(text)
    return Key(int(shape[1]), _digest(shape[2])) if shape else None


class Tokens:
    """Makes, lists, revokes and checks tokens. Every method raises DatabaseUnavailable."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def make(self, name: str, scope: Scope, group: str = "", expires_at: datetime | None = None) -> str:
        """A fresh token as its bearer sends it, which is never shown again. Raises InputError (409)."""
        await self._db.rows(  # long dead
            "DELETE FROM api_token WHERE least(revoked_at, expires_at) < now() - interval '30 days'"
        )
        secret = secrets.token_urlsafe(32)
        row = await self._db.row(
            "INSERT INTO api_token (name, scope, job_group, expires_at, digest)"
            " SELECT $1, $2, $3, $4, $5 WHERE (SELECT count(*) FROM api_token) < $6 RETURNING id",
            name,
            scope,
            group,
            expires_at,
            _digest(secret),
            TOKENS,
        )
        if row is None:
            raise InputError("name", f"there are {TOKENS:,} tokens", "Revoke some; they go after 30 days.", 409)
        return f"cus_{row['id']}_{secret}"

    async def all(self) -> list[Token]:
        """Every token that is kept, by id."""
        return [_token(row) for row in await self._db.rows(f"SELECT {_SHOWN} FROM api_token ORDER BY id")]  # noqa: S608

    async def revoke(self, token: int) -> Token | None:
        """End a token; one that is revoked stays as it is. None if there is none."""
        row = await self._db.row(
            f"UPDATE api_token SET revoked_at = coalesce(revoked_at, now()) WHERE id = $1 RETURNING {_SHOWN}",  # noqa: S608
            token,
        )
        return _token(row) if row else None

    async def check(self, key: Key) -> Token | None:
        """Whose token this is; None for one that never was, is revoked or has expired."""
        row = await self._db.row(f"SELECT digest, {_SHOWN} FROM api_token WHERE id = $1 AND {_LIVES}", key.id)  # noqa: S608
        if not hmac.compare_digest(row["digest"] if row else b"", key.digest) or row is None:
            return None
        with contextlib.suppress(DatabaseUnavailable):  # a database that takes no writes can still tell who it is
            await self._db.rows(  # to the minute, so that a busy token costs no write a call
                "UPDATE api_token SET used_at = now()"
                " WHERE id = $1 AND (used_at IS NULL OR used_at < now() - interval '1 minute')",
                key.id,
            )
        return _token(row)

    async def lives(self, token: int) -> bool:
        """Whether a token is neither revoked nor has expired."""
        return bool(await self._db.rows(f"SELECT 1 FROM api_token WHERE id = $1 AND {_LIVES}", token))  # noqa: S608

    async def has_admin(self) -> bool:
        """Whether somebody can make tokens over the API."""
        return bool(await self._db.rows(f"SELECT 1 FROM api_token WHERE scope = 'admin' AND {_LIVES} LIMIT 1"))  # noqa: S608


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _token(row: "object") -> Token:
    values = dict(row)  # type: ignore[call-overload]
    values.pop("digest", None)
    values["group"] = values.pop("job_group") or ""
    values["scope"] = Scope(values["scope"])
    return Token(**values)
