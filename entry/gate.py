"""The tokens of requests, and who failed.

A token that was checked is believed for a few seconds, and while PostgreSQL is away for some minutes, so that its
absence keeps nobody from his jobs. Whoever fails too often is told to wait before anything is looked up.
"""

import asyncio
import ipaddress
from collections import OrderedDict
from typing import TypeVar

from litestar.exceptions import HTTPException

from cuscuta import limits
from cuscuta.clock import Clock
from cuscuta.db import Scope, Token, Tokens
from cuscuta.db.tokens import Key, parse
from cuscuta.errors import DatabaseUnavailable
from entry.caller import Caller

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

BELIEVED_S = 5.0  # how long a token that was revoked elsewhere may go on here
_AWAY_S = 300.0  # the same while PostgreSQL cannot be asked
_ASK_AGAIN_S = 2.0  # while it cannot, how often it is tried
_LOOK_S = 1.0  # no stream waits longer than this for an answer
_FAILURES, _WINDOW_S = 10, 60.0  # of one address


class Asking:
    """Requests of one address whose tokens have to be looked up."""

    def __init__(self) -> None:
        self.lock, self.waiting = asyncio.Lock(), 0


class Gate:
    """Knows the tokens that were seen, by the hash of their secrets, and who failed."""

    def __init__(self, tokens: Tokens, clock: Clock, *, insecure: bool) -> None:
        self.tokens, self._clock, self.insecure = tokens, clock, insecure
        self._seen: OrderedDict[Key, tuple[Token, float]] = OrderedDict()
        self._lasted: OrderedDict[int, float] = OrderedDict()  # of tokens that streams go on for
        self._revoked: OrderedDict[int, None] = OrderedDict()  # here, lately
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._asking: dict[str, Asking] = {}
        self._looking: set[int] = set()  # tokens of streams that are being asked for
        self._away_until = 0.0

    async def caller(self, authorization: str | None, address: str) -> Caller:
        """Who sends this. Raises HTTPException (401, 429), DatabaseUnavailable."""
        if self.insecure:
            return Caller("", Scope.ADMIN)
        kind, _, text = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not text:
            raise refused(401, "Send `Authorization: Bearer <token>`; `cuscuta tokens make` makes one.")
        key, now = parse(text.strip()), self._clock.monotonic()
        token, seen_at = self._seen.get(key, (None, 0.0)) if key else (None, 0.0)
        if token is not None and self._dead(token):
            raise refused(401, _DEAD)
        age_s = now - seen_at
        if token is not None and (age_s <= BELIEVED_S or (now < self._away_until and age_s <= _AWAY_S)):
            return _caller(token)
        return await self._ask(key, _network(address))

    async def _ask(self, key: Key | None, address: str) -> Caller:
        """Ask the database, one after another for an address: a burst of guesses is counted like any other."""
        asking = self._asking.setdefault(address, Asking())
        asking.waiting += 1
        try:
            async with asking.lock:
                return await self._answered(key, address)
        finally:
            asking.waiting -= 1
            if not asking.waiting:
                del self._asking[address]

    async def _answered(self, key: Key | None, address: str) -> Caller:
        now = self._clock.monotonic()
        token, seen_at = self._seen.get(key, (None, 0.0)) if key else (None, 0.0)
        if token is not None and now - seen_at <= BELIEVED_S and not self._dead(token):
            return _caller(token)  # somebody before us has asked
        if now < self._away_until:  # somebody before us has asked in vain
            return self._without_answer(token, now - seen_at)
        failures = self._failing(address, now)
        if token is None and len(failures) >= _FAILURES:
            wait_s = int(failures[0] + _WINDOW_S - now) + 1
            detail = "Too many requests with a wrong token from this address."
            raise refused(429, detail, {"Retry-After": str(wait_s)})
        try:
            found = await self.tokens.check(key) if key else None
        except DatabaseUnavailable:
            self._away_until = self._clock.monotonic() + _ASK_AGAIN_S
            return self._without_answer(token, now - seen_at)
        if key:
            self._seen.pop(key, None)
        if key is None or found is None or self._dead(found):
            failures.append(now)
            raise refused(401, _DEAD)
        _keep(self._seen, key, (found, now), limits.TOKENS)
        _keep(self._lasted, found.id, now, limits.TOKENS)
        return _caller(found)

    def _without_answer(self, token: Token | None, age_s: float) -> Caller:
        if token is None or age_s > _AWAY_S:
            raise DatabaseUnavailable("nobody can be asked whose token this is")
        return _caller(token)

    async def lasts(self, caller: Caller) -> bool:
        """Whether the token of a stream under way is still good: asked every few seconds, by one for all its streams.

        While PostgreSQL cannot be asked, streams go on for as long as requests do, from their first look on.
        """
        if self.insecure:
            return True
        number, now = int(caller.token), self._clock.monotonic()
        if number in self._revoked or (caller.expires_at and caller.expires_at <= self._clock.wall()):
            return False
        good_at = self._lasted.setdefault(number, now)  # forgotten among many others: it was good a moment ago
        if now - good_at < BELIEVED_S:
            return True
        if now >= self._away_until and number not in self._looking:
            self._looking.add(number)
            try:
                async with asyncio.timeout(_LOOK_S):
                    if not await self.tokens.lives(number):
                        self.forget(number)
                        return False
                _keep(self._lasted, number, now, limits.TOKENS)
                return True
            except (DatabaseUnavailable, TimeoutError):
                self._away_until = self._clock.monotonic() + _ASK_AGAIN_S
            finally:
                self._looking.discard(number)
        return now - good_at <= _AWAY_S

    def forget(self, token: int) -> None:
        """A token was revoked here: it is not to be believed any longer, whoever is just asking for it."""
        _keep(self._revoked, token, None, limits.TOKENS)

    def recall(self, token: int) -> None:
        """There is no such token yet: the one that will have this id is to be believed."""
        self._revoked.pop(token, None)

    def _dead(self, token: Token) -> bool:
        return token.id in self._revoked or (token.expires_at is not None and token.expires_at <= self._clock.wall())

    def _failing(self, address: str, now: float) -> list[float]:
        """The failures of an address that still count; the list that is kept."""
        found = self._failures.get(address, [])
        found[:] = [at for at in found if now - at < _WINDOW_S]
        _keep(self._failures, address, found, limits.ADDRESSES)
        return found


_DEAD = "The token is unknown, revoked or has expired."


def _keep(kept: OrderedDict[KeyT, ValueT], key: KeyT, value: ValueT, most: int) -> None:
    """The newest so many."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)


def _network(address: str) -> str:
    """Whom failures are counted against: an IPv4 address, or the /64 that one host of IPv6 is given."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]  # a proxy's header said so
    found = getattr(found, "ipv4_mapped", None) or found
    return str(found) if found.version == 4 else str(ipaddress.ip_network(f"{found}/64", strict=False))


def _caller(token: Token) -> Caller:
    return Caller(str(token.id), token.scope, token.group, token.expires_at)


def refused(status: int, detail: str, headers: dict[str, str] | None = None) -> HTTPException:
    """An answer to whoever may not."""
    known = {401: {"WWW-Authenticate": 'Bearer realm="cuscuta"'}}
    return HTTPException(detail, status_code=status, headers={**known.get(status, {}), **(headers or {})})
