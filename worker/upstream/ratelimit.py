"""What upstreams say about their allowance in headers: Retry-After, X-RateLimit-*, RateLimit-*, RateLimit.

Pure. The forms: RFC 9110 §10.2.3 (Retry-After), the drafts of the IETF's httpapi group (`RateLimit-Remaining` and
`-Reset`, then `RateLimit: limit=…, remaining=…, reset=…`, then `RateLimit: "name";r=…;t=…`), and the older X- family,
whose reset is a number of seconds with some and a moment since 1970 with others.
"""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

from worker.pace import Quota

_EPOCH = 1_000_000_000  # a reset above this is a moment (September 2001 and later), not a duration
_MILLISECONDS = 100_000_000_000
_FAMILIES = ("ratelimit", "x-ratelimit", "x-rate-limit")
_PAIR = re.compile(r"\b(r|t|remaining|reset)\s*=\s*(\d+(?:\.\d+)?)")


def retry_after(text: str | None, now: datetime) -> float | None:
    """Seconds of a Retry-After header, given as a number or as a date; None for none or nonsense."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(text) - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def quota(headers: Mapping[str, str], now: datetime) -> Quota | None:
    """What is left, if the headers (a mapping that takes lower case keys) say so; of several windows the tightest."""
    if text := headers.get("ratelimit"):
        return _structured(text)
    for family in _FAMILIES:
        remaining, reset = _number(headers.get(f"{family}-remaining")), _number(headers.get(f"{family}-reset"))
        if remaining is not None and reset is not None:
            if reset > _MILLISECONDS:
                reset /= 1000
            if reset > _EPOCH:
                reset -= now.timestamp()
            return Quota(remaining, max(0.0, reset))
    return None


def _structured(text: str) -> Quota | None:
    windows = text.split(",") if ";" in text else [text]
    found = []
    for window in windows:
        pairs = {key[0:3]: float(value) for key, value in _PAIR.findall(window)}
        remaining, reset = pairs.get("r", pairs.get("rem")), pairs.get("t", pairs.get("res"))
        if remaining is not None and reset is not None:
            found.append(Quota(remaining, reset))
    return min(found, key=lambda q: q.remaining / max(q.reset_s, 1.0), default=None)


def _number(text: str | None) -> float | None:
    try:
        number = float((text or "").split(",")[0].split(";")[0])
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
