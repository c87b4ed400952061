"""Bulk import of accounts: JSON, CSV with a header, or `email:password` lines. All or nothing, faults by line."""

import csv
import io

import msgspec

from cuscuta import limits
from cuscuta.errors import InputError
from entry.requests import AccountRequest

MEDIA_TYPES = ("application/json", "text/csv", "text/plain")


def parse(media_type: str, body: bytes) -> list[tuple[str, str]]:
    """(email, password) pairs. A repeated email must come with the same password. Raises InputError."""
    kind = media_type.split(";")[0].strip().lower()
    if kind not in MEDIA_TYPES:
        raise InputError("Content-Type", f"is {kind or 'missing'}", f"Send {', '.join(MEDIA_TYPES)}.", status=415)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("body", f"is not UTF-8 at byte {error.start}", "Save the file as UTF-8.") from error
    pairs = {"application/json": _json, "text/csv": _csv, "text/plain": _lines}[kind](text)
    if not pairs:
        raise InputError("body", "holds no account", "Send at least one.")
    if len(pairs) > limits.IMPORT_ACCOUNTS:
        raise InputError(
            "body", f"holds {len(pairs):,} accounts", f"Send at most {limits.IMPORT_ACCOUNTS:,} at a time."
        )
    return unique(pairs)


def _json(text: str) -> list[tuple[str, tuple[str, str]]]:
    try:
        accounts = msgspec.json.decode(text, type=list[AccountRequest])
    except msgspec.DecodeError as error:
        message = str(error).replace("`", "")
        raise InputError("body", message, 'Send [{"email": "...", "password": "..."}, ...].') from error
    return [(f"[{i}]", (a.email, a.password)) for i, a in enumerate(accounts)]


def _csv(text: str) -> list[tuple[str, tuple[str, str]]]:
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        if not {"email", "password"} <= set(header):
            raise InputError("line 1", "is no header with email and password", "Put email,password on the first line.")
        email, password = header.index("email"), header.index("password")
        pairs = []
        for row in reader:
            if not row:
                continue
            if len(row) <= max(email, password):
                raise InputError(f"line {reader.line_num}", f"has {len(row)} columns", f"Give it {len(header)}.")
            pairs.append((f"line {reader.line_num}", (row[email].strip(), row[password])))
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}", str(error), "Quote values that hold quotes or commas.") from error
    return pairs


def _lines(text: str) -> list[tuple[str, tuple[str, str]]]:
    pairs = []
    for n, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        email, colon, password = line.partition(":")
        if not colon:
            raise InputError(f"line {n}", "has no colon", "Write email:password.")
        pairs.append((f"line {n}", (email.strip(), password)))
    return pairs


def unique(pairs: list[tuple[str, tuple[str, str]]]) -> list[tuple[str, str]]:
    """Pairs with their places, each email once. Raises InputError at the place of an empty or contradicting one."""
    found: dict[str, tuple[str, str]] = {}
    for place, (email, password) in pairs:
        if not email or not password:
            raise InputError(place, "an empty email or password", "Give both.")
        if len(email) > 320 or len(password) > 1_024:
            raise InputError(place, "an email or password that is too long", "At most 320 and 1,024 characters.")
        if "\0" in email:
            raise InputError(place, "the email holds a zero byte", "Remove it.")
        other = found.setdefault(email, (place, password))
        if other[1] != password:
            raise InputError(place, f"{email} stands at {other[0]} with another password", "Remove one of them.")
    return [(email, password) for email, (_, password) in found.items()]
