"""Where webhooks may go. No I/O: what a name resolves to is checked when the connection is made."""

import ipaddress
import urllib.parse

from cuscuta import limits
from cuscuta.errors import InputError
from cuscuta.settings import Settings

_GLOBAL = ipaddress.ip_network("2000::/3")  # all that is given out of IPv6
_TRANSLATED = [ipaddress.ip_network(net) for net in ("2002::/16", "2001::/32")]


def public(address: str) -> bool:
    """Whether an IP address is one of the public Internet; those that carry another one inside never count as such."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return public(str(found.ipv4_mapped))
        if found not in _GLOBAL or any(found in net for net in _TRANSLATED):
            return False
    return found.is_global and not found.is_multicast


def check(url: str, settings: Settings) -> None:
    """Raises InputError for a webhook that this deployment does not send."""
    if not settings.webhook_secrets:
        raise InputError(
            "webhook", "this deployment signs no webhooks", "Set CUSCUTA_WEBHOOK_SECRETS, or leave it out."
        )
    if len(url.encode(errors="replace")) > limits.HOOK_URL_BYTES or not url.isprintable():
        raise InputError("webhook", "is too long or not printable", f"At most {limits.HOOK_URL_BYTES} bytes are taken.")
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InputError("webhook", "is no URL", "Send something like https://example.com/hook.") from None
    if parts.scheme not in ("https", "http") or not host:
        raise InputError("webhook", "is no URL of the web", "Send something like https://example.com/hook.")
    if parts.username is not None:
        raise InputError("webhook", "holds credentials", "Webhooks are signed; check the signature instead.")
    if settings.webhook_allow_private:
        return
    if parts.scheme != "https":
        raise InputError("webhook", "goes without TLS", "Send an https URL.")
    literal = host.replace(":", "").replace(".", "").isalnum() and (":" in host or host.replace(".", "").isdigit())
    if host == "localhost" or host.endswith(".localhost") or (literal and not public(host)):
        raise InputError("webhook", f"{host} is no public address", "Send an address of the public Internet.")


def shown(url: str | None) -> str | None:
    """A webhook as the API shows it: path and query may hold a secret."""
    return f"{url.split('/', 3)[0]}//{urllib.parse.urlsplit(url).netloc}/…" if url else None
