"""Jobs past their deadline end `failed`, with whatever is stored readable."""

from cuscuta import limits
from cuscuta.broker.settle import close
from cuscuta.model import Failure, JobStatus
from reaper.duty import Scene


class Deadlines:
    """Looks at the deadline of every job that has not ended."""

    name = "deadlines"

    async def round(self, scene: Scene) -> int:
        """End what is too late."""
        now = scene.clock.wall()
        late = [row.uid for row in scene.projection.open_jobs() if row.deadline and row.deadline <= now]
        for uid in late[: limits.DUTY_BATCH]:
            failure = Failure("DeadlineExceeded", "the deadline passed before the job had ended", now)
            await close(scene.bus, uid, JobStatus.FAILED, [failure])
        return len(late)
