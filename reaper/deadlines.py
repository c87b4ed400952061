"""Jobs past their deadline, or not begun by the time they had to be, end `failed` with what is stored readable."""

from cuscuta import limits
from cuscuta.broker.settle import close_late
from cuscuta.model import JobStatus
from reaper.duty import Scene


class Deadlines:
    """Looks at the times of every job that has not ended."""

    name = "deadlines"

    async def round(self, scene: Scene) -> int:
        """End what is too late; the list is a second old at most, so the tag itself decides."""
        now = scene.clock.wall()
        late = [
            row.uid
            for row in scene.projection.open_jobs()
            if (row.deadline and row.deadline <= now)
            or (row.status is JobStatus.QUEUEING and row.start_by and row.start_by <= now)
        ]
        for uid in late[: limits.DUTY_BATCH]:
            await close_late(scene.bus, uid, now)
        return len(late)
