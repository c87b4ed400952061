"""The pace against upstreams of known allowance, in simulated time; and what headers say."""

import math
import random
from collections import deque
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuscuta import limits
from worker.pace import Learnt, Pace, Quota
from worker.upstream.ratelimit import quota, retry_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Allowance:
    """At most `count` calls in any `window_s`; the rest it asks for is until there is room, if it says so."""

    def __init__(self, count: int, window_s: float, says: bool) -> None:
        self.count, self.window_s, self.says = count, window_s, says
        self.recent: deque[float] = deque()

    def ask(self, now: float) -> float | None:
        """None if the call passes, else the rest in seconds (0: it does not say)."""
        while self.recent and self.recent[0] <= now - self.window_s:
            self.recent.popleft()
        if len(self.recent) < self.count:
            self.recent.append(now)
            return None
        return math.ceil(self.recent[0] + self.window_s - now) if self.says else 0.0


def use(pace: Pace, upstream: Allowance, start: float, seconds: float, latency_s: float, late_s: float = 0.001,
        seed: int = 1) -> tuple[int, int, float]:  # fmt: skip
    """Work for a while, one call at a time; (passed, refused, when)."""
    dice, now, passed, refused = random.Random(seed), start, 0, 0
    while now < start + seconds:
        wait = pace.reserve(now)
        now += wait + (dice.random() * late_s if wait else 0.0)
        began, rest = now, upstream.ask(now)
        now += latency_s
        if rest is None:
            passed += 1
            pace.good(now)
        else:
            refused += 1
            pace.refused(now, began, rest)
            now += rest or 1.1
    return passed, refused, now


@pytest.mark.parametrize("says", [True, False])
@pytest.mark.parametrize("allowed", [4, 10, 28, 90])
def test_an_unknown_allowance_is_used_to_95_percent_with_1_percent_refused(allowed: int, says: bool) -> None:
    """Over two minutes that begin with knowing nothing (issue 3.4)."""
    pace, upstream = Pace(0.0, None), Allowance(allowed, 1.0, says)
    passed, refused, now = use(pace, upstream, 0.0, 120.0, latency_s=min(0.005, 0.5 / allowed))
    assert passed >= 0.95 * allowed * now
    assert refused <= 0.01 * (passed + refused)


def test_a_window_of_a_minute_is_learnt_too() -> None:
    pace, upstream = Pace(0.0, None), Allowance(120, 60.0, says=True)
    *_, now = use(pace, upstream, 0.0, 180.0, 0.02)
    passed, refused, end = use(pace, upstream, now, 600.0, 0.02)
    assert passed >= 0.90 * 2.0 * (end - now)
    assert refused <= 0.02 * passed


def test_the_next_holder_starts_from_what_was_learnt() -> None:
    first, upstream = Pace(0.0, None), Allowance(25, 1.0, says=True)
    *_, now = use(first, upstream, 0.0, 30.0, 0.005)
    learnt = first.learnt
    assert learnt is not None
    assert learnt.found
    passed, refused, end = use(Pace(now, None, learnt), upstream, now, 15.0, 0.005)
    assert refused == 0
    assert passed >= 0.95 * 25 * (end - now)


def test_an_upstream_without_limit_is_used_at_its_own_speed_after_a_moment() -> None:
    pace = Pace(0.0, None)
    passed, refused, _ = use(pace, Allowance(10**9, 1.0, says=False), 0.0, 2.0, latency_s=0.02)
    assert refused == 0
    assert passed >= 78  # of 100 with no pace at all
    assert 48 < pace.rate_per_s < 200  # no more than what is used: a limit that comes later is met gently


def test_a_larger_allowance_is_found_and_a_smaller_one_obeyed() -> None:
    pace, upstream = Pace(0.0, None), Allowance(20, 1.0, says=True)
    *_, now = use(pace, upstream, 0.0, 20.0, 0.005)
    upstream.count = 40
    *_, now = use(pace, upstream, now, 120.0, 0.005)
    assert pace.rate_per_s > 36
    upstream.count = 10
    *_, now = use(pace, upstream, now, 10.0, 0.005)
    passed, refused, _ = use(pace, upstream, now, 15.0, 0.005)
    assert pace.rate_per_s < 11
    assert refused <= 0.02 * passed


@given(st.floats(0.5, 500), st.lists(st.floats(0, 0.05), min_size=20, max_size=60))
def test_a_declared_rate_is_never_exceeded_in_any_window(cap: float, delays: list[float]) -> None:
    pace, now, calls = Pace(0.0, cap), 0.0, []
    for delay in delays:  # the caller is busy for a while, or is woken late
        now += pace.reserve(now) + delay
        calls.append(now - delay)
    for i, first in enumerate(calls):
        for n, last in enumerate(calls[i:]):
            assert n + 1 <= (last - first + 0.004) * cap + 1 + 1e-6


@given(st.lists(st.tuples(st.sampled_from(["good", "refused", "told"]), st.floats(0, 100), st.floats(0, 1e6)),
                max_size=60), st.none() | st.floats(0.01, 1e4) | st.just(math.inf))  # fmt: skip
def test_whatever_happens_the_pace_stays_within_its_bounds(
    events: list[tuple[str, float, float]], cap: float | None
) -> None:
    pace, now = Pace(0.0, cap), 0.0
    for what, seconds, number in events:
        began, now = now, now + seconds
        pace.reserve(now)
        if what == "good":
            pace.good(now)
        elif what == "refused":
            pace.refused(now, began, number)
        else:
            pace.told(now, Quota(number, seconds))
        assert limits.PACE_LEAST_PER_S <= pace.rate_per_s <= (math.inf if cap is None else max(cap, 1 / 3600))
        assert pace.learnt is None or Pace(now, cap, pace.learnt).rate_per_s == pace.rate_per_s


@pytest.mark.parametrize(("count", "window_s"), [(25, 1.0), (200, 10.0), (600, 60.0), (100, 10.0), (300, 60.0)])
def test_a_window_that_headers_tell_of_is_used_up_and_not_overrun(count: int, window_s: float) -> None:
    """Fixed windows, told as most do: what remains, and whole seconds until it begins anew."""
    pace, now, left, ends, passed, refused = Pace(0.0, None), 0.0, count, window_s, 0, 0
    while now < 180.0:
        now += pace.reserve(now)
        while now >= ends:
            left, ends = count, ends + window_s
        began = now
        now += 0.005
        if left:
            left -= 1
            passed += 1
            pace.good(now)
        else:
            refused += 1
            pace.refused(now, began, math.ceil(ends - now))
        pace.told(now, Quota(left, math.ceil(ends - now)))
    assert passed >= 0.95 * count * 180.0 / window_s
    assert refused <= 0.01 * (passed + refused)


def test_a_told_quota_is_spread_over_its_time() -> None:
    pace = Pace(0.0, None)
    pace.told(0.0, Quota(30, 60))
    assert pace.rate_per_s == pytest.approx(30 / 59.5)
    assert pace.learnt is None
    pace.told(1.0, Quota(0, 20))
    assert pace.reserve(1.0) >= 20
    assert Pace(0.0, 5.0, Learnt(80.0, True)).rate_per_s == 5.0  # the adapter's word is the ceiling


EPOCH = NOW.timestamp()


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, None),
        ({"x-ratelimit-remaining": "30", "x-ratelimit-reset": "60"}, Quota(30, 60)),
        ({"x-ratelimit-remaining": "30", "x-ratelimit-reset": str(EPOCH + 15)}, Quota(30, 15)),
        ({"x-ratelimit-remaining": "30", "x-ratelimit-reset": str(int(EPOCH + 15) * 1000)}, Quota(30, 15)),
        ({"x-rate-limit-remaining": "1", "x-rate-limit-reset": str(EPOCH - 15)}, Quota(1, 0)),
        ({"ratelimit-remaining": "5", "ratelimit-reset": "7"}, Quota(5, 7)),
        ({"ratelimit": "limit=100, remaining=50, reset=30"}, Quota(50, 30)),
        ({"ratelimit": '"default";r=50;t=30'}, Quota(50, 30)),
        ({"ratelimit": '"minute";r=50;t=30, "hour";r=10;t=3000'}, Quota(10, 3000)),
        ({"ratelimit": "nonsense"}, None),
        ({"x-ratelimit-remaining": "30"}, None),
        ({"x-ratelimit-remaining": "-3", "x-ratelimit-reset": "nan"}, None),
    ],
)
def test_what_headers_say(headers: dict[str, str], found: Quota | None) -> None:
    assert quota(headers, NOW) == found


@given(st.dictionaries(st.sampled_from(["ratelimit", "x-ratelimit-remaining", "x-ratelimit-reset"]), st.text()))
def test_headers_of_any_kind_are_survived(headers: dict[str, str]) -> None:
    assert quota(headers, NOW) is None or quota(headers, NOW).reset_s >= 0  # type: ignore[union-attr]


@given(st.text())
def test_retry_after_of_any_kind_is_survived(text: str) -> None:
    seconds = retry_after(text, NOW)
    assert seconds is None or 0 <= seconds < math.inf
