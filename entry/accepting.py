"""Accepting a job: from a request, whoever makes it, to a tag. Callers and schedules come this way."""

from collections.abc import Callable, Mapping, Sequence

from cuscuta import instruments
from cuscuta.broker.settle import advance
from cuscuta.broker.submit import must_be_alike, submit
from cuscuta.broker.unique import claim, release
from cuscuta.errors import CuscutaError, InputError
from cuscuta.model import CatalogueName, Essential, JobTag
from cuscuta.uids import is_uid
from entry import destinations, requests
from entry.context import Context
from entry.requests import JobRequest, ScheduledJob


def _everything(group: str) -> bool:
    return True


async def accept(
    context: Context, uid: str, request: JobRequest, *, named: bool, sees: Callable[[str], bool] = _everything
) -> tuple[JobTag, bool]:
    """The tag of a job, and whether it ran already because it is to be unique. Raises InputError, QueueFull.

    A `named` uid may have been a job's before: then that one is the answer, whatever has become of it. `sees` says
    whose jobs it may wait for.
    """
    bus = context.bus
    if named and (standing := await bus.tags.read(uid)):
        must_be_alike(standing.tag, requests.digest(request))
        # Whoever accepted it may have died before it was queued; what is submitted after this answer comes behind it.
        await bus.broker.insist(lambda: advance(bus, standing))
        return standing.tag, False
    essential = requests.essential(request, await resolve(context, request), context.clock)
    await _must_exist(context, uid, essential.after, sees)
    if request.unique and (running := await _running(context, uid, essential)):
        return running, True
    try:
        tag = await submit(bus, uid, essential, named=named, offer=context.admission.offer)
    except CuscutaError:
        if request.unique and await bus.tags.get(uid) is None:  # a twin may have been accepted with the same key
            await bus.broker.insist(lambda: release(bus, uid, essential))
        raise
    context.projection.take_new(tag)
    instruments.JOBS_SUBMITTED.add(1, {"cuscuta.priority": str(essential.priority)})
    return tag, False


async def resolve(context: Context, request: ScheduledJob) -> Mapping[str, CatalogueName]:
    """The catalogues that a request speaks of, and whether its webhook may be. Raises InputError."""
    if request.webhook is not None:
        destinations.check(request.webhook, context.settings)
    jobs = [request, *(job for job in (request.on_success, request.on_failure) if job)]
    names = {job.catalogue: await context.bus.catalogues.resolve(job.catalogue) for job in jobs}
    return {key: name for key, name in names.items() if name}


async def _must_exist(context: Context, uid: str, befores: Sequence[str], sees: Callable[[str], bool]) -> None:
    """Refuse to wait for what is not there, and for oneself. A job waits for older ones only, so there is no cycle."""
    for i, before in enumerate(befores):
        if before == uid:
            raise InputError(f"after[{i}]", "is the job itself", "A job cannot wait for its own end.")
        tag = await context.bus.tags.get(before) if is_uid(before) else None
        if tag is None or not sees(tag.essential.group):
            raise InputError(f"after[{i}]", f"there is no job {before[:60]!r}", "Submit the jobs it waits for first.")


async def _running(context: Context, uid: str, essential: Essential) -> JobTag | None:
    """The job of the same group, target and catalogue that runs already: one that claims to be the only one, or any.

    Among unique jobs the claim decides; jobs that are not are found in this replica's list, a second late at most.
    """
    for row in context.projection.open_jobs():  # a few thousand at most where people ask for this
        same = (row.target, row.catalogue_hash, row.group) == (essential.target, essential.catalogue, essential.group)
        if same and row.uid != uid:
            tag = await context.bus.tags.get(row.uid)
            if tag is not None and not tag.status.terminal:
                return tag
    return await context.bus.broker.insist(lambda: claim(context.bus, uid, essential))
