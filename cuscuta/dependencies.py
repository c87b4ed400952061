"""Whether a job that runs after others may begin. Pure."""

from collections.abc import Sequence
from enum import StrEnum

from cuscuta.model import AfterWhen, JobStatus


class Turn(StrEnum):
    """What a job that waits for others is to do now."""

    WAIT = "wait"
    BEGIN = "begin"
    NEVER = "never"


def turn(when: AfterWhen, befores: Sequence[JobStatus | None]) -> Turn:
    """`befores` are the states of the jobs it waits for; None is one that is not there, and never will be."""
    ended = [status is None or status.terminal for status in befores]
    completed = [status is JobStatus.COMPLETED for status in befores]
    failed = [status is JobStatus.FAILED for status in befores]
    if when == "ended":
        return Turn.BEGIN if all(ended) else Turn.WAIT
    if when == "completed":
        lost = any(over and not done for over, done in zip(ended, completed, strict=True))
        return Turn.NEVER if lost else Turn.BEGIN if all(completed) else Turn.WAIT
    if any(completed if when == "any" else failed):
        return Turn.BEGIN
    return Turn.NEVER if all(ended) else Turn.WAIT
