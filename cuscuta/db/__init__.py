"""PostgreSQL: the only package that knows asyncpg. SQL stays SQL, and only the database's clock judges a lease."""

from cuscuta.db.accounts import Account, Accounts
from cuscuta.db.database import Database
from cuscuta.db.leases import Lease, Leases
from cuscuta.db.tokens import Scope, Token, Tokens
from cuscuta.db.vault import Vault

__all__ = ["Account", "Accounts", "Database", "Lease", "Leases", "Scope", "Token", "Tokens", "Vault"]
