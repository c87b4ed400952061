"""What follows a job's end: a new job, which only those may make that may accept jobs."""

from msgspec.structs import replace

from cuscuta.broker.adoption import accepted
from cuscuta.broker.bus import Bus
from cuscuta.broker.submit import submit
from cuscuta.model import Essential, JobStatus, JobTag
from cuscuta.uids import uid_from


def of(tag: JobTag) -> Essential | None:
    """What is to follow a job that ended so."""
    essential = tag.essential
    return {JobStatus.COMPLETED: essential.on_success, JobStatus.FAILED: essential.on_failure}.get(tag.status)


def for_others(bus: Bus, tag: JobTag) -> bool:
    """Whether something follows that this process may not submit: jobs are sealed, and it has no key."""
    return of(tag) is not None and bool(tag.essential.seal) and not bus.settings.seal_keys


async def make(bus: Bus, tag: JobTag) -> None:
    """Submit what is to follow a job's success or failure, once for each of its runs."""
    what = of(tag)
    if what is None:
        return
    if not await accepted(bus, tag):
        bus.log.error("nothing follows a job that nobody accepted so", uid=tag.uid)
        return
    what = replace(what, after=(tag.uid,), after_when="ended")
    await submit(bus, uid_from("follow-up", tag.run_ids[-1], str(tag.status)), what)
