"""The first start with `seal_keys`: what was accepted before is sealed now, once, so that an upgrade loses nothing."""

from msgspec.structs import replace

from cuscuta import subjects
from cuscuta.broker.bus import Bus
from cuscuta.codec import RecordError, decode, encode
from cuscuta.errors import Conflict
from cuscuta.model import JobTag
from cuscuta.seal import sealed

_MARK = "cuscuta-sealed"  # in the stream's metadata, which nobody but entry may change


async def adopt(bus: Bus) -> int:
    """Seal the jobs that have not ended, unless that was done before; how many. Raises BrokerUnavailable."""
    keys, stream = bus.settings.seal_keys, subjects.kv_stream(subjects.TAGS)
    config = (await bus.broker.api(f"STREAM.INFO.{stream}"))["config"]
    metadata = config.get("metadata") or {}
    if not keys or _MARK in metadata:
        return 0
    count = revision = 0
    while entries := await bus.tag_bucket.since(revision):
        revision = entries[-1].revision
        for entry in entries:
            count += await _seal(bus, entry.key)
    await bus.broker.api(f"STREAM.UPDATE.{stream}", {**config, "metadata": {**metadata, _MARK: "yes"}})
    return count


async def _seal(bus: Bus, uid: str) -> bool:
    while (entry := await bus.tag_bucket.get(uid)) is not None:
        try:
            tag = decode(entry.value, JobTag)
        except RecordError:
            return False
        if tag.status.terminal or tag.essential.seal:
            return False
        tag = replace(tag, essential=sealed(bus.settings.seal_keys, uid, tag.essential))
        try:
            await bus.tag_bucket.update(uid, encode(tag), entry.revision)
        except Conflict:  # somebody is at work on it
            continue
        return True
    return False
