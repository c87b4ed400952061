"""One leased account at work: its session, its pace, its rate, what it follows."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from cuscuta import backoff, instruments, limits
from cuscuta.clock import Clock
from cuscuta.db import Lease
from cuscuta.db.leases import Return
from cuscuta.errors import AccountForbidden, AuthenticationFailed, CuscutaError, Throttled, UpstreamTimeout
from cuscuta.model import Item
from cuscuta.settings import Settings
from worker.cutoff import Cutoffs
from worker.failures import describe
from worker.leaser import Leaser
from worker.pace import Learnt, Pace
from worker.upstream.protocol import Session, Target, Upstream

if TYPE_CHECKING:
    from worker.rides import Rider

ResultT = TypeVar("ResultT")

ASKED_S = 0.0005  # what is quicker has asked nobody, and measuring it would take a tenth of its time
HALT_GRACE_S = 0.5  # the item in hand may take this much longer after SIGTERM: hand-over stays below a second


class LeaseLost(CuscutaError):
    """The lease can no longer be trusted: stop using the account and throw away what is not stored."""


class Cut(CuscutaError):
    """A call was cut off because the process halts or the job has ended."""


class Account:
    """Everything a seat does with its account goes through here."""

    def __init__(self, lease: Lease, upstream: Upstream, leaser: Leaser, settings: Settings, clock: Clock) -> None:
        self.lease, self._upstream, self._leaser, self._settings, self._clock = lease, upstream, leaser, settings, clock
        self.session = Session(email=lease.email, password=lease.password, user_id=lease.user_id, token=lease.token)
        self._tokens = {lease.token}  # all that this lease has seen
        self.rate = lease.rate
        self.item_s: float | None = None  # how long a poll takes with this account
        self._follow_s: float | None = None
        self._login = asyncio.Lock()
        self._reset = False
        self._follows: dict[str, Target] = {}  # by uid
        self._calls, self._pauses = Cutoffs(), Cutoffs()
        self.riding: Sequence[Rider] = ()  # other jobs that take part in its polls
        self.aborted = False  # a call was cut off: the upstream may still be at it
        declared = upstream.capacity.rate_per_s
        self._longest_s = max(settings.item_timeout_s, 2 / declared if declared else 0.0)
        learnt = Learnt(lease.pace, lease.pace_found) if lease.pace else None
        self.pace = Pace(clock.monotonic(), declared, learnt)  # of every call, logging in too

    def describe(self, error: BaseException) -> str:
        """An error for a person, without what of this account is secret."""
        return describe(error, self.session.password, self.session.token, *self._tokens)

    # --- calls ---------------------------------------------------------------------------------------------------

    async def poll(self, target: Target, item: Item) -> Any:
        """One poll."""
        return await self._logged_in(lambda: self._upstream.poll(self.session, target, item))

    async def poll_shared(self, targets: Sequence[Target], item: Item) -> Sequence[Any]:
        """One poll for several targets; a value or an UpstreamError for each."""
        return await self._logged_in(lambda: self._upstream.poll_shared(self.session, targets, item))

    def follows(self, uid: str) -> bool:
        """Whether a job's target is followed."""
        return uid in self._follows

    @property
    def costs(self) -> tuple[float, float]:
        """Seconds that a poll takes, and that following and unfollowing a target take."""
        item_s = self.item_s or 1.0
        return item_s, 2 * (self._follow_s or item_s)

    async def pause(self, seconds: float) -> None:
        """Wait between two calls; raises Cut if the process halts meanwhile."""
        try:
            with self._pauses.until(math.inf):
                await self._clock.sleep(seconds)
        except TimeoutError as error:
            raise Cut("cut off") from error

    async def target(self, uid: str, name: str, keep: Container[str] = ()) -> Target:
        """The job's target, followed if the upstream needs that; the oldest follow that need not be kept makes room."""
        if found := self._follows.get(uid):
            return found
        while len(self._follows) >= self._upstream.capacity.follow_slots:
            await self.unfollow(next(followed for followed in self._follows if followed not in keep))
        follow_id = None
        if self._upstream.needs_follow:
            if not self._reset:
                await self._logged_in(lambda: self._upstream.reset(self.session))
                self._reset = True
            began = self._clock.monotonic()
            follow_id = await self._logged_in(lambda: self._upstream.follow(self.session, name))
            self._follow_s = self._clock.monotonic() - began
        self._follows[uid] = Target(name, follow_id)
        return self._follows[uid]

    async def unfollow(self, uid: str) -> None:
        """Undo a follow; its failure is ignored."""
        target = self._follows.pop(uid, None)
        if target is None or not self._upstream.needs_follow:
            return
        with contextlib.suppress(Exception):
            await self._bounded(lambda: self._upstream.unfollow(self.session, target))

    async def forget(self, keep: Callable[[str], bool]) -> None:
        """Unfollow the targets of jobs that are over."""
        for uid in [uid for uid in self._follows if not keep(uid)]:
            await self.unfollow(uid)

    def cut(self, grace_s: float) -> None:
        """End calls and pauses under way within this time; they raise Cut."""
        self.cut_pauses(grace_s)
        self._calls.all_by(asyncio.get_running_loop().time() + grace_s)

    def cut_pauses(self, grace_s: float = 0.0) -> None:
        """End pauses only: a call that is let finish cannot overlap with the account's next one at the upstream."""
        self._pauses.all_by(asyncio.get_running_loop().time() + grace_s)

    async def _logged_in(self, call: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """A call with a session; a stale one is renewed once."""
        used = self.session.token
        if self._upstream.needs_login and not used:
            await self._log_in(used)
            used = self.session.token
        try:
            return await self._bounded(call)
        except AuthenticationFailed:
            if not self._upstream.needs_login:
                raise AccountForbidden("the upstream does not accept this account's credentials") from None
        await self._log_in(used)
        try:
            return await self._bounded(call)
        except AuthenticationFailed as error:
            raise AccountForbidden(f"not accepted even after a new login: {error}") from error

    async def _log_in(self, used: str | None) -> None:
        async with self._login:  # several polls at once may find the same token stale
            if self.session.token != used and self.session.token:
                return
            try:
                await self._bounded(lambda: self._upstream.log_in(self.session))
            except AuthenticationFailed as error:
                raise AccountForbidden(f"login refused: {error}") from error
            self._tokens.add(self.session.token)
            if self.session.token:
                await self._leaser.save_token(self.lease, self.session.token, self.session.user_id)

    async def _bounded(self, call: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """A call at the account's pace, within the item's time and within the lease's trust."""
        now = self._clock.monotonic()
        if (wait := self.pace.reserve(now)) > 0:
            if wait > self._longest_s:  # longer than a chunk should be held for: others may have what is left of it
                raise Throttled("the account's allowance is used up for now", wait)
            await self.pause(wait)
            now = self._clock.monotonic()
        trust_s = self.lease.trusted_until - now
        if trust_s <= 0:
            raise LeaseLost("the lease is over")
        try:
            answer = await self._in_time(call, now, trust_s)
        except Exception as error:
            instruments.CALLS.record(self._clock.monotonic() - now, {"error.type": type(error).__name__})
            raise
        if (took_s := self._clock.monotonic() - now) > ASKED_S:
            instruments.CALLS.record(took_s)
        return answer

    async def _in_time(self, call: Callable[[], Awaitable[ResultT]], now: float, trust_s: float) -> ResultT:
        end = asyncio.get_running_loop().time() + min(self._settings.item_timeout_s, trust_s)
        cutoff = self._calls.until(end)
        try:
            with cutoff:
                answer = await call()
            self._answered(None, now)
            return answer
        except Throttled as error:
            self._answered(error, now)
            raise
        except TimeoutError as error:
            if not cutoff.expired:
                raise  # the adapter's own
            if self.trust_s <= 0:
                raise LeaseLost("the lease ended during a call") from error
            if cutoff.end != end:
                self.aborted = True
                raise Cut("cut off") from error
            raise UpstreamTimeout(f"no answer within {self._settings.item_timeout_s:g} s") from error

    def _answered(self, refusal: Throttled | None, began: float) -> None:
        """Learn from an answer, for this holder and the next one."""
        now = self._clock.monotonic()
        if refusal is None:
            self.pace.good(now)
            self.lease.throttled = 0
        else:
            self.lease.throttled += 1
            self.pace.refused(now, began, refusal.retry_after_s or 0.0)
        if quota := self.session.quota:
            self.session.quota = None
            self.pace.told(now, quota)
        if learnt := self.pace.learnt:
            self.lease.pace, self.lease.pace_found = learnt

    # --- standing ------------------------------------------------------------------------------------------------

    @property
    def trust_s(self) -> float:
        """Seconds for which the lease can be trusted."""
        return self.lease.trusted_until - self._clock.monotonic()

    def succeeded(self) -> None:
        """A chunk was done: the rate recovers."""
        self.rate = min(1.0, self.rate + self._settings.account_recovery)

    def rest_s(self, error: Throttled) -> float:
        """How long to rest after this throttling: semi-linear back-off, and no less than the upstream asked for."""
        s, times = self._settings, self.lease.throttled
        own = backoff.semi_linear(times, s.throttle_base_s, s.throttle_cap_s, random.random())
        if error.retry_after_s is None:
            return own
        return min(limits.REST_S, max(error.retry_after_s, own if times > 1 else 0.0))

    def blamed(self, message: str) -> Return:
        """How to give the account back after an account error: the rate falls, below the floor it is disabled."""
        self.rate = max(0.0, round(self.rate - self._settings.account_penalty, 6))
        return Return(self.rate, rest_s=self._settings.throttle_base_s, disable=self.rate <= 0, error=message)
