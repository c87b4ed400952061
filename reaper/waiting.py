"""Jobs that were accepted but never got into their lane or to admission: a crash between the tag and the batch."""

from cuscuta import limits, subjects
from cuscuta.broker.activate import activate
from cuscuta.broker.settle import advance
from cuscuta.broker.submit import enqueue
from cuscuta.errors import NoRoom
from cuscuta.model import JobStatus
from reaper.duty import Patience, Scene


class LostWaiting:
    """Compares the tags that say `queueing` with what stands in the work queue."""

    name = "lost-waiting"

    def __init__(self, patience: Patience, stuck: Patience) -> None:
        self._patience, self._stuck = patience, stuck
        self._seen = ""  # the last of those that wait for others

    async def round(self, scene: Scene) -> int:
        """Enqueue again what is in no queue; admit the head of a lane that nobody admitted."""
        rows = {row.uid: row for row in scene.projection.open_jobs() if row.status is JobStatus.QUEUEING}
        if not rows:
            self._patience.over(set())
            self._stuck.over(set())
            return 0
        work = scene.bus.work
        admitted = _uids(await work.subjects(subjects.ADMITS))
        in_lanes = _uids(await work.subjects(subjects.LANES))
        suspects, lanes, befores = set(), {}, []
        for uid, row in rows.items():
            if uid in admitted:
                continue
            if row.after and uid not in in_lanes:
                befores.append(uid)
            elif row.lane is None or uid not in in_lanes:
                suspects.add(uid)
            else:
                lanes[row.lane] = row
        for lane in list(lanes)[: limits.DUTY_BATCH]:
            head = await work.head(lane)
            if head and head.uid in rows and head.uid not in admitted:
                suspects.add(head.uid)
        mended = 0
        for uid in list(self._patience.over(suspects))[: limits.DUTY_BATCH]:
            known = await scene.bus.tags.read(uid)
            if known and known.tag.status is JobStatus.QUEUEING:
                scene.log.warning("a job that nobody would have started is queued again", uid=uid)
                await enqueue(scene.bus, known)
                mended += 1
        for uid in self._next(befores):
            known = await scene.bus.tags.read(uid)
            mended += known is not None and await advance(scene.bus, known)
        return mended + await self._admit_stuck(scene, admitted & set(rows))

    def _next(self, befores: list[str]) -> list[str]:
        """Some of the jobs that wait for others, all of them in turn."""
        befores = [uid for uid in sorted(befores) if uid > self._seen] or sorted(befores)
        some = befores[: limits.DUTY_BATCH]
        self._seen = some[-1] if some else ""
        return some

    async def _admit_stuck(self, scene: Scene, waiting: set[str]) -> int:
        """A job whose admit message stands for long although there is room: nobody is given it, so admit it here."""
        most = scene.settings.max_active_jobs
        room = most - most // limits.URGENT_PLACES - await scene.bus.work.active_consumers()
        mended = 0
        for uid in list(self._stuck.over(waiting if room > 0 else set()))[: max(0, room)]:
            scene.log.warning("a job stood in admission although there was room; admitted", uid=uid)
            try:
                if await activate(scene.bus, uid, scene.settings.default_seats):
                    for priority in subjects.ADMISSION_CONSUMERS:
                        await scene.bus.work.remove(subjects.admit(priority, uid))
                    mended += 1
            except NoRoom:
                break
        return mended


def _uids(found: list[str]) -> set[str]:
    return {subject.rsplit(".", 1)[1] for subject in found}
