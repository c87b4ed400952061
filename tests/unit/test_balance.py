"""The arithmetic of the tail."""

from hypothesis import given
from hypothesis import strategies as st

from worker import balance
from worker.balance import Gift, Load

seconds = st.floats(0.001, 10)
loads = st.lists(st.builds(Load, st.floats(0, 10), st.integers(0, 200), seconds), min_size=1, max_size=8)


@given(loads, st.integers(0, 20), seconds)
def test_nothing_is_given_that_is_not_there_and_never_to_more_than_wait(
    held: list[Load], waiters: int, typical_s: float
) -> None:
    gifts = balance.share_out(held, waiters, typical_s)
    assert len(gifts) == len(held)
    assert sum(gift.parts for gift in gifts) <= waiters
    for load, gift in zip(held, gifts, strict=True):
        assert 0 <= gift.keep <= load.rest
        assert (gift.parts == 0) == (gift.keep == load.rest)
        assert gift.parts <= load.rest - gift.keep  # every part holds at least one item


@given(loads, st.integers(0, 20), seconds)
def test_giving_never_makes_the_end_later(held: list[Load], waiters: int, typical_s: float) -> None:
    gifts = balance.share_out(held, waiters, typical_s)
    for load, gift in zip(held, gifts, strict=True):
        if gift.parts:
            others = -(-(load.rest - gift.keep) // gift.parts) * typical_s
            assert max(load.busy_s + gift.keep * load.item_s, others) < load.end_s


def test_a_slow_seat_gives_more_than_half_and_equals_share_evenly() -> None:
    assert balance.share_out([Load(0.0, 10, 1.0)], 1, 1.0) == [Gift(5, 1)]
    assert balance.share_out([Load(0.0, 12, 1.0)], 2, 1.0) == [Gift(4, 2)]
    (slow,) = balance.share_out([Load(1.0, 10, 1.0)], 1, 0.1)
    assert slow == Gift(0, 1)  # all of it: the other is done before our own call is answered
    assert balance.share_out([Load(0.0, 1, 1.0)], 1, 1.0) == [Gift(1, 0)]  # moving it would save nothing
    assert balance.share_out([Load(0.0, 10, 1.0), Load(0.0, 2, 1.0)], 1, 1.0) == [Gift(5, 1), Gift(2, 0)]


@given(st.floats(1, 9), st.integers(1, 9), st.floats(0.015, 0.06))
def test_nothing_stays_behind_a_call_that_is_overdue(busy_s: float, rest: int, typical_s: float) -> None:
    assert balance.share_out([Load(busy_s, rest, 0.02)], 1, typical_s) == [Gift(0, 1)]


def test_a_slow_seat_shrinks_its_chunk_and_an_equal_one_does_not() -> None:
    assert balance.fair_size(16, 600, 400.0, 8, 0.02) == 16
    assert balance.fair_size(16, 600, 400.0, 8, 0.2) == 5  # 1.5 s are left, in which it does 7.5
    assert balance.fair_size(16, 10, 400.0, 8, 0.03) == 16  # it shares once somebody waits
    assert balance.fair_size(1, 600, 400.0, 8, 99.0) == 1
    assert balance.fair_size(16, 600, None, 8, 0.2) == balance.fair_size(16, 600, 400.0, 8, None) == 16


@given(st.integers(1, 1000), st.integers(0, 10_000), st.none() | seconds, st.none() | seconds)
def test_a_chunk_never_shrinks_to_nothing(size: int, left: int, fleet: float | None, item_s: float | None) -> None:
    assert 1 <= balance.fair_size(size, left, fleet, 8, item_s) <= size


def test_only_a_slow_seat_stands_back_and_only_near_the_end() -> None:
    assert not balance.stands_back(600, 400.0, 8, 0.2)  # 1.5 s are left
    assert balance.stands_back(40, 400.0, 8, 0.2)  # 0.1 s
    assert not balance.stands_back(0, 400.0, 8, 0.03)  # quicker than twice the usual time
    assert not balance.stands_back(0, 5.0, 1, 0.2)  # nobody else is there
    assert not balance.stands_back(0, None, 8, 0.2)


def test_a_follow_must_be_worth_it() -> None:
    assert balance.worth_following(10, 0.1, 0.5)
    assert not balance.worth_following(5, 0.1, 0.5)  # what is left is polled as quickly


def test_when_to_ask_twice() -> None:
    assert balance.ask_twice_in_s(0.0, 0.2, 0.02) == 0.0  # slow as always: at once
    assert balance.ask_twice_in_s(0.0, 0.02, 0.02) > 0  # as quick as all: not before it is stuck
    assert balance.ask_twice_in_s(0.05, 0.02, 0.02) <= 0
    assert balance.hedges_allowed(600) == 18
    assert balance.hedges_allowed(33) == 0
