"""Lanes, in which jobs of one key wait for each other, and admission, where those wait whose turn it is."""

import contextlib

from msgspec import Struct

from cuscuta import subjects
from cuscuta.broker.connection import Broker
from cuscuta.broker.work import Found, Work
from cuscuta.codec import RecordError, decode, encode
from cuscuta.errors import Conflict, Standing
from cuscuta.limits import HEADS_KNOWN
from cuscuta.model import Priority


class Waiting(Struct, frozen=True, omit_defaults=True):
    """Body of lane entries and admit messages.

    `place`, in the latter, is the sequence of the job's entry, which is its lane's head. It means nothing without lane
    and uid: the stream's numbers begin anew if it is made anew.
    """

    uid: str
    priority: Priority
    group: str = ""
    place: int = 0


class Lanes:
    """A lane's first entry says whose turn it is. Every method but `claim` is safe to repeat."""

    def __init__(self, broker: Broker, work: Work) -> None:
        self._broker, self._work = broker, work
        self._heads = Heads()

    async def enter(self, waiting: Waiting, lane: str) -> int:
        """Put a job into its lane; its place if the lane was empty, so that it is the job's turn now, else 0.

        A job that comes into a lane with others is sent to admission if it should be its turn after all. The condition
        on a whole lane costs the server a look at each of its entries, so it is spared where a head is known to stand.
        """
        body = encode(waiting)
        entry = subjects.lane_entry(lane, waiting.uid)
        only_if_empty = {
            "Nats-Expected-Last-Subject-Sequence": "0",
            "Nats-Expected-Last-Subject-Sequence-Subject": subjects.lane_all(lane),
        }
        if await self._known_head(lane) is None:
            with contextlib.suppress(Conflict, Standing):
                place = await self._broker.publish(entry, body, only_if_empty)
                self._heads.put(lane, Found(entry, place, body))
                return place
        await self._work.put(entry, body)
        await self.admit_if_head(waiting.uid, lane)
        return 0

    async def admit(self, waiting: Waiting) -> None:
        """Send a job whose turn it is to admission."""
        await self._work.put(subjects.admit(waiting.priority, waiting.group, waiting.uid), encode(waiting))

    async def claim(self, priority: Priority, group: str) -> Waiting | None:
        """Take the next job of a group out of admission, which nobody else is given; None if none waits.

        Whoever is given it admits it, or sends it back; what a crash in between leaves, a job in no queue, the reaper
        mends.
        """
        while found := await self._work.first(subjects.admit_all(priority, group)):
            if await self._work.delete(found.sequence):
                with contextlib.suppress(ValueError):  # put there by hand
                    uid = subjects.parse_admit(found.subject)
                    return Waiting(uid, priority, group, _place(found))
        return None

    async def head(self, lane: str) -> Waiting | None:
        """The job whose turn it is in a lane."""
        while found := await self._known_head(lane) or await self._work.first(subjects.lane_all(lane)):
            try:
                _, uid = subjects.parse_lane(found.subject)
            except ValueError:
                await self._work.purge(found.subject)  # put there by hand, and in everybody's way
                continue
            self._heads.put(lane, found)
            try:
                waiting = decode(found.data, Waiting)
                return Waiting(uid, waiting.priority, waiting.group, found.sequence)
            except RecordError:  # published by hand; the subject says enough
                return Waiting(uid, Priority.NORMAL, place=found.sequence)
        return None

    async def turn(self, lane: str, waiting: Waiting) -> int:
        """A job's place if it is its turn in a lane, else 0. Whoever was its lane's head once is so until it leaves."""
        if waiting.place:
            found = await self._work.first(subjects.lane_entry(lane, waiting.uid))
            if found is not None and found.sequence == waiting.place:
                return waiting.place
        head = await self.head(lane)
        return head.place if head and head.uid == waiting.uid else 0

    async def _known_head(self, lane: str) -> Found | None:
        """The lane's head as it was seen here last, if it still stands: nothing can have come before it.

        To find the head of a lane of 10,000 costs the server milliseconds; to see that one entry stands, 0.2 ms.
        """
        known = self._heads.get(lane)
        if known is None:
            return None
        found = await self._work.first(known.subject)
        if found is not None and found.sequence == known.sequence:
            return found
        self._heads.forget(lane)
        return None

    async def behind(self, lane: str, uid: str, place: int) -> tuple[str, int] | None:
        """The job that stands right behind another one's place in a lane, and its own; None if that one has left it.

        The other one is looked at last: as long as it stands, nobody behind it has had a turn.
        """
        while found := await self._work.first(subjects.lane_all(lane), place + 1):
            try:
                later = subjects.parse_lane(found.subject)[1]
            except ValueError:
                await self._work.purge(found.subject)  # put there by hand
                continue
            mine = await self._work.first(subjects.lane_entry(lane, uid))
            return (later, found.sequence) if mine and mine.sequence == place else None
        return None

    async def admit_if_head(self, uid: str, lane: str) -> None:
        """Send a job to admission if it is its lane's turn; closes the gap between a release and a late entry."""
        head = await self.head(lane)
        if head and head.uid == uid:
            await self.admit(head)

    async def leave(self, lane: str, uid: str, place: int) -> bool:
        """Take a job's entry out of its lane if it stands at its place; whether it did. One put there later stays."""
        self._heads.forget(lane)
        return await self._work.purge(subjects.lane_entry(lane, uid), place) > 0


class Heads:
    """By lane; the oldest are forgotten. Whoever uses one must see that it still stands."""

    def __init__(self) -> None:
        self._found: dict[str, Found] = {}

    def get(self, lane: str) -> Found | None:
        """The head that was seen last."""
        return self._found.get(lane)

    def put(self, lane: str, head: Found) -> None:
        """A head was seen."""
        self._found.pop(lane, None)
        self._found[lane] = head
        while len(self._found) > HEADS_KNOWN:
            del self._found[next(iter(self._found))]

    def forget(self, lane: str) -> None:
        """It stands no more."""
        self._found.pop(lane, None)


def _place(admit: Found) -> int:
    """What an admit message says of its job's place; 0 if it was put there by hand."""
    try:
        return decode(admit.data, Waiting).place
    except RecordError:
        return 0
