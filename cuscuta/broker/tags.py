"""JobTags: created once, changed by compare-and-set, and never out of a terminal status."""

from collections.abc import Callable

from cuscuta.broker.kv import Bucket
from cuscuta.errors import Conflict
from cuscuta.model import JobTag, decode, encode
from cuscuta.transitions import allowed


class Tags:
    """`cuscuta_tags`."""

    def __init__(self, bucket: Bucket, retention_s: float) -> None:
        self._bucket, self._retention_s = bucket, retention_s

    async def get(self, uid: str) -> JobTag | None:
        """The tag from the leader."""
        entry = await self._bucket.get(uid)
        return decode(entry.value, JobTag) if entry else None

    async def create(self, tag: JobTag) -> bool:
        """Store a new job's tag; False if the uid is taken. This is the guard against twins."""
        return await self._bucket.create(tag.uid, encode(tag))

    async def change(self, uid: str, edit: Callable[[JobTag], bool]) -> JobTag | None:
        """Edit a job's tag in place until the store takes it; the tag as it stands after that, None if it is gone.

        `edit` returns whether there is something to store. A terminal tag is given the retention as its time to live;
        it is not edited again. Raises ValueError for a forbidden transition.
        """
        while True:
            entry = await self._bucket.get(uid)
            if entry is None:
                return None
            tag = decode(entry.value, JobTag)
            before = tag.status
            if before.terminal or not edit(tag):
                return tag
            if not allowed(before, tag.status):
                raise ValueError(f"job {uid} cannot go from {before} to {tag.status}")
            try:
                ttl_s = self._retention_s if tag.status.terminal else None
                await self._bucket.update(uid, encode(tag), entry.revision, ttl_s)
            except Conflict:
                continue
            return tag
