"""Schedules: their records in a bucket, and for each that runs a message that makes NATS fire it (ADR-51).

The record comes first and the message after it, and goes first: a record without its message gets it from the reaper,
and a message without a record is removed by whoever is given what it fires, or by the reaper.
"""

from collections.abc import Callable, Sequence

from cuscuta import subjects
from cuscuta.broker.connection import Broker
from cuscuta.broker.kv import Bucket, Entry, subject_list
from cuscuta.broker.translation import NOT_FOUND
from cuscuta.broker.work import GONE
from cuscuta.codec import RecordError, decode, encode
from cuscuta.errors import BrokerRefused, Conflict
from cuscuta.limits import BATCH_GET_SUBJECTS
from cuscuta.schedule import Schedule

Change = Callable[[Schedule], Schedule]
BAD_SPEC = (10189, 10223)  # what the server answers to a pattern or a time zone that it does not understand


class Schedules:
    """`cuscuta_schedules` and `CUSCUTA_SCHEDULES`."""

    def __init__(self, broker: Broker, bucket: Bucket, retention_s: float) -> None:
        self._broker, self._bucket, self._retention_s = broker, bucket, retention_s
        self.stream, self.consumer = subjects.SCHEDULES_STREAM, subjects.FIRE_CONSUMER

    async def get(self, name: str) -> Schedule | None:
        """A schedule by id, from the leader; None if there is none, or something that is not ours."""
        entry = await self._bucket.get(name)
        return _read(entry) if entry else None

    async def ids(self) -> list[str]:
        """The ids of all schedules, from the leader, in order."""
        return sorted(await self._bucket.keys())

    async def some(self, ids: Sequence[str]) -> list[Schedule]:
        """Schedules by their ids, in order, read directly."""
        found: list[Schedule] = []
        for i in range(0, len(ids), BATCH_GET_SUBJECTS):
            entries = await self._bucket.many(ids[i : i + BATCH_GET_SUBJECTS])
            read = (schedule for entry in entries if (schedule := _read(entry)))
            found += sorted(read, key=lambda schedule: schedule.id)
        return found

    async def create(self, schedule: Schedule) -> bool:
        """Store a new schedule's record; False if the id is taken."""
        return await self._bucket.create(schedule.id, encode(schedule)) > 0

    async def change(self, name: str, change: Change) -> Schedule | None:
        """Change a record by compare-and-set; None if it is gone. One that is done goes when its retention is over."""
        while (entry := await self._bucket.get(name)) and (schedule := _read(entry)):
            changed = change(schedule)
            ttl_s = self._retention_s if changed.done else None
            try:
                await self._bucket.update(name, encode(changed), entry.revision, ttl_s)
            except Conflict:
                continue
            return changed
        return None

    async def remove(self, name: str) -> bool:
        """End a schedule; whether there was one."""
        found = await self._bucket.purge(name)
        await self.stop(name)
        return found > 0

    async def run(self, schedule: Schedule) -> None:
        """Let NATS fire it, from now on. Raises BrokerRefused with a code of BAD_SPEC."""
        headers = {"Nats-Schedule": schedule.spec, "Nats-Schedule-Target": subjects.fire(schedule.id)}
        if schedule.time_zone:
            headers["Nats-Schedule-Time-Zone"] = schedule.time_zone
        await self._broker.publish(subjects.schedule(schedule.id), encode({"id": schedule.id}), headers)

    async def stop(self, name: str) -> None:
        """Let NATS fire it no more, and forget what has fired and was not seen to yet."""
        await self._broker.api(f"STREAM.PURGE.{self.stream}", {"filter": subjects.schedule(name)})
        # What has fired has a consumer that goes on: by its sequence, for the reason of `Work.delete`.
        try:
            asked = {"last_by_subj": subjects.fire(name)}
            found = (await self._broker.api(f"STREAM.MSG.GET.{self.stream}", asked))["message"]["seq"]
            await self._broker.api(f"STREAM.MSG.DELETE.{self.stream}", {"seq": found, "no_erase": True})
        except BrokerRefused as error:
            if error.code not in (*NOT_FOUND, *GONE):
                raise

    async def standing(self) -> tuple[set[str], set[str]]:
        """The ids that NATS will fire, and those that it has fired and nobody has seen to."""
        will, has = [
            {subject.rsplit(".", 1)[1] for subject in await subject_list(self._broker, self.stream, kind)}
            for kind in (subjects.SCHEDULES, subjects.FIRES)
        ]
        return will, has


def _read(entry: Entry) -> Schedule | None:
    try:
        return decode(entry.value, Schedule)
    except RecordError:  # put there by hand
        return None
