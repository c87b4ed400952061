"""The users of deploy/nats with passwords for tests, and one who may do everything: the test itself."""

import re
from pathlib import Path

FILE = Path(__file__).parents[2] / "deploy" / "nats" / "users.conf"
PARTS = ("entry", "worker", "reaper", "inspector", "backup")


def password(user: str) -> str:
    return f"password-of-{user}"


def conf() -> str:
    """An authorization block for nats-server."""
    text = re.sub(r"\$CUSCUTA_NATS_([A-Z]+)_PASSWORD", lambda m: f'"{password(m[1].lower())}"', FILE.read_text())
    ours = f'users: [ {{ user: "tests", password: "{password("tests")}" }}'
    return text.replace("users: [", ours, 1)


SEAL = "the-seal-of-those-who-may-accept-jobs"


def login(user: str) -> dict[str, str]:
    """Settings with which a part logs in; those who accept jobs have the seal as well."""
    seal = {"seal_keys": SEAL} if user in ("entry", "reaper", "tests") else {}
    return {"nats_user": user, "nats_password": password(user), **seal}
