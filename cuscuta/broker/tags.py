"""JobTags: created once, changed by compare-and-set, and never out of a terminal status."""

from collections.abc import Callable
from typing import NamedTuple

from cuscuta.broker.kv import Bucket
from cuscuta.codec import decode, encode
from cuscuta.errors import Conflict
from cuscuta.model import JobTag
from cuscuta.transitions import allowed

Edit = Callable[[JobTag], bool]


class Known(NamedTuple):
    """A tag as it was read or written, and the revision that it had."""

    tag: JobTag
    revision: int


class Tags:
    """`cuscuta_tags`."""

    def __init__(self, bucket: Bucket, retention_s: float) -> None:
        self._bucket, self._retention_s = bucket, retention_s

    async def get(self, uid: str) -> JobTag | None:
        """The tag from the leader."""
        known = await self.read(uid)
        return known.tag if known else None

    async def read(self, uid: str) -> Known | None:
        """The tag from the leader, with its revision."""
        entry = await self._bucket.get(uid)
        return Known(decode(entry.value, JobTag), entry.revision) if entry else None

    async def create(self, tag: JobTag) -> int:
        """Store a new job's tag; its revision, 0 if the uid is taken. This is the guard against twins."""
        return await self._bucket.create(tag.uid, encode(tag))

    async def change(self, uid: str, edit: Edit) -> JobTag | None:
        """Edit a job's tag in place until the store takes it; the tag as it stands after that, None if it is gone.

        `edit` returns whether there is something to store. A terminal tag is given the retention as its time to live;
        it is not edited again, and a further run that has begun meanwhile not at all: what was decided about a run
        does not count for the next one. Raises ValueError for a forbidden transition.
        """
        known = await self.read(uid)
        after = await self.swap(known, edit) if known else None
        return after.tag if after else await self.get(uid)

    async def reopen(self, known: Known, tag: JobTag) -> Known | None:
        """Replace an ended job's tag by that of a further run; None if it has changed since it was read."""
        try:
            return Known(tag, await self._bucket.update(tag.uid, encode(tag), known.revision))
        except Conflict:
            return None

    async def swap(self, known: Known, edit: Edit) -> Known | None:
        """Like `change`, from a tag that was read before; it is read anew only if it has changed since.

        None if it is gone, or if a further run has begun since.
        """
        uid, current = known.tag.uid, known
        while True:
            tag = current.tag
            before = tag.status
            if before.terminal or not edit(tag):
                return current
            if not allowed(before, tag.status):
                raise ValueError(f"job {uid} cannot go from {before} to {tag.status}")
            try:
                ttl_s = self._retention_s if tag.status.terminal else None
                return Known(tag, await self._bucket.update(uid, encode(tag), current.revision, ttl_s))
            except Conflict:
                read = await self.read(uid)
                if read is None or read.tag.run_ids[-1] != known.tag.run_ids[-1]:
                    return None
                current = read
