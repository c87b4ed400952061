"""Secrets at rest: Fernet with rotating keys. The first key encrypts, all of them decrypt."""

from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from cuscuta.errors import CuscutaError


class VaultError(CuscutaError):
    """A key is malformed, or a secret was encrypted with a key that is not among ours."""


def new_key() -> str:
    """A fresh key for `CUSCUTA_SECRET_KEYS`."""
    return Fernet.generate_key().decode()


class Vault:
    """Encrypts and decrypts short texts."""

    def __init__(self, keys: Sequence[str]) -> None:
        try:
            fernets = [Fernet(key) for key in keys]
            self._fernet, self._newest = MultiFernet(fernets), fernets[0]
        except (ValueError, IndexError) as error:
            raise VaultError(
                "secret_keys holds something that is not a Fernet key. Make one with: cuscuta secret-key"
            ) from error

    def seal(self, text: str) -> str:
        """Encrypt."""
        return self._fernet.encrypt(text.encode()).decode()

    def open(self, token: str) -> str:
        """Decrypt. Raises VaultError."""
        try:
            return self._fernet.decrypt(token.encode()).decode()
        except InvalidToken as error:
            raise VaultError("a secret was encrypted with a key that is not in secret_keys; add that key") from error

    def renew(self, token: str) -> str:
        """The same secret sealed with the newest key; as it is if it was. Raises VaultError."""
        try:
            self._newest.decrypt(token.encode())
        except InvalidToken:
            return self.seal(self.open(token))
        return token
