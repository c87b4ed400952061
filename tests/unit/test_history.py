"""What ended lately is counted once, in its minute and its hour, and never grows."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from cuscuta.broker.projection import summarise
from cuscuta.model import JobStatus, JobTag, Progress
from entry.history import BOUNDS_S, HOURS, MINUTES, History
from tests.support.tags import NOW, make_tag


def ended(
    minutes_ago: float = 0, took_s: float = 10, status: JobStatus = JobStatus.COMPLETED, **more: object
) -> JobTag:
    tag = make_tag()
    at = NOW - timedelta(minutes=minutes_ago)
    queue = replace(tag.queue, admitted_at=at - timedelta(seconds=took_s), ended_at=at)
    return replace(tag, status=status, queue=queue, progress=Progress(done=7), **more)


def history(*tags: JobTag) -> History:
    made = History()
    for tag in tags:
        made.ended(tag, summarise(tag))
    return made


def test_ends_are_counted_where_they_belong() -> None:
    made = history(
        ended(),
        ended(3),
        ended(3, status=JobStatus.FAILED, failure_counts={"KeyError": 2}),
        ended(3, status=JobStatus.CANCELLED),
    )
    minutes, hours = made.minutes(NOW), made.hours(NOW)
    assert (len(minutes), len(hours)) == (MINUTES, HOURS)
    assert (minutes[-1].completed, minutes[-1].items) == (1, 7)
    third = minutes[-4]
    assert (third.completed, third.failed, third.cancelled, third.items) == (1, 1, 1, 21)
    assert third.failure_kinds == {"KeyError": 2}
    assert sum(hour.completed + hour.failed + hour.cancelled for hour in hours) == 4


def test_what_is_long_ago_is_forgotten() -> None:
    made = history(*(ended(n) for n in range(0, 60 * 48, 7)))
    assert sum(m.completed for m in made.minutes(NOW)) == 9
    assert sum(h.completed for h in made.hours(NOW)) <= 60 * 24 / 7 + 1
    assert all(len(counts) <= MINUTES + 1 for counts in made._by.values())


@pytest.mark.parametrize("took_s", [0.05, 1, 42, 3600, 10_000_000])
def test_durations_are_right_within_their_bounds(took_s: float) -> None:
    minute = history(*(ended(took_s=took_s) for _ in range(5))).minutes(NOW)[-1]
    assert minute.median_s == minute.p95_s
    assert minute.median_s is not None
    assert min(took_s, BOUNDS_S[-1]) / 1.25 <= minute.median_s <= max(0.1, took_s * 1.25)
