"""Leases: who may use which account, until when. The contract:

- Acquiring takes the best free accounts (`FOR UPDATE SKIP LOCKED`) and gives each a new `lease_term`, its fence.
- The holder renews at a third of the term. It trusts a lease until *start of the request* + term - margin on its own
  monotonic clock, so it stops before the database, whose `now()` alone judges, would hand the account on.
- Whatever the holder writes about the account names its term; after a take-over nothing of it counts.

Statements take an optional `now` that only tests pass.
"""

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct

from cuscuta.clock import Clock
from cuscuta.db.database import Database
from cuscuta.db.vault import Vault, VaultError
from cuscuta.settings import Settings


class Lease(Struct, kw_only=True):
    """An account in somebody's hands. `trusted_until` is monotonic; the secrets are never printed.

    `pace` (calls a second), `pace_found` and `throttled` are what holders learnt about its allowance; the holder keeps
    them up to date here, and they are stored at every renewal and at the return.
    """

    account: int
    email: str
    password: str
    user_id: str | None
    token: str | None
    rate: float
    term: int
    pace: float | None = None
    pace_found: bool = False
    throttled: int = 0
    trusted_until: float

    def __repr__(self) -> str:
        return f"Lease(account={self.account}, term={self.term})"


class Return(NamedTuple):
    """How an account comes back. A `rest_s` above 0 makes it rest, `disable` takes it out of use."""

    rate: float
    rest_s: float = 0.0
    disable: bool = False
    error: str | None = None


class Leases:
    """The lease statements."""

    def __init__(self, database: Database, vault: Vault, settings: Settings, clock: Clock) -> None:
        self._db, self._vault, self._clock = database, vault, clock
        self._term_s = settings.lease_term_s
        self._trust_s = settings.lease_term_s - settings.lease_margin_s

    async def acquire(self, owner: str, count: int, now: datetime | None = None) -> list[Lease]:
        """Lease up to `count` free accounts: best rating first, longest idle next."""
        asked = self._clock.monotonic()
        rows = await self._db.rows(
            """
            UPDATE account_table SET
                state = 'Using', lease_owner = $1, lease_term = lease_term + 1, rest_until = NULL,
                lease_time = coalesce($4, now()), lease_until = coalesce($4, now()) + make_interval(secs => $3)
            WHERE id IN (
                SELECT id FROM account_table
                WHERE rate > 0 AND (state = 'Idle' OR (state = 'Resting' AND rest_until <= coalesce($4, now())))
                ORDER BY rate DESC, lease_time ASC NULLS FIRST
                LIMIT $2 FOR UPDATE SKIP LOCKED)
            RETURNING id, account_email, account_password, user_id, temp_token, rate, lease_term,
                pace, pace_found, throttled
            """,
            owner,
            count,
            self._term_s,
            now,
        )
        found = []
        for row in rows:
            try:
                found.append(self._lease(row, asked))
            except VaultError as error:
                await self._unreadable(row["id"], row["lease_term"], str(error))
        return found

    def _lease(self, row: Any, asked: float) -> Lease:
        return Lease(
            account=row["id"],
            email=row["account_email"],
            password=self._vault.open(row["account_password"]),
            user_id=row["user_id"],
            token=self._token(row["temp_token"]),
            rate=row["rate"],
            term=row["lease_term"],
            pace=row["pace"],
            pace_found=row["pace_found"],
            throttled=row["throttled"],
            trusted_until=asked + self._trust_s,
        )

    def _token(self, sealed: str | None) -> str | None:
        """A saved token of the upstream; one that cannot be opened is as good as none."""
        with contextlib.suppress(VaultError):
            return self._vault.open(sealed) if sealed else None
        return None

    async def _unreadable(self, account: int, term: int, cause: str) -> None:
        """An account sealed with a key that we do not have: out of use, with the reason, until somebody mends it."""
        await self._db.rows(
            "UPDATE account_table SET state = 'Disabled', lease_owner = NULL, lease_until = NULL, last_error = $3,"
            " updated_at = now() WHERE id = $1 AND lease_term = $2 RETURNING id",
            account,
            term,
            cause,
        )

    async def renew(self, leases: Sequence[Lease], now: datetime | None = None) -> list[Lease]:
        """Renew all of a process's leases in one statement; those that were lost, whose trust is taken away."""
        asked = self._clock.monotonic()
        rows = await self._db.rows(
            """
            UPDATE account_table a SET
                lease_time = coalesce($4, now()), lease_until = coalesce($4, now()) + make_interval(secs => $3),
                pace = held.pace, pace_found = held.found, throttled = held.throttled
            FROM unnest($1::bigint[], $2::bigint[], $5::float8[], $6::boolean[], $7::integer[])
                AS held (id, term, pace, found, throttled)
            WHERE a.id = held.id AND a.lease_term = held.term AND a.state = 'Using'
              AND a.lease_until > coalesce($4, now())
            RETURNING a.id
            """,
            [lease.account for lease in leases],
            [lease.term for lease in leases],
            self._term_s,
            now,
            [lease.pace for lease in leases],
            [lease.pace_found for lease in leases],
            [lease.throttled for lease in leases],
        )
        kept = {row["id"] for row in rows}
        lost = []
        for lease in leases:
            if lease.account in kept:
                lease.trusted_until = asked + self._trust_s
            else:
                lease.trusted_until = 0.0
                lost.append(lease)
        return lost

    async def give_back(self, lease: Lease, how: Return) -> bool:
        """Return an account; False if the lease was lost, and then nothing changes."""
        rows = await self._db.rows(
            """
            UPDATE account_table a SET
                state = CASE WHEN $4 OR new.rate <= 0 THEN 'Disabled'
                             WHEN $5::float8 > 0 THEN 'Resting' ELSE 'Idle' END,
                rate = new.rate,
                rest_until = CASE WHEN $5::float8 > 0 THEN now() + make_interval(secs => $5::float8) END,
                lease_owner = NULL, lease_until = NULL, last_error = coalesce($6, last_error), updated_at = now(),
                pace = $8, pace_found = $9, throttled = $10
            FROM (SELECT CASE WHEN rate = $7::float8 THEN $3::float8 ELSE rate END AS rate
                  FROM account_table WHERE id = $1) new  -- a rate that an operator set meanwhile stays
            WHERE a.id = $1 AND a.lease_term = $2 AND a.state = 'Using'
            RETURNING a.id
            """,
            lease.account,
            lease.term,
            how.rate,
            how.disable,
            float(how.rest_s),
            how.error,
            lease.rate,
            lease.pace,
            lease.pace_found,
            lease.throttled,
        )
        return bool(rows)

    async def save_token(self, lease: Lease, token: str, user_id: str | None) -> bool:
        """Keep a session's token for the next holder; False if the lease was lost."""
        rows = await self._db.rows(
            "UPDATE account_table SET temp_token = $3, user_id = coalesce($4, user_id), updated_at = now()"
            " WHERE id = $1 AND lease_term = $2 RETURNING id",
            lease.account,
            lease.term,
            self._vault.seal(token),
            user_id,
        )
        return bool(rows)

    async def expire(self, count: int, now: datetime | None = None) -> list[tuple[int, str]]:
        """Return up to `count` accounts whose lease is over; (id, owner) of each. For the reaper."""
        rows = await self._db.rows(
            """
            UPDATE account_table a SET state = 'Idle', lease_owner = NULL, lease_until = NULL, updated_at = now()
            FROM (SELECT id, lease_owner FROM account_table
                  WHERE state = 'Using' AND lease_until <= coalesce($2, now())
                  ORDER BY lease_until LIMIT $1 FOR UPDATE SKIP LOCKED) old
            WHERE a.id = old.id RETURNING a.id, old.lease_owner
            """,
            count,
            now,
        )
        return [(row["id"], row["lease_owner"] or "") for row in rows]
