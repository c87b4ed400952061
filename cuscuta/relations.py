"""What no setting's own type can say: relations between settings that cannot work, and shapes of texts."""

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from cuscuta.settings import Settings

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def faults(s: "Settings") -> list[str]:
    """What of the settings cannot work, worded for a person."""
    found = []

    def need(holds: bool, fault: str) -> None:
        if not holds:
            found.append(fault)

    for name in ("nats_creds", "nats_ca", "nats_cert", "nats_key"):
        path = getattr(s, name)
        need(not path or Path(path).is_file(), f"{name} ({path}) is no file. Give the path of one that can be read.")
    touch, lease = s.ack_wait_s / 3, s.lease_term_s
    need(
        s.heartbeat_s < s.presence_ttl_s / 2,
        f"heartbeat_s ({s.heartbeat_s}) must be below half of presence_ttl_s ({s.presence_ttl_s}): "
        "a live worker would be taken for gone. Lower heartbeat_s or raise presence_ttl_s.",
    )
    need(
        s.heartbeat_s < lease / 3,
        f"heartbeat_s ({s.heartbeat_s}) must be below a third of lease_term_s ({lease}). Lower heartbeat_s.",
    )
    need(
        s.lease_margin_s < lease / 3,
        f"lease_margin_s ({s.lease_margin_s}) must be below a third of lease_term_s ({lease}): "
        "a lease would be given up before it could be renewed. Lower lease_margin_s.",
    )
    need(
        s.item_timeout_s < s.ack_wait_s,
        f"item_timeout_s ({s.item_timeout_s}) must be below ack_wait_s ({s.ack_wait_s}): "
        "a stuck poll must end before its chunk is handed on. Raise ack_wait_s or lower item_timeout_s.",
    )
    need(
        s.item_timeout_s <= lease * 2 / 3 - s.lease_margin_s,
        f"item_timeout_s ({s.item_timeout_s}) must fit into a lease that is due for renewal: at most "
        f"{lease * 2 / 3 - s.lease_margin_s:g} (2/3 lease_term_s - lease_margin_s). Raise lease_term_s.",
    )
    need(
        s.flush_s < s.ack_wait_s,
        f"flush_s ({s.flush_s}) must be below ack_wait_s ({s.ack_wait_s}): results must be stored before a "
        "chunk is handed on. Lower flush_s.",
    )
    need(
        s.max_deliver > s.max_attempts,
        f"max_deliver ({s.max_deliver}) must be above max_attempts ({s.max_attempts}): "
        "it is the backstop behind it. Raise max_deliver.",
    )
    need(
        s.backoff_base_s <= s.backoff_cap_s,
        f"backoff_base_s ({s.backoff_base_s}) must not be above backoff_cap_s ({s.backoff_cap_s}).",
    )
    need(
        s.mend_after_s > touch,
        f"mend_after_s ({s.mend_after_s}) must be above a third of ack_wait_s ({touch:g}). Raise mend_after_s.",
    )
    need(
        not s.postgres_url or _is_postgres_url(s.postgres_url),
        "postgres_url must begin with postgresql://; percent-encode special characters of the password.",
    )
    need(
        all(re.match(r"(nats|tls|ws|wss)://", url) for url in s.nats_url.split(",")),
        "nats_url must be one or more addresses such as nats://host:4222, separated by commas.",
    )
    need(
        all(re.fullmatch(r"[A-Za-z0-9_-]{43}=", key) for key in s.secret_keys),
        "secret_keys holds something that is no Fernet key. Make one with: cuscuta secret-key",
    )
    need(
        all(len(key) >= 32 for key in s.seal_keys),
        "seal_keys holds something of less than 32 characters. Make one with: cuscuta secret-key",
    )
    need(
        not set(s.seal_keys) & set(s.secret_keys),
        "seal_keys holds one of secret_keys, which workers have. Make another one with: cuscuta secret-key",
    )
    need(
        all(map(_is_webhook_secret, s.webhook_secrets)),
        "webhook_secrets holds something that is no key. Make one with: cuscuta webhook-secret",
    )
    need(
        not s.webhook_url or s.webhook_allow_private or s.webhook_url.startswith("https://"),
        "webhook_url must begin with https://, or set webhook_allow_private.",
    )
    need(
        not s.webhook_url or bool(s.webhook_secrets),
        "webhook_url is set and webhook_secrets is not: webhooks are always signed. Set webhook_secrets.",
    )
    need(
        all(re.fullmatch(r"[^=]{1,64}=\s*https?://[^\s/@]+(:\d+)?/?\s+\S+\s*", entry) for entry in s.fleet),
        "fleet must be entries such as Garden=https://garden.example:8000 cus_1_…, separated by commas.",
    )
    need(
        len({entry.partition("=")[0].strip() for entry in s.fleet}) == len(s.fleet),
        "fleet names two deployments alike.",
    )
    need(
        not s.insecure or s.entry_host in LOOPBACK,
        f"insecure is set and entry_host is {s.entry_host}: anybody could do anything. Listen on 127.0.0.1, or "
        "unset insecure and make a token with: cuscuta tokens bootstrap",
    )
    need(
        s.log_format in ("json", "console", "auto"),
        f"log_format ({s.log_format!r}) must be json, console or auto.",
    )
    need(
        s.log_level in ("debug", "info", "warning", "error"),
        f"log_level ({s.log_level!r}) must be debug, info, warning or error.",
    )
    return found


def host_of(url: str) -> str:
    """The host in an address; the address itself if it has none."""
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


def _is_postgres_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("postgres", "postgresql") and (parts.port is None or parts.port > 0)
    except ValueError:  # a character of the password ended the address
        return False


def _is_webhook_secret(key: str) -> bool:
    try:
        return key.startswith("whsec_") and 24 <= len(base64.b64decode(key[6:], validate=True)) <= 64
    except ValueError:
        return False
