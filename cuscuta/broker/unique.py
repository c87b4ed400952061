"""At most one running job of a target and catalogue, among those that ask to be the only one.

A subject of the work queue can stand once, so whoever publishes it first is the one; it goes when the job has ended.
"""

from cuscuta import subjects
from cuscuta.broker.bus import Bus
from cuscuta.broker.lanes import Waiting
from cuscuta.codec import RecordError, decode, encode
from cuscuta.model import Essential, JobTag

_ACCEPTED_S, _LOOK_S = 2.0, 0.1  # a job that has not been accepted so long after its claim never will be


async def claim(bus: Bus, uid: str, essential: Essential) -> JobTag | None:
    """Stand for a job's target and catalogue; None once it does, else the tag of the job that runs already."""
    subject = _subject(essential)
    while not await bus.work.put(subject, encode(Waiting(uid, essential.priority))):
        found = await bus.work.first(subject)
        if found is None:
            continue
        other = _uid(found.data)
        if other == uid:
            return None
        tag = await _accepted(bus, other)
        if tag is not None and _stands(tag, subject):
            return tag
        await bus.work.delete(found.sequence)
    return None


async def release(bus: Bus, uid: str, essential: Essential) -> None:
    """Stand for it no more; harmless if another one does."""
    found = await bus.work.first(_subject(essential))
    if found is not None and _uid(found.data) == uid:
        await bus.work.delete(found.sequence)


async def sweep(bus: Bus, subject: str, sequence: int) -> bool:
    """Remove a claim whose job has ended or never was; whether it was one."""
    found = await bus.work.first(subject)
    if found is None or found.sequence != sequence:
        return False
    tag = await bus.tags.get(_uid(found.data))
    return (tag is None or not _stands(tag, subject)) and await bus.work.delete(sequence)


def _stands(tag: JobTag, subject: str) -> bool:
    return not tag.status.terminal and _subject(tag.essential) == subject


def _subject(essential: Essential) -> str:
    return subjects.unique(essential.target, essential.catalogue, essential.group)


async def _accepted(bus: Bus, uid: str) -> JobTag | None:
    """The tag of a job whose claim stands; its submit may be between the two."""
    until = bus.clock.monotonic() + _ACCEPTED_S
    while (tag := await bus.tags.get(uid)) is None and bus.clock.monotonic() < until:
        await bus.clock.sleep(_LOOK_S)
    return tag


def _uid(data: bytes) -> str:
    try:
        return decode(data, Waiting).uid
    except RecordError:  # published by hand
        return "none"
