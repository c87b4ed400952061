"""Jobs that are not in the queue they belong to: after a crash between tag and queue, or with a stream deleted."""

from collections.abc import Iterable

from cuscuta import limits, subjects
from cuscuta.broker.lanes import Waiting
from cuscuta.broker.settle import advance
from cuscuta.broker.submit import enqueue
from cuscuta.model import JobStatus
from reaper.duty import Patience, Scene


class LostWaiting:
    """Compares the tags that say `queueing` with what stands in the work queue."""

    name = "lost-waiting"

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._seen = {"lanes": "", "befores": ""}  # the last of those that were looked at

    async def round(self, scene: Scene) -> int:
        """Enqueue again what is in no queue; admit the head of a lane that nobody admitted."""
        open_jobs = scene.projection.open_jobs()
        rows = {row.uid: row for row in open_jobs if row.status is JobStatus.QUEUEING}
        running = {row.uid: row for row in open_jobs if row.lane and row.status is JobStatus.PENDING}
        if not rows and not running:
            self._patience.over(set())
            return 0
        work = scene.bus.work
        admitted = set()
        for subject in await work.subjects(subjects.ADMITS):
            try:
                admitted.add(subjects.parse_admit(subject))
            except ValueError:  # put there by hand or by an earlier version: nobody takes it
                await work.remove(subject)
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
        for lane in self._next("lanes", lanes):
            head = await scene.bus.lanes.head(lane)
            if head and head.uid in rows and head.uid not in admitted:
                suspects.add(head.uid)
        suspects |= set(running) - in_lanes
        # Those that run come first, then the oldest: so they stand in their lane again as they stood before.
        order = {uid: (uid not in running, row.place) for uid, row in (rows | running).items()}
        lost = sorted(self._patience.over(suspects), key=order.__getitem__)[: limits.DUTY_BATCH]
        mended = sum([await _again(scene, uid) for uid in lost])
        for uid in self._next("befores", befores):
            known = await scene.bus.tags.read(uid)
            mended += known is not None and await advance(scene.bus, known)
        return mended

    def _next(self, what: str, names: Iterable[str]) -> list[str]:
        """Some of many, all of them in turn."""
        every = sorted(names)
        some = ([name for name in every if name > self._seen[what]] or every)[: limits.DUTY_BATCH]
        self._seen[what] = some[-1] if some else ""
        return some


async def _again(scene: Scene, uid: str) -> bool:
    """Put a job back into what it got lost from; whether it had not ended."""
    known = await scene.bus.tags.read(uid)
    if known is None or known.tag.status.terminal:
        return False
    essential = known.tag.essential
    if known.tag.status is JobStatus.QUEUEING:
        scene.log.warning("a job that nobody would have started is queued again", uid=uid)
        await enqueue(scene.bus, known)
    elif not essential.lane:
        return False
    else:
        scene.log.warning("a running job has its place in its lane again", uid=uid)
        await scene.bus.lanes.enter(Waiting(uid, essential.priority, essential.group), essential.lane)
    return True


def _uids(found: list[str]) -> set[str]:
    return {subject.rsplit(".", 1)[1] for subject in found}
