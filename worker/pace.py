"""How fast an account may be used, found out by using it. Pure: the caller hands in the time, and sleeps.

Calls are spaced evenly (GCRA), so that no window of the upstream's can overflow, whatever its length. Where the
allowance is unknown the pace begins polite, doubles while answers are good and the pace is what holds calls back, and
at the first refusal becomes what the upstream really let pass. From then on it feels upwards rarely and in small steps:
a step that is refused is taken back and makes the next one wait twice as long.
"""

import math
from collections import deque
from typing import NamedTuple

from cuscuta import limits

_DOUBLING_S = 0.25  # of good answers
_WINDOW_S = 1.0  # what passed in this time before a refusal is the allowance
_LONG_S = 5.0  # the second refusal with a longer rest comes from a window longer than ours: use the average
_BELOW = 0.98  # of what passed: leaves room for jitter
_FALL_MOST = 0.5  # once the allowance was found, a refusal takes no more than half
_FEEL_S, _FEEL_MOST_S = 60.0, 600.0  # without a refusal, before the next step upwards
_REGAIN_S = 5.0  # the same, below a rate that the adapter declares
_STEP, _STEP_MOST = 0.03, 0.25
_TRIED_S = 2.0  # a step that went well for this long is kept
_TOLD_LEAST_S = 2.0  # of a told window: below it, whole seconds are too coarse to divide by
_SLACK_S = 0.004  # a call that was woken late, which timers of 1 ms do, does not push back all later ones


class Learnt(NamedTuple):
    """What the next holder starts from. `found`: a refusal has shown where the allowance ends."""

    rate_per_s: float
    found: bool


class Quota(NamedTuple):
    """What an upstream says in its headers: so many more calls within so many seconds."""

    remaining: float
    reset_s: float


class Pace:
    """One account's pace. `cap` is what the adapter declares: None for unknown, infinite for no limit at all."""

    def __init__(self, now: float, cap: float | None, learnt: Learnt | None = None) -> None:
        self._cap = math.inf if cap is None else cap
        self._found = cap is not None or (learnt is not None and learnt.found)
        self.rate_per_s = min(self._cap, learnt.rate_per_s) if learnt else cap or limits.PACE_START_PER_S
        self._next = now + self._interval()  # the holder before may have called a moment ago
        self._held_back = False
        self._passed: deque[float] = deque(maxlen=limits.PACE_REMEMBERED)
        self._passed_since_rest, self._refused_at, self._rested_at = 0, now, now
        self._patience_s = _FEEL_S if cap is None else _REGAIN_S
        self._settled_at, self._proven, self._step, self._feel_s = now, 0.0, _STEP, self._patience_s
        self._told = False  # a rate that was told is told to the next holder as well, and may be of a moment only
        self._told_until, self._long, self._tried_s = 0.0, False, _TRIED_S

    @property
    def learnt(self) -> Learnt | None:
        """What to keep for the next holder; None if there is nothing that the adapter does not say itself."""
        if math.isinf(self.rate_per_s) or self._told:
            return None
        return Learnt(self.rate_per_s, self._found)

    def _interval(self) -> float:
        return 1.0 / self.rate_per_s

    def reserve(self, now: float) -> float:
        """Book the next call; how many seconds it must wait."""
        interval = self._interval()
        at = max(self._next, now - min(interval / 2, _SLACK_S))
        self._next = at + interval
        self._held_back = self._held_back or at > now
        return max(0.0, at - now)

    def good(self, now: float) -> None:
        """A call was answered."""
        self._passed.append(now)
        self._passed_since_rest += 1
        held_back, self._held_back = self._held_back, False
        if not held_back or self.rate_per_s >= self._cap or now < self._told_until:
            return
        if not self._found:
            self._set(self.rate_per_s * 2.0 ** (1.0 / max(1.0, _DOUBLING_S * self.rate_per_s)))
        elif now - self._settled_at >= (self._tried_s if self._proven else self._feel_s):
            self._step = min(_STEP_MOST, self._step * 2) if self._proven else _STEP
            self._proven = self._proven or self.rate_per_s
            self._set(self.rate_per_s * (1 + self._step))
            self._settled_at = now

    def refused(self, now: float, began: float, rest_s: float) -> None:
        """A call that began at a time was refused, with a rest to follow."""
        if began < self._refused_at and self._found:
            return  # of the same burst as the last refusal
        if not self._passed_since_rest:  # refusals alone teach nothing about the rate; the rests grow instead
            self._refused_at, self._rested_at = now, now + rest_s
            return
        passed = sum(1 for at in self._passed if at > now - _WINDOW_S) / _WINDOW_S
        again, self._long = self._long and rest_s > _LONG_S, rest_s > _LONG_S
        if again:
            passed = self._passed_since_rest / max(now - self._rested_at + rest_s, _WINDOW_S)
            self._set(min(self.rate_per_s, passed) * _BELOW)
            self._tried_s = max(self._tried_s, min(rest_s, _FEEL_MOST_S))
        elif self._proven:  # back to what was good before the first step of this climb, or to what passed
            far = self._step > _STEP * 2 and self._tried_s == _TRIED_S
            self._set(max(self._proven, passed * _BELOW) if far else self._proven)
            self._feel_s = min(_FEEL_MOST_S, self._feel_s * 2) if not far else self._patience_s
        elif math.isinf(self.rate_per_s):
            self._set(max(limits.PACE_START_PER_S, passed * _BELOW))
        else:
            least = self.rate_per_s * _FALL_MOST if self._found else 1.0 / _FEEL_S
            self._set(max(least, min(self.rate_per_s, passed) * _BELOW))
        self._found, self._proven = True, 0.0
        self._passed_since_rest, self._refused_at, self._rested_at, self._settled_at = 0, now, now + rest_s, now

    def told(self, now: float, quota: Quota) -> None:
        """The upstream said what is left: spread it evenly over the time until it begins anew.

        Of a window of a second or two, told in whole seconds, that says too little; there it is enough to wait at its
        end.
        """
        reset_s = min(quota.reset_s, limits.REST_S)
        if quota.remaining < 1:
            self._next = max(self._next, now + reset_s)
        elif reset_s > _TOLD_LEAST_S:
            self._told_until = now + reset_s
            self._told = self._found = True
            self._set(quota.remaining / (reset_s - 0.5))  # mostly told in whole seconds, rounded up

    def _set(self, rate_per_s: float) -> None:
        self.rate_per_s = max(limits.PACE_LEAST_PER_S, min(self._cap, rate_per_s))
