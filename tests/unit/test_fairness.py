"""Whose turn it is: at admission and at a free seat."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from cuscuta.model import ActiveJob, Priority
from cuscuta.spans import Span
from entry.turns import SHARES, Turns, preference
from worker.choice import Shares

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GROUPS = st.sampled_from(["", "red", "blue", "green"])


@given(st.lists(st.tuples(st.sampled_from(list(Priority)), GROUPS), min_size=1))
def test_admission_looks_at_every_queue_once(queues: list[tuple[Priority, str]]) -> None:
    turns = Turns()
    turns.see(queues, [])
    assert sorted(turns.order()) == sorted(set(queues))


@given(st.integers(1, 40), st.integers(1, 5))
def test_groups_are_admitted_in_turn_however_many_jobs_each_has(admissions: int, groups: int) -> None:
    turns = Turns()
    names = [f"group {n}" for n in range(groups)]
    for name in names:
        turns.waits((Priority.NORMAL, name))
    had: Counter[str] = Counter()
    for n in range(admissions):
        queue = turns.order()[0]
        turns.served(queue[1])
        turns.began(f"job {n}", queue)
        had[queue[1]] += 1
    assert max(had.values()) - min(had[name] for name in names) <= 1


NORMAL, HIGH, LOW = Priority.NORMAL, Priority.HIGH, Priority.LOW


def test_the_group_with_fewest_active_jobs_comes_first() -> None:
    turns = Turns()
    red, blue = (NORMAL, "red"), (NORMAL, "blue")
    turns.see([red, blue], [("a", red), ("b", red), ("c", blue)])
    assert turns.order() == [blue, red]
    turns.asked(blue)
    assert turns.order() == [red]
    turns.waits((HIGH, "red"))
    assert turns.order()[0] == (HIGH, "red")
    turns.asked(red)
    turns.waits(red)  # heard of while it was looked at
    assert red in turns.order()


def test_places_are_kept_for_what_is_urgent_and_for_newcomers() -> None:
    turns = Turns()
    for n in range(8):
        assert turns.room((NORMAL, "red"), n, 10)
        turns.began(f"red {n}", (NORMAL, "red"))
    assert not turns.room((NORMAL, "red"), 8, 10)  # one place is for a group that has none
    assert turns.room((NORMAL, "blue"), 8, 10)
    turns.began("blue 0", (NORMAL, "blue"))
    assert not turns.room((NORMAL, "green"), 9, 10)  # and one for what is urgent
    assert turns.room((HIGH, "red"), 9, 10)
    assert not turns.room((HIGH, "red"), 10, 10)
    turns.ended("red 0")
    assert turns.room((NORMAL, "green"), 8, 10)
    assert not turns.room((NORMAL, "red"), 8, 10)


def test_what_is_not_urgent_has_its_turns_beside_a_backlog_of_high_priority() -> None:
    """Places that become free while all others are held by high priority are for low too."""
    turns = Turns()
    for n in range(20):
        turns.began(f"high {n}", (HIGH, ""))
    turns.waits((HIGH, ""))
    turns.waits((LOW, ""))
    assert not turns.room((LOW, ""), 20, 20)
    turns.ended("high 0")
    assert turns.room((LOW, ""), 19, 20)
    first = []
    for _ in range(32):
        queue = turns.order()[0]
        first.append(queue[0])
        turns.served("")
    assert first.count(LOW) == 2


@given(st.integers(1, 30), st.sampled_from(list(Priority)), GROUPS)
def test_there_is_room_in_an_idle_system_and_none_in_a_full_one(most: int, priority: Priority, group: str) -> None:
    assert Turns().room((priority, group), 0, most)
    assert not Turns().room((priority, group), most, most)


def test_every_priority_has_its_turns() -> None:
    owners = Counter(preference(n)[0] for n in range(sum(SHARES.values()) * 3))
    assert owners == {priority: share * 3 for priority, share in SHARES.items()}


@dataclass
class Active:
    active: ActiveJob
    ended: bool = False
    dry_until: float = 0.0


def job(uid: str, group: str, minutes: int, priority: Priority = Priority.NORMAL) -> Active:
    at = NOW + timedelta(minutes=minutes)
    return Active(ActiveJob(uid, "t", "c", Span(0, 9), priority, at, group=group))


def test_a_newcomer_comes_first_once_and_then_groups_alternate() -> None:
    """One seat: the old group was served for an hour, which it need not pay back and cannot be paid for."""
    jobs = [job(f"red {n}", "red", n) for n in range(5)]
    shares = Shares()
    shares.see({"red"})
    for _ in range(3):
        shares.began("red")
        shares.ended("red", 1200.0)
    jobs.append(job("blue 0", "blue", 99))
    shares.see({"red", "blue"})
    chosen = []
    for _ in range(6):
        group = shares.in_turn(jobs)[0].active.group
        chosen.append(group)
        shares.began(group)
        shares.ended(group, 2.0)
    assert chosen == ["blue", "red"] * 3
    assert shares.in_turn(jobs)[0].active.uid == "blue 0"


@given(st.integers(2, 16), st.integers(1, 4))
def test_seats_are_shared_equally_while_all_work(seats: int, groups: int) -> None:
    names = [f"group {n}" for n in range(groups)]
    jobs = [job(f"{name} {n}", name, n) for name in names for n in range(seats)]
    shares = Shares()
    shares.see(set(names))
    had: Counter[str] = Counter()
    for _ in range(seats):
        group = shares.in_turn(jobs)[0].active.group
        shares.began(group)
        had[group] += 1
    assert max(had.values()) - min(had[name] for name in names) <= 1


def test_priority_goes_before_fairness_and_one_group_is_served_in_order() -> None:
    shares = Shares()
    shares.see({"red", "blue"})
    shares.began("red")
    jobs = [job("b", "blue", 1), job("r", "red", 0, Priority.HIGH), job("a", "blue", 0)]
    assert [one.active.uid for one in shares.in_turn(jobs)] == ["r", "a", "b"]
    jobs[1].ended = True
    assert [one.active.uid for one in shares.in_turn(jobs)] == ["a", "b"]
