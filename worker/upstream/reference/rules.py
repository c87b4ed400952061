"""What the reference upstream remembers and when it refuses: no HTTP in here."""

import hashlib
import math
from collections import Counter, deque
from dataclasses import dataclass, field


def score(target: str, item: str) -> int:
    """What the upstream knows: a number for every target and item."""
    return int.from_bytes(hashlib.sha256(f"{target}\0{item}".encode()).digest()[:4], "big")


@dataclass
class Profile:
    """How an account behaves. `mode` makes it misbehave: a status such as `500`, or garbage, nothing, slow."""

    password: str
    latency_s: float = 0.02
    rate_per_s: float | None = None
    mode: str = ""
    mode_calls: int | None = None  # how many calls the mode lasts; None: for ever
    retry_after: str | None = None
    follow_s: float = 0.0
    window_calls: int | None = None  # polls in a window of `window_s`, which begins anew once it is over
    window_s: float = 5.0
    tells: str = ""  # how it says what is left of the window: `ratelimit` for one structured header, or a family's name
    tokens: dict[str, float] = field(default_factory=dict)
    friends: dict[str, str] = field(default_factory=dict)  # id -> target
    recent: deque[float] = field(default_factory=deque)
    running: int = 0
    window_ends: float = 0.0
    window_used: int = 0


@dataclass
class Call:
    """One poll as it happened; times are monotonic."""

    email: str
    target: str
    item: str
    began: float
    ended: float = 0.0
    status: int = 0


class World:
    """All accounts and what they did."""

    def __init__(self, token_ttl_s: float = 3600.0, slots: int = 50, log_calls: int = 500_000) -> None:
        self.accounts: dict[str, Profile] = {}
        self.token_ttl_s, self.slots = token_ttl_s, slots
        self.calls: deque[Call] = deque(maxlen=log_calls)
        self.counts: Counter[str] = Counter()
        self.traces: Counter[str] = Counter()  # requests by trace id
        self.overlaps = 0  # polls that began while another of the same account ran
        self.over_rate = 0  # polls past an account's allowance
        self._serial = 0

    def log_in(self, email: str, password: str, now: float) -> str | None:
        """A token, or None for wrong credentials."""
        self.counts["logins"] += 1
        account = self.accounts.get(email)
        if account is None or account.password != password:
            return None
        self._serial += 1
        token = f"{email}/{self._serial}"
        account.tokens = {t: until for t, until in account.tokens.items() if until > now}
        account.tokens[token] = now + self.token_ttl_s
        return token

    def who(self, token: str, now: float) -> str | None:
        """The email behind a token that is still good."""
        email = token.partition("/")[0]
        account = self.accounts.get(email)
        return email if account and account.tokens.get(token, 0.0) > now else None

    def expire_tokens(self) -> None:
        """Every session ends."""
        for account in self.accounts.values():
            account.tokens.clear()

    def follow(self, email: str, target: str) -> str | None:
        """A friend's id, the same for the same target; None if all slots are taken."""
        account = self.accounts[email]
        self.counts["follows"] += 1
        name = hashlib.sha256(target.encode()).hexdigest()[:12]
        if name not in account.friends and len(account.friends) >= self.slots:
            return None
        account.friends[name] = target
        return name

    def misbehaves(self, account: Profile) -> str:
        """The mode that this call falls under."""
        if not account.mode or account.mode_calls is None:
            return account.mode
        if account.mode_calls <= 0:
            account.mode = ""
            return ""
        account.mode_calls -= 1
        return account.mode

    def within_window(self, account: Profile, now: float) -> bool:
        """Whether an account's window has room for one more poll; counts it."""
        if account.window_calls is None:
            return True
        if now >= account.window_ends:
            account.window_ends, account.window_used = now + account.window_s, 0
        account.window_used += 1
        return account.window_used <= account.window_calls

    def told(self, account: Profile, now: float) -> dict[str, str]:
        """The headers that say what is left of an account's window; none if it does not tell."""
        if account.window_calls is None or not account.tells:
            return {}
        left, reset_s = max(0, account.window_calls - account.window_used), math.ceil(account.window_ends - now)
        if account.tells == "ratelimit":
            return {"ratelimit": f'"polls";r={left};t={reset_s}'}
        return {f"{account.tells}-remaining": str(left), f"{account.tells}-reset": str(reset_s)}

    def within_rate(self, account: Profile, now: float) -> bool:
        """Whether an account may poll now: at most its allowance in any second, and a tenth more for jitter."""
        if account.rate_per_s is None:
            return True
        while account.recent and account.recent[0] <= now - 1.0:
            account.recent.popleft()
        if len(account.recent) >= max(1.0, account.rate_per_s * 1.1):
            self.over_rate += 1
            return False
        account.recent.append(now)
        return True
