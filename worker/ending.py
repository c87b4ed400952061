"""Seeing whether a job is done, once its queue is empty and this process has finished chunks of it."""

import contextlib

from cuscuta.broker.settle import Settled, complete, conclude
from cuscuta.errors import BrokerUnavailable, CuscutaError
from worker.jobs import Job
from worker.kit import Kit

_AGAIN_S = 0.01


async def settle_if_done(kit: Kit, job: Job, waited_s: float = 0.0) -> None:
    """Settle the job; if nothing of it was finished here since the last look this does nothing."""
    await kit.finisher.drained(job.uid)
    if kit.tail.busy(job.uid):
        return  # whoever is at work on the rest will look when it is done
    last, job.unsettled = job.unsettled, None
    ridden, job.ridden = job.ridden, False
    if last is None and not ridden:
        return
    try:
        await kit.failures.flush()
        found = await complete(kit.bus, job.uid)
        if found is Settled.RUNNING:
            if last:
                with contextlib.suppress(BrokerUnavailable):
                    await last.ack_sync()  # a second time: once it is answered, all acks before it have counted
            found = await conclude(kit.bus, job.uid)
    except BrokerUnavailable:
        job.unsettled, job.ridden = job.unsettled or last, ridden
        return
    except CuscutaError as error:  # refused, or a record that is not ours: the reaper will look again
        kit.log.error("a job could not be settled", uid=job.uid, cause=str(error))
        return
    if found in (Settled.ENDED, Settled.GONE):
        kit.jobs.end(job.uid)
    elif found is Settled.QUEUEING:  # done before its tag says that it has begun
        job.unsettled, job.ridden = job.unsettled or last, ridden
        kit.finisher.soon("", _again(kit, job, max(_AGAIN_S, min(1.0, 2 * waited_s))))


async def _again(kit: Kit, job: Job, seconds: float) -> None:
    await kit.bus.clock.sleep(seconds)
    if not kit.halt.is_set():
        await settle_if_done(kit, job, seconds)
