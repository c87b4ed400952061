"""Accounts, leases and migrations against a real PostgreSQL."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import asyncpg
import pytest

from cuscuta.clock import SystemClock
from cuscuta.db import Accounts, Database, Leases, Vault
from cuscuta.db.database import migrations
from cuscuta.db.leases import Return
from cuscuta.db.rotation import rotate
from cuscuta.db.vault import VaultError, new_key
from cuscuta.embedded.postgres import Postgres
from cuscuta.errors import DatabaseUnavailable
from cuscuta.logs import get
from cuscuta.settings import Settings
from cuscuta.transitions import AccountState


@pytest.fixture
async def settings(postgres: Postgres) -> AsyncIterator[Settings]:
    name = f"test_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(postgres.url())
    await admin.execute(f"CREATE DATABASE {name}")
    yield Settings(postgres_url=postgres.url(name), secret_keys=[new_key()], postgres_pool=10)
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()


@pytest.fixture
async def db(settings: Settings) -> AsyncIterator[Database]:
    database = Database(settings, SystemClock(), get("test"))
    await database.connect()
    await database.migrate()
    yield database
    await database.close()


@pytest.fixture
def accounts(db: Database, settings: Settings) -> Accounts:
    return Accounts(db, Vault(settings.secret_keys))


@pytest.fixture
def leases(db: Database, settings: Settings) -> Leases:
    return Leases(db, Vault(settings.secret_keys), settings, SystemClock())


async def now(db: Database) -> datetime:
    row = await db.row("SELECT now() AS now")
    assert row is not None
    found: datetime = row["now"]
    return found


async def test_migrations_run_once_however_many_start(settings: Settings) -> None:
    databases = [Database(settings, SystemClock(), get("test")) for _ in range(6)]
    done = await asyncio.gather(*(database.migrate() for database in databases))
    assert sorted(map(len, done)) == [0, 0, 0, 0, 0, len(migrations())]


async def test_secrets_are_encrypted_and_keys_rotate(db: Database, accounts: Accounts, settings: Settings) -> None:
    await accounts.save([("a@x", "hunter2")])
    row = await db.row("SELECT * FROM account_table")
    assert row is not None
    assert "hunter2" not in str(dict(row))
    rotated = Vault([new_key(), *settings.secret_keys])
    assert rotated.open(row["account_password"]) == "hunter2"
    with pytest.raises(VaultError, match="add that key"):
        Vault([new_key()]).open(row["account_password"])
    with pytest.raises(VaultError, match="cuscuta secret-key"):
        Vault(["short"])


async def test_rotation_seals_every_page_anew_and_loses_no_change(db: Database, settings: Settings) -> None:
    """Five accounts in pages of two; one is changed between the pages, one is sealed with a key that is lost."""
    old = Vault(settings.secret_keys)
    await Accounts(db, old).save([(f"{n}@x", f"p{n}") for n in range(4)])
    await Accounts(db, Vault([new_key()])).save([("lost@x", "p")])
    await db.rows("UPDATE account_table SET temp_token = $1 WHERE account_email = '2@x'", old.seal("token"))
    newest = new_key()
    both, alone = Vault([newest, *settings.secret_keys]), Vault([newest])
    first = await rotate(db, both, 0, 2)
    assert (first.seen, first.sealed, first.unreadable) == (2, 2, [])
    assert first.next is not None
    await Accounts(db, both).save([("3@x", "changed")])
    pages = [first]
    while (after := pages[-1].next) is not None:
        pages.append(await rotate(db, both, after, 2))
    rest = [(page.seen, page.sealed, len(page.unreadable)) for page in pages[1:]]
    assert [sum(figures) for figures in zip(*rest, strict=True)] == [3, 1, 1]
    rows = await db.rows("SELECT * FROM account_table WHERE account_email <> 'lost@x' ORDER BY account_email")
    assert [alone.open(row["account_password"]) for row in rows] == ["p0", "p1", "p2", "changed"]
    assert [alone.open(row["temp_token"]) for row in rows if row["temp_token"]] == ["token"]
    again = await rotate(db, both, 0, 10)
    assert (again.seen, again.sealed, again.next) == (5, 0, None)


async def test_the_best_rating_goes_first_then_the_longest_idle(accounts: Accounts, leases: Leases) -> None:
    await accounts.save([(f"{n}@x", "p") for n in range(4)])
    ids = [a.id for a in await accounts.page(None, 0, 10)]
    await accounts.set_rate(ids[0], 0.5)
    await accounts.set_rate(ids[1], 0)
    first = await leases.acquire("w", 1)
    assert first[0].account in ids[2:]
    await leases.give_back(first[0], Return(1.0))
    second = await leases.acquire("w", 1)
    assert second[0].account in set(ids[2:]) - {first[0].account}  # the other one has been idle for longer
    rest = await leases.acquire("w", 10)
    assert [lease.account for lease in sorted(rest, key=lambda x: -x.rate)] == [first[0].account, ids[0]]
    assert "password" not in repr(rest[0])
    assert (await accounts.get(ids[1])).state is AccountState.IDLE  # type: ignore[union-attr]


async def test_an_account_is_never_leased_twice(accounts: Accounts, leases: Leases) -> None:
    """Fifty seats, five accounts (FIELD 19)."""
    await accounts.save([(f"{n}@x", "p") for n in range(5)])
    got = await asyncio.gather(*(leases.acquire(f"w{n}", 1) for n in range(50)))
    held = [lease.account for found in got for lease in found]
    assert len(held) == len(set(held)) == 5


async def test_the_databases_clock_ends_a_lease_and_the_term_fences_the_old_holder(
    db: Database, accounts: Accounts, leases: Leases
) -> None:
    await accounts.save([("a@x", "p")])
    (old,) = await leases.acquire("old", 1)
    assert await leases.renew([old]) == []
    assert await leases.expire(10) == []
    later = await now(db) + timedelta(seconds=31)
    assert await leases.renew([old], now=later) == [old]  # too late: lost
    assert old.trusted_until == 0
    assert await leases.expire(10, now=later) == [(old.account, "old")]
    (new,) = await leases.acquire("new", 1)
    assert new.term == old.term + 1
    assert not await leases.give_back(old, Return(0.1))
    assert not await leases.save_token(old, "stolen", None)
    shown = await accounts.get(old.account)
    assert shown is not None
    assert (shown.state, shown.rate, shown.lease_owner) == (AccountState.USING, 1.0, "new")
    assert await leases.save_token(new, "token", "user")
    assert await leases.give_back(new, Return(0.9))
    (again,) = await leases.acquire("new", 1)
    assert (again.token, again.user_id) == ("token", "user")


async def test_the_pace_survives_the_lease_and_the_death_of_its_holder(
    db: Database, accounts: Accounts, leases: Leases
) -> None:
    await accounts.save([("a@x", "p")])
    (first,) = await leases.acquire("w", 1)
    assert (first.pace, first.pace_found, first.throttled) == (None, False, 0)
    first.pace, first.pace_found, first.throttled = 24.5, True, 2
    assert await leases.renew([first]) == []  # and then it is killed
    later = await now(db) + timedelta(seconds=31)
    await leases.expire(10, now=later)
    (second,) = await leases.acquire("w", 1)
    assert (second.pace, second.pace_found, second.throttled) == (24.5, True, 2)
    second.pace, second.throttled = 26.0, 0
    await leases.give_back(second, Return(1.0))
    (third,) = await leases.acquire("w", 1)
    assert (third.pace, third.pace_found, third.throttled) == (26.0, True, 0)
    first.pace = 99.0
    await leases.renew([first])  # a late one changes nothing
    assert (await accounts.get(third.account)).pace == 26.0  # type: ignore[union-attr]


async def test_rest_and_disable(db: Database, accounts: Accounts, leases: Leases) -> None:
    await accounts.save([("a@x", "p")])
    (lease,) = await leases.acquire("w", 1)
    await leases.give_back(lease, Return(0.7, rest_s=60, error="slow down"))
    shown = await accounts.get(lease.account)
    assert shown is not None
    assert (shown.state, shown.rate, shown.last_error) == (AccountState.RESTING, 0.7, "slow down")
    assert await leases.acquire("w", 1) == []
    rested = await now(db) + timedelta(seconds=61)
    (lease,) = await leases.acquire("w", 1, now=rested)
    await leases.give_back(lease, Return(0.0, disable=True, error="banned"))
    assert await leases.acquire("w", 1, now=rested) == []
    assert [a.email for a in await accounts.page(AccountState.DISABLED, 0, 10)] == ["a@x"]


async def test_a_released_account_waits_for_its_holder_to_stop_trusting(accounts: Accounts, leases: Leases) -> None:
    await accounts.save([("a@x", "p")])
    (lease,) = await leases.acquire("w", 1)
    released = await accounts.release(lease.account)
    assert released is not None
    assert released.state is AccountState.RESTING
    assert released.rest_until is not None
    assert await leases.acquire("other", 1) == []  # the holder may still be using it
    assert await leases.renew([lease]) == [lease]  # and learns at its next renewal that it must stop
    await accounts.disable(lease.account)
    assert (await accounts.release(lease.account)).state is AccountState.RESTING  # type: ignore[union-attr]


async def test_an_import_can_be_repeated(accounts: Accounts) -> None:
    assert await accounts.save([("a@x", "1"), ("b@x", "2")]) == (2, 0)
    assert await accounts.save([("a@x", "3"), ("c@x", "4")]) == (1, 1)


async def test_an_advisory_lock_has_one_holder_and_dies_with_its_connection(db: Database) -> None:
    async with db.exclusive(77) as first:
        assert first is not None
        async with db.exclusive(77) as second:
            assert second is None
        await db.rows("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 77")
        with pytest.raises(DatabaseUnavailable):
            await first()
        async with db.exclusive(77) as third:
            assert third is not None


async def test_a_terminated_backend_is_unavailable_then_fine(db: Database) -> None:
    await db.rows("SELECT 1")
    admin = await asyncpg.connect(db._settings.postgres_url)
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await admin.close()
    assert await db.insist(db.ping) is None or await db.ping() is None


async def test_a_rate_that_an_operator_sets_on_a_held_account_stays(accounts: Accounts, leases: Leases) -> None:
    await accounts.save([("a@x", "p")])
    (lease,) = await leases.acquire("w", 1)
    await accounts.set_rate(lease.account, 0)
    await leases.give_back(lease, Return(1.0))
    shown = await accounts.get(lease.account)
    assert shown is not None
    assert (shown.rate, shown.state) == (0, AccountState.DISABLED)


async def test_an_account_in_use_cannot_be_removed(accounts: Accounts, leases: Leases) -> None:
    """Else it could be imported anew and leased while its holder still trusts the old lease."""
    await accounts.save([("a@x", "p")])
    (lease,) = await leases.acquire("w", 1)
    assert await accounts.remove(lease.account) is False
    await accounts.disable(lease.account)
    assert await accounts.remove(lease.account) is False
    assert await accounts.remove(10**9) is None
    await accounts.release(lease.account)
    await leases._db.rows("UPDATE account_table SET lease_until = now() - interval '1 s'")
    assert await accounts.remove(lease.account) is True


async def test_an_account_sealed_with_a_lost_key_is_disabled_and_the_others_are_leased(
    db: Database, accounts: Accounts, leases: Leases
) -> None:
    await Accounts(db, Vault([new_key()])).save([("lost@x", "p")])
    await accounts.save([("good@x", "p")])
    assert [lease.email for lease in await leases.acquire("w", 5)] == ["good@x"]
    lost = next(a for a in await accounts.page(None, 0, 10) if a.email == "lost@x")
    assert lost.state is AccountState.DISABLED
    assert "add that key" in (lost.last_error or "")
