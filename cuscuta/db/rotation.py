"""Sealing secrets anew with the newest key, so that an old one can be taken out of `secret_keys`."""

from msgspec import Struct

from cuscuta.db.database import Database
from cuscuta.db.vault import Vault, VaultError


class Rotated(Struct):
    """What a page of the rotation did. `next` is the `after` of the next page, null at the end.

    `unreadable` are accounts sealed with a key that is not among ours; they stay as they are.
    """

    seen: int
    sealed: int
    unreadable: list[int]
    next: int | None


async def rotate(database: Database, vault: Vault, after: int, count: int) -> Rotated:
    """Go over accounts in order of id. An account whose password is changed meanwhile is left to that change."""
    rows = await database.rows(
        "SELECT id, account_password, temp_token FROM account_table WHERE id > $1 ORDER BY id LIMIT $2", after, count
    )
    changes: list[tuple[int, str, str, str | None, str | None]] = []
    unreadable: list[int] = []
    for row in rows:
        password, token = row["account_password"], row["temp_token"]
        try:
            new_password, new_token = vault.renew(password), _renewed(vault, token)
        except VaultError:
            unreadable.append(row["id"])
            continue
        if (new_password, new_token) != (password, token):
            changes.append((row["id"], password, new_password, token, new_token))
    ids, old, new, old_tokens, new_tokens = map(list, zip(*changes, strict=True)) if changes else [[]] * 5
    sealed = await database.rows(
        """
        UPDATE account_table a SET
            account_password = r.new,
            temp_token = CASE WHEN temp_token = r.old_token THEN r.new_token ELSE temp_token END
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[])
            AS r (id, old, new, old_token, new_token)
        WHERE a.id = r.id AND a.account_password = r.old RETURNING a.id
        """,
        ids,
        old,
        new,
        old_tokens,
        new_tokens,
    )
    return Rotated(len(rows), len(sealed), unreadable, rows[-1]["id"] if len(rows) == count else None)


def _renewed(vault: Vault, token: str | None) -> str | None:
    """A token of the upstream is a cache: one that cannot be opened is forgotten."""
    try:
        return vault.renew(token) if token else None
    except VaultError:
        return None
