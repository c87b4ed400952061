"""The first start with `seal_keys`: what was accepted before is sealed now, so that an upgrade loses nothing.

Entries are restarted one after another, and for a while some still accept without a seal. So for ten minutes from the
first start with keys on what bears no seal is taken; a wrong one never is.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from cuscuta import subjects
from cuscuta.broker.bus import Bus
from cuscuta.codec import RecordError, decode, encode
from cuscuta.errors import Conflict
from cuscuta.model import JobTag
from cuscuta.seal import genuine, sealed

GRACE = timedelta(minutes=10)
_MARK = "cuscuta-sealed-since"  # in the stream's metadata, which nobody but entry may change


async def accepted(bus: Bus, tag: JobTag) -> bool:
    """Whether a tag says what somebody accepted who may. Raises BrokerUnavailable."""
    if genuine(bus.settings.seal_keys, tag):
        return True
    return not tag.essential.seal and bus.clock.wall() < await _strict_from(bus)


async def adopt(bus: Bus) -> int:
    """Seal the jobs that have not ended, unless that was done before; how many. Raises BrokerUnavailable."""
    stream = subjects.kv_stream(subjects.TAGS)
    config = (await bus.broker.api(f"STREAM.INFO.{stream}"))["config"]
    metadata = config.get("metadata") or {}
    if not bus.settings.seal_keys or _MARK in metadata:
        return 0
    now = bus.clock.wall().isoformat()
    await bus.broker.api(f"STREAM.UPDATE.{stream}", {**config, "metadata": {**metadata, _MARK: now}})
    count = revision = 0
    while entries := await bus.tag_bucket.since(revision):
        revision = entries[-1].revision
        for entry in entries:
            count += await _seal(bus, entry.key)
    return count


async def _strict_from(bus: Bus) -> datetime:
    """From when on everything must bear a seal; not yet if nobody has started with keys."""
    config = (await bus.broker.api(f"STREAM.INFO.{subjects.kv_stream(subjects.TAGS)}"))["config"]
    since = (config.get("metadata") or {}).get(_MARK)
    return (datetime.fromisoformat(since) if since else bus.clock.wall()) + GRACE


async def _seal(bus: Bus, uid: str) -> bool:
    while (entry := await bus.tag_bucket.get(uid)) is not None:
        try:
            tag = decode(entry.value, JobTag)
        except RecordError:
            return False
        if tag.status.terminal or tag.essential.seal:
            return False
        tag = replace(tag, essential=sealed(bus.settings.seal_keys, uid, tag.essential, tag.run_ids))
        try:
            await bus.tag_bucket.update(uid, encode(tag), entry.revision)
        except Conflict:  # somebody is at work on it
            continue
        return True
    return False
