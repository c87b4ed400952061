"""Names for new things: unique, ordered by time, safe as one token of a NATS subject."""

import hashlib
import re
import secrets
from datetime import datetime
from functools import lru_cache

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_SHAPE = re.compile(r"[0-9a-hjkmnp-tv-z]{26}")


def _base32(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def new_uid(now: datetime) -> str:
    """26 characters: 48 bits of milliseconds, then 80 random bits, so uids sort by their time."""
    return _base32(int(now.timestamp() * 1000) << 80 | secrets.randbits(80), 26)


def uid_from(*parts: str) -> str:
    """The uid that the same parts always name; used for `Idempotency-Key`."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return _base32(int.from_bytes(digest[:16], "big"), 26)


def token_from(text: str) -> str:
    """User text as one subject token: hashed, so dots, spaces and wildcards can neither collide nor widen a filter."""
    return _base32(int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:20], "big"), 32)


def owned_token(group: str, text: str) -> str:
    """`token_from` of a group's text. What stands between the two is no text that anybody can send."""
    return token_from(f"{group}\udc00{text}" if group else text)


@lru_cache(maxsize=4_096)
def is_uid(text: str) -> bool:
    """Whether the text has a uid's shape."""
    return _SHAPE.fullmatch(text) is not None
