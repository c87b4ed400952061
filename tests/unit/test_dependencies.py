"""When a job that waits for others may begin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuscuta.dependencies import Turn, turn
from cuscuta.model import AfterWhen, JobStatus

states = st.lists(st.sampled_from([None, *JobStatus]), min_size=1, max_size=5)
C, F, P, X = JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.PENDING, JobStatus.CANCELLED


@pytest.mark.parametrize(
    ("when", "befores", "expected"),
    [
        ("completed", [C, C], Turn.BEGIN), ("completed", [C, P], Turn.WAIT), ("completed", [P, F], Turn.NEVER),
        ("completed", [None], Turn.NEVER), ("any", [P, C], Turn.BEGIN), ("any", [P, F], Turn.WAIT),
        ("any", [F, X], Turn.NEVER), ("failed", [P, F], Turn.BEGIN), ("failed", [C, X], Turn.NEVER),
        ("ended", [C, F, X, None], Turn.BEGIN), ("ended", [C, P], Turn.WAIT),
    ],
)  # fmt: skip
def test_each_condition(when: AfterWhen, befores: list[JobStatus | None], expected: Turn) -> None:
    assert turn(when, befores) is expected


@given(st.sampled_from(["completed", "any", "failed", "ended"]), states)
def test_it_is_decided_once_all_have_ended_and_then_stays(when: AfterWhen, befores: list[JobStatus | None]) -> None:
    now = turn(when, befores)
    over = [status if status and status.terminal else JobStatus.CANCELLED for status in befores]
    later = turn(when, over)
    assert later is not Turn.WAIT
    if now is not Turn.WAIT:
        assert now is later
