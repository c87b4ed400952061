"""What an autoscaler is told, from jobs and hands alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from cuscuta.broker.projection import Summary
from cuscuta.model import JobStatus, Presence, Priority
from entry.scaling import measure

AT = datetime(2026, 1, 1, tzinfo=UTC)
ROW = Summary("u", JobStatus.QUEUEING, "t", "c", "h", Priority.NORMAL, 100, 0, None, {}, 0, 0, AT, None, None, None,
              None, ())  # fmt: skip
SEATED = Presence("w", "b", "1", 2, [], {"1": 1.0, "2": 1.0}, AT, AT, {"1": 0.5, "2": 0.25})


def rows(*changes: dict[str, Any]) -> list[Summary]:
    at = (AT + timedelta(seconds=n) for n in range(len(changes)))
    return [replace(ROW, uid=f"u{n}", created_at=next(at), **change) for n, change in enumerate(changes)]


def test_idle_is_nothing_whoever_is_there() -> None:
    found = measure([], {}, [SEATED], 7, 2, 100)
    assert (found.waiting_items, found.in_flight_items, found.backlog_items, found.seats_useful) == (0, 0, 0, 0)
    assert found.backlog_s == 0
    assert (found.seats, found.accounts_free) == (2, 7)


def test_waiting_and_in_flight_are_counted_apart_and_what_is_stored_is_neither() -> None:
    found = measure(rows({"status": JobStatus.PENDING}, {"items": 30}), {"u0": 60}, [SEATED], 7, 2, 100)
    assert (found.waiting_items, found.in_flight_items, found.backlog_items) == (30, 40, 70)
    assert found.backlog_s == round(70 / 6, 1)  # seats of 2 and of 4 items a second
    assert found.seats_useful == 9


def test_seats_are_useful_for_what_may_run_only() -> None:
    lane = {"items": 3, "lane": "l"}
    assert measure(rows(lane, lane, lane), {}, [], 50, 0, 100).seats_useful == 3  # one of a lane at a time
    assert measure(rows({"items": 4, "after": ("x",)}), {}, [], 50, 0, 100).seats_useful == 0
    assert measure(rows(*[{"items": 2}] * 9), {}, [], 50, 0, 5).seats_useful == 10  # five places
    running = {"status": JobStatus.PENDING, "lane": "l", "items": 3}
    assert measure(rows(running, lane), {"u0": 1}, [], 50, 0, 100).seats_useful == 2


def test_without_a_pace_nobody_guesses_seconds() -> None:
    assert measure(rows({}), {}, [], 5, 0, 100).backlog_s is None


def test_no_more_seats_than_accounts_and_than_items() -> None:
    assert measure(rows({}), {}, [], 3, 1, 100).seats_useful == 4
    assert measure(rows({"items": 2}), {}, [], 30, 1, 100).seats_useful == 2
