"""Accounts as people see and change them. Passwords go in and never come out."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from cuscuta.db.database import Database
from cuscuta.db.vault import Vault
from cuscuta.transitions import AccountState

_SHOWN = (
    "id, account_email, user_id, state, rate, lease_owner, lease_term, lease_time, lease_until, rest_until,"
    " pace, throttled, last_error, created_at, updated_at"
)


class Account(Struct, frozen=True):
    """An account without its secrets. `pace` is what it was found to be allowed, in calls a second."""

    id: int
    email: str
    user_id: str | None
    state: AccountState
    rate: float
    lease_owner: str | None
    lease_term: int
    lease_time: datetime | None
    lease_until: datetime | None
    rest_until: datetime | None
    pace: float | None
    throttled: int
    last_error: str | None
    created_at: datetime
    updated_at: datetime


def _account(row: Any) -> Account:
    values = dict(row)
    values["email"] = values.pop("account_email")
    values["state"] = AccountState(values["state"])
    return Account(**values)


class Accounts:
    """CRUD over `account_table`."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._db, self._vault = database, vault

    async def save(self, accounts: Sequence[tuple[str, str]]) -> tuple[int, int]:
        """Store (email, password) pairs; (added, changed). A new password clears the saved token and the error."""
        sealed = [
            (email, self._vault.seal(password)) for email, password in sorted(accounts)
        ]  # one order for all: no deadlock
        rows = await self._db.rows(
            """
            INSERT INTO account_table (account_email, account_password)
            SELECT * FROM unnest($1::text[], $2::text[])
            ON CONFLICT (account_email) DO UPDATE
               SET account_password = excluded.account_password, temp_token = NULL, last_error = NULL,
                   updated_at = now()
            RETURNING (xmax = 0) AS added
            """,
            [email for email, _ in sealed],
            [password for _, password in sealed],
        )
        added = sum(row["added"] for row in rows)
        return added, len(rows) - added

    async def page(self, state: AccountState | None, after: int, count: int) -> list[Account]:
        """Accounts with ids above `after`, in order of id."""
        rows = await self._db.rows(
            f"SELECT {_SHOWN} FROM account_table"  # noqa: S608 - a constant
            " WHERE id > $1 AND ($2::text IS NULL OR state = $2) ORDER BY id LIMIT $3",
            after,
            state,
            count,
        )
        return [_account(row) for row in rows]

    async def states(self) -> dict[str, int]:
        """How many accounts are in each state. Raises DatabaseUnavailable."""
        rows = await self._db.rows("SELECT state, count(*) AS n FROM account_table GROUP BY state")
        return {row["state"]: row["n"] for row in rows}

    async def usable(self) -> tuple[int, int]:
        """How many accounts could be leased now, and how many are. Raises DatabaseUnavailable."""
        row = await self._db.row(
            """
            SELECT count(*) FILTER (WHERE rate > 0 AND (state = 'Idle'
                       OR (state = 'Resting' AND rest_until <= now()))) AS free,
                   count(*) FILTER (WHERE state = 'Using') AS used
            FROM account_table
            """
        )
        return (row["free"], row["used"]) if row else (0, 0)

    async def troubled(self, count: int) -> list[Account]:
        """Accounts with which something is the matter: resting, disabled, or rated below 1; the worst first."""
        rows = await self._db.rows(
            f"SELECT {_SHOWN} FROM account_table"  # noqa: S608 - a constant
            " WHERE rate < 1 OR state NOT IN ('Idle', 'Using') ORDER BY rate, id LIMIT $1",
            count,
        )
        return [_account(row) for row in rows]

    async def get(self, account: int) -> Account | None:
        """One account."""
        row = await self._db.row(f"SELECT {_SHOWN} FROM account_table WHERE id = $1", account)  # noqa: S608
        return _account(row) if row else None

    async def set_rate(self, account: int, rate: float) -> Account | None:
        """Set the rating."""
        row = await self._db.row(
            f"UPDATE account_table SET rate = $2, updated_at = now() WHERE id = $1 RETURNING {_SHOWN}",  # noqa: S608
            account,
            rate,
        )
        return _account(row) if row else None

    async def set_password(self, account: int, password: str) -> Account | None:
        """Replace the password and forget the saved token."""
        row = await self._db.row(
            "UPDATE account_table SET account_password = $2, temp_token = NULL, updated_at = now()"  # noqa: S608
            f" WHERE id = $1 RETURNING {_SHOWN}",
            account,
            self._vault.seal(password),
        )
        return _account(row) if row else None

    async def disable(self, account: int) -> Account | None:
        """Take an account out of use; a holder finds its lease gone at its next renewal."""
        row = await self._db.row(
            "UPDATE account_table SET state = 'Disabled', lease_term = lease_term + 1, lease_owner = NULL,"  # noqa: S608
            f" updated_at = now() WHERE id = $1 RETURNING {_SHOWN}",
            account,
        )
        return _account(row) if row else None

    async def release(self, account: int) -> Account | None:
        """Make an account available again: rested, enabled, with a full rating if it had none.

        One that a seat holds is taken from it, and rests until the holder can no longer trust its lease.
        """
        row = await self._db.row(
            f"""
            UPDATE account_table SET
                state = CASE WHEN lease_until > now() THEN 'Resting' ELSE 'Idle' END,
                rest_until = CASE WHEN lease_until > now() THEN lease_until END,
                lease_term = lease_term + 1, lease_owner = NULL, last_error = NULL, throttled = 0,
                rate = CASE WHEN rate > 0 THEN rate ELSE 1 END, updated_at = now()
            WHERE id = $1 RETURNING {_SHOWN}
            """,  # noqa: S608
            account,
        )
        return _account(row) if row else None

    async def remove(self, account: int) -> bool | None:
        """Delete an account; None if there is none, False if a holder may still be using it."""
        gone = await self._db.rows(
            "DELETE FROM account_table WHERE id = $1 AND (lease_until IS NULL OR lease_until <= now()) RETURNING id",
            account,
        )
        if gone:
            return True
        return False if await self.get(account) else None
