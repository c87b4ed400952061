"""What ended or expired jobs left on the bus: active entries, consumers, queued messages."""

from cuscuta import limits, subjects
from cuscuta.broker.settle import release_lane, tidy
from cuscuta.broker.unique import sweep
from cuscuta.uids import is_uid
from reaper.duty import Patience, Scene


class Leftovers:
    """Everything on the bus belongs to a tag that has not ended; whatever does not is removed."""

    name = "leftovers"

    def __init__(self, patience: Patience) -> None:
        self._patience = patience

    async def round(self, scene: Scene) -> int:
        """Find uids on the bus whose job is over or was never there, and tidy up after them."""
        bus = scene.bus
        on_bus = await bus.work.job_consumers() | set(await bus.active_bucket.keys())
        lanes = {}
        for subject in await bus.work.subjects(subjects.LANES):
            lane, _, uid = subject.removeprefix(subjects.LANES[:-1]).rpartition(".")
            lanes[uid] = lane
        admits = {subject.rsplit(".", 1)[1] for subject in await bus.work.subjects(subjects.ADMITS)}
        on_bus |= admits
        for subject in await bus.work.subjects(subjects.CHUNKS):
            on_bus.add(subjects.parse_uid(subject))
        for key in [key for key in on_bus if not is_uid(key)]:  # put there by hand; no uid, so never a job's
            on_bus.discard(key)
            await bus.active_bucket.purge(key)
            await bus.work.purge(subjects.chunks_of(key))
        for subject in await bus.work.subjects(subjects.AFTERS):
            on_bus.add(subject.rsplit(".", 1)[1])
        claims = {}
        for subject in (await bus.work.subjects(subjects.UNIQUES))[: limits.DUTY_BATCH]:
            if found := await bus.work.first(subject):
                claims[f"{subject} {found.sequence}"] = found
        running = {row.uid for row in scene.projection.open_jobs()}
        suspects = self._patience.over(((on_bus | set(lanes)) - running) | set(claims))
        mended = sum([await sweep(bus, claims[key].subject, claims[key].sequence) for key in suspects & set(claims)])
        suspects -= set(claims)
        for uid in list(suspects)[: limits.DUTY_BATCH]:
            tag = await bus.tags.get(uid)
            if tag is None:
                await self._remove(scene, uid, lanes.get(uid))
                mended += 1
            elif tag.status.terminal:
                await tidy(bus, tag)
                if uid in admits:  # sent there once more while it was admitted; admission looks for no ended job
                    await bus.work.remove(subjects.admit_of(uid))
                mended += 1
        return mended

    async def _remove(self, scene: Scene, uid: str, lane: str | None) -> None:
        bus = scene.bus
        scene.log.warning("removing what belongs to no job", uid=uid)
        await bus.work.purge(subjects.chunks_of(uid))
        await bus.work.drop_job_consumer(uid)
        await bus.active_bucket.purge(uid)
        await bus.work.purge(subjects.after("*", uid))
        await bus.work.remove(subjects.admit_of(uid))
        if lane:
            await bus.work.purge(subjects.lane_entry(lane, uid))
            await release_lane(bus, lane)
