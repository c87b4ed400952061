"""Jobs past their deadline, or not begun by the time they had to be, end `failed` with what is stored readable."""

from cuscuta import limits
from cuscuta.broker.settle import close, start_by_exceeded
from cuscuta.model import Failure, JobStatus
from reaper.duty import Scene


class Deadlines:
    """Looks at the times of every job that has not ended."""

    name = "deadlines"

    async def round(self, scene: Scene) -> int:
        """End what is too late."""
        now = scene.clock.wall()
        rows = scene.projection.open_jobs()
        late = [row.uid for row in rows if row.deadline and row.deadline <= now]
        for uid in late[: limits.DUTY_BATCH]:
            failure = Failure("DeadlineExceeded", "the deadline passed before the job had ended", now)
            await close(scene.bus, uid, JobStatus.FAILED, [failure])
        waiting = [row for row in rows if row.start_by and row.start_by <= now and row.status is JobStatus.QUEUEING]
        for row in waiting[: limits.DUTY_BATCH]:  # the list is a second old at most: it may have begun since
            await close(scene.bus, row.uid, JobStatus.FAILED, [start_by_exceeded(now)], JobStatus.QUEUEING)
        return len(late) + len(waiting)
