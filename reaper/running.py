"""Jobs whose chunks are out: consumer or active entry went missing or is silent, or the queue is empty or stuck."""

import asyncio

from cuscuta import limits, spans
from cuscuta.broker.activate import activate
from cuscuta.broker.lanes import Waiting
from cuscuta.broker.settle import Settled, settle
from cuscuta.errors import BrokerUnavailable, NoRoom
from cuscuta.model import DeadChunk, JobStatus, Priority
from cuscuta.subjects import chunk
from reaper.duty import Patience, Scene

_AT_ONCE = 100


class LostRunning:
    """Compares the tags that say `pending` with consumers, active entries and the queue."""

    name = "lost-running"

    def __init__(self, patience: Patience, stuck: Patience, silent: Patience) -> None:
        self._patience, self._stuck, self._silent = patience, stuck, silent

    async def round(self, scene: Scene) -> int:
        """Admit again what lost its consumer or entry; settle what has nothing left in its queue."""
        uids = [row.uid for row in scene.projection.open_jobs() if row.status is JobStatus.PENDING]
        if not uids:
            self._patience.over(set())
            return 0
        bus = scene.bus
        consumers, active = await bus.work.job_consumers(), {job.uid for job in await bus.active_jobs()}
        mended = 0
        for uid in self._patience.over({u for u in uids if u not in consumers or u not in active}):
            scene.log.warning("a running job lost its consumer or active entry; mended", uid=uid)
            mended += await self._again(scene, uid)
        exhausted, silent = set(), set()
        working = []
        for uid in uids[: limits.MAX_ACTIVE_JOBS_CEILING]:
            if await bus.work.next_chunk(uid) is None:
                mended += await settle(bus, uid) in (Settled.ENDED, Settled.MENDED)
            else:
                working.append(uid)

        async def look(uid: str) -> None:
            try:
                if await bus.work.consumer_delivered(uid) == (0, 0):
                    exhausted.add(uid)
            except BrokerUnavailable:  # while the stream has just answered
                silent.add(uid)

        for i in range(0, len(working), _AT_ONCE):  # each that is silent costs two seconds
            await asyncio.gather(*(look(uid) for uid in working[i : i + _AT_ONCE]))
        for uid in self._stuck.over(exhausted):
            mended += await self._give_up(scene, uid)
        for uid in self._silent.over(silent):
            # A node stopped too soon after another one was back may leave a consumer without a leader for good.
            scene.log.warning("a running job's consumer answers nobody; made anew", uid=uid)
            await bus.work.drop_job_consumer(uid)
            mended += await self._again(scene, uid)
        return mended

    async def _again(self, scene: Scene, uid: str) -> bool:
        try:
            return await activate(scene.bus, Waiting(uid, Priority.NORMAL), scene.settings.default_seats)
        except NoRoom:
            scene.log.warning("no room for the consumer of a running job; trying again", uid=uid)
            return False

    async def _give_up(self, scene: Scene, uid: str) -> int:
        """Chunks past `max_deliver` are delivered no more but stand in the stream: file them, then settle."""
        bus = scene.bus
        if await bus.work.consumer_delivered(uid) != (0, 0):
            return 0
        queued, stored = await bus.work.queued(uid), await bus.results.stored(uid)
        tag = await bus.tags.get(uid)
        once = max(0, tag.queue.chunks - len(queued)) if tag else 0  # what others took
        if await bus.work.deliveries(uid) - once < scene.settings.max_deliver * len(queued):
            # Nobody can have had them so often: a new leader has lost sight of what the one before it had handed out.
            scene.log.warning("a running job's consumer has forgotten its chunks; made anew", uid=uid)
            await bus.work.drop_job_consumer(uid)
            return await self._again(scene, uid)
        for name in queued:
            for gap in spans.gaps(name.span, stored):
                reason = f"delivered {scene.settings.max_deliver} times without being finished"
                await bus.bury(DeadChunk(uid, gap, reason, scene.settings.max_deliver, scene.clock.wall()))
            await bus.work.remove(chunk(name))
        scene.log.warning("chunks were given up by NATS", uid=uid, chunks=len(queued))
        await settle(bus, uid)
        return len(queued)
