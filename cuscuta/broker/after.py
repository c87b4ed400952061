"""Jobs that run after others: a message for each pair stands until the other one has ended.

Whoever ends a job looks who waits for it; the reaper looks at all that wait, so a crash in between costs time only.
"""

import asyncio

from cuscuta import dependencies, subjects
from cuscuta.broker.bus import Bus
from cuscuta.dependencies import Turn
from cuscuta.model import Failure, JobStatus, JobTag


async def wait(bus: Bus, tag: JobTag) -> None:
    """Let those that end the jobs before it know of a job that waits."""
    for before in tag.essential.after:
        await bus.work.put(subjects.after(before, tag.uid), b"{}")


async def turn(bus: Bus, tag: JobTag) -> Turn:
    """What a job that waits for others is to do now."""
    befores = await asyncio.gather(*(bus.tags.get(before) for before in tag.essential.after))
    return dependencies.turn(tag.essential.after_when, [before.status if before else None for before in befores])


async def waiting(bus: Bus, before: str) -> list[str]:
    """The jobs that wait for a job."""
    return [subject.rsplit(".", 1)[1] for subject in await bus.work.subjects(subjects.after_all(before))]


async def forget(bus: Bus, tag: JobTag) -> None:
    """A job waits no more."""
    for before in tag.essential.after:
        await bus.work.purge(subjects.after(before, tag.uid))


def never(tag: JobTag, bus: Bus) -> tuple[JobStatus, Failure]:
    """How a job ends whose turn will never come: what was to follow a failure is not needed, anything else failed."""
    names = ", ".join(tag.essential.after[:5])
    if tag.essential.after_when == "failed":
        cause = f"not needed: none of the jobs before it failed ({names})"
        return JobStatus.CANCELLED, Failure("NotNeeded", cause, bus.clock.wall())
    cause = f"its turn never came: not all of the jobs before it ended as it needs ({names})"
    return JobStatus.FAILED, Failure("DependencyFailed", cause, bus.clock.wall())
