"""What a schedule's `when` means."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuscuta.errors import InputError
from cuscuta.schedule import Schedule
from entry import times

NOW = datetime(2026, 3, 27, 12, 0, 30, tzinfo=UTC)  # a Friday, two days before Europe's clocks go forward


def schedule(when: str, time_zone: str | None = None, **more: object) -> Schedule:
    return Schedule("id", when, {}, NOW, time_zone, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("when", "spec", "first"),
    [
        ("0 9 * * 1-5", "0 0 9 * * 1-5", "2026-03-30T09:00:00+00:00"),
        ("0 9 * * TUE", "0 0 9 * * TUE", "2026-03-31T09:00:00+00:00"),
        ("0 0 1 OCT *", "0 0 0 1 OCT *", "2026-10-01T00:00:00+00:00"),
        ("*/15 * * * * *", "*/15 * * * * *", "2026-03-27T12:00:45+00:00"),
        ("@hourly", "@hourly", "2026-03-27T13:00:00+00:00"),
        ("@every 1h30m", "@every 1h30m", "2026-03-27T13:30:30+00:00"),
        ("2026-04-01T08:00:00+02:00", "@at 2026-04-01T08:00:00+02:00", "2026-04-01T08:00:00+02:00"),
    ],
)
def test_every_kind_has_its_first_time(when: str, spec: str, first: str) -> None:
    made = schedule(when)
    times.check(made, NOW)
    assert made.spec == spec
    assert times.upcoming(made, NOW)[0].isoformat() == first


def test_a_time_zone_keeps_its_hour_over_the_change_of_clocks() -> None:
    made = schedule("0 9 * * *", "Europe/Berlin")
    times.check(made, NOW)
    shown = [time.astimezone(UTC).isoformat()[:16] for time in times.upcoming(made, NOW, 3)]
    assert shown == ["2026-03-28T08:00", "2026-03-29T07:00", "2026-03-30T07:00"]


@pytest.mark.parametrize(
    ("when", "time_zone", "field"),
    [
        ("every day", None, "when"),
        ("61 * * * *", None, "when"),
        ("* * * *", None, "when"),
        ("0 0 30 2 *", None, "when"),  # never
        ("@every 100ms", None, "when"),
        ("@every 0s", None, "when"),
        ("@fortnightly", None, "when"),
        ("2026-04-01T08:00:00", None, "when"),  # no zone
        ("2026-03-01T08:00:00Z", None, "when"),  # over
        ("2026-13-01T08:00:00Z", None, "when"),
        ("2300-01-01T08:00:00Z", None, "when"),
        ("0 9 * * *", "Europe/Atlantis", "time_zone"),
        ("0 9 * * *", "../../etc/passwd", "time_zone"),
        ("@every 5m", "Europe/Berlin", "time_zone"),
    ],
)
def test_what_never_comes_or_nobody_understands_is_refused(when: str, time_zone: str | None, field: str) -> None:
    with pytest.raises(InputError) as refused:
        times.check(schedule(when, time_zone), NOW)
    assert refused.value.field == field
    assert refused.value.fix


@given(st.text(max_size=40), st.none() | st.text(max_size=20))
def test_any_text_is_understood_or_refused(when: str, time_zone: str | None) -> None:
    made = schedule(when or "x", time_zone)
    try:
        times.check(made, NOW)
    except InputError:
        return
    assert all(time > NOW for time in times.upcoming(made, NOW))


@given(st.integers(1, 100_000), st.integers(0, 10**7))
def test_an_interval_goes_on_from_its_last_time(every: int, later: int) -> None:
    made = schedule(f"@every {every}s", fired_at=NOW)
    now = NOW + timedelta(seconds=later)
    first, second = times.upcoming(made, now, 2)
    assert timedelta(0) < first - now <= timedelta(seconds=every)
    assert second - first == timedelta(seconds=every)


def test_nothing_is_to_come_of_one_that_is_paused_or_done() -> None:
    assert times.upcoming(schedule("@hourly", paused=True), NOW) == []
    assert times.upcoming(schedule("@hourly", done=True), NOW) == []
