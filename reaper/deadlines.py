"""Jobs past their deadline, or not begun by the time they had to be, end `failed` with what is stored readable."""

from datetime import datetime

from cuscuta import limits
from cuscuta.broker.projection import Summary
from cuscuta.broker.settle import close
from cuscuta.model import Failure, JobStatus
from reaper.duty import Scene


class Deadlines:
    """Looks at the times of every job that has not ended."""

    name = "deadlines"

    async def round(self, scene: Scene) -> int:
        """End what is too late."""
        now = scene.clock.wall()
        late = [(row.uid, failure) for row in scene.projection.open_jobs() if (failure := _too_late(row, now))]
        for uid, failure in late[: limits.DUTY_BATCH]:
            await close(scene.bus, uid, JobStatus.FAILED, [failure])
        return len(late)


def _too_late(row: Summary, now: datetime) -> Failure | None:
    if row.deadline and row.deadline <= now:
        return Failure("DeadlineExceeded", "the deadline passed before the job had ended", now)
    if row.start_by and row.start_by <= now and row.status is JobStatus.QUEUEING:
        return Failure("StartByExceeded", "the job was still waiting at the time by which it had to begin", now)
    return None
