"""Which status may follow which, for jobs and accounts. `docs/states.md` draws the tables; a test compares them."""

from enum import StrEnum

from cuscuta.model import JobStatus


class AccountState(StrEnum):
    """Where an account stands."""

    IDLE = "Idle"
    USING = "Using"
    RESTING = "Resting"
    DISABLED = "Disabled"


JOB: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.QUEUEING: frozenset({JobStatus.PENDING, JobStatus.FAILED, JobStatus.CANCELLED}),
    JobStatus.PENDING: frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED}),
    JobStatus.COMPLETED: frozenset(),
    JobStatus.FAILED: frozenset(),
    JobStatus.CANCELLED: frozenset(),
}

ACCOUNT: dict[AccountState, frozenset[AccountState]] = {
    AccountState.IDLE: frozenset({AccountState.USING, AccountState.DISABLED}),
    AccountState.USING: frozenset({AccountState.IDLE, AccountState.RESTING, AccountState.DISABLED}),
    AccountState.RESTING: frozenset({AccountState.USING, AccountState.IDLE, AccountState.DISABLED}),
    AccountState.DISABLED: frozenset({AccountState.IDLE, AccountState.RESTING}),
}


def allowed(before: JobStatus, after: JobStatus) -> bool:
    """Whether a job may go from one status to the other; staying is no transition and is allowed."""
    return before is after or after in JOB[before]
