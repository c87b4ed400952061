"""Ends of jobs that a worker leaves to entry, because something follows that only entry may submit."""

import asyncio

from cuscuta.broker import Bus, follow
from cuscuta.broker.settle import tidy
from cuscuta.uids import is_uid

_KEPT = 10_000  # more at once than this the reaper finds


class Handover:
    """Uids that were announced; whatever is lost on the way the reaper finds seconds later."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._uids: asyncio.Queue[str] = asyncio.Queue(_KEPT)

    def heard(self, uid: str) -> None:
        """A job has ended, and its end is not tidied up."""
        if is_uid(uid) and not self._uids.full():
            self._uids.put_nowait(uid)

    async def run(self) -> None:
        """Tidy up, for ever."""
        while True:
            uid = await self._uids.get()
            try:
                await self._tidy(uid)
            except Exception as error:  # noqa: BLE001 - refused, or a record that is not ours
                self._bus.log.warning("a job's end is left to the reaper", uid=uid, cause=str(error))

    async def _tidy(self, uid: str) -> None:
        tag = await self._bus.tags.get(uid)
        if tag is None or not tag.status.terminal:
            return
        if follow.for_others(self._bus, tag):  # it would only announce it again
            self._bus.log.error("a job was sealed by a replica that has CUSCUTA_SEAL_KEYS; this one has none", uid=uid)
            return
        await tidy(self._bus, tag)
