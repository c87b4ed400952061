"""Schedules whose message got lost between two steps, or by hand, are given it again."""

from cuscuta import limits
from cuscuta.errors import BrokerRefused
from cuscuta.schedule import Schedule
from reaper.duty import Patience, Scene


class LostSchedules:
    """Compares the records of schedules with what NATS will fire."""

    name = "lost-schedules"

    def __init__(self, patience: Patience) -> None:
        self._patience = patience

    async def round(self, scene: Scene) -> int:
        """Let those run that should and do not; stop those that no record knows."""
        store = scene.bus.schedules
        will, has = await store.standing()
        runs = {schedule.id: schedule for schedule in await store.some(await store.ids()) if _runs(schedule)}
        lost = {name for name, schedule in runs.items() if name not in will and not (schedule.once and name in has)}
        mended = 0
        for name in list(self._patience.over(lost | (will - set(runs))))[: limits.DUTY_BATCH]:
            schedule = await store.get(name)
            if schedule is None or not _runs(schedule):
                await store.stop(name)
            elif name in lost:
                scene.log.warning("a schedule was not running; mended", schedule=name)
                try:
                    await store.run(schedule)
                except BrokerRefused as error:
                    scene.log.error("a schedule cannot run", schedule=name, cause=str(error))
                    continue
            mended += 1
        return mended


def _runs(schedule: Schedule) -> bool:
    return not schedule.paused and not schedule.done
