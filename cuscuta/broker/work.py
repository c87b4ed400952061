"""The work queue: lane entries, jobs that wait for admission, chunks. A subject stands in it once."""

import base64
import contextlib
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from cuscuta import subjects
from cuscuta.broker import assets
from cuscuta.broker.batch import Message, publish_batch
from cuscuta.broker.connection import NOT_FOUND, Broker
from cuscuta.broker.heads import Found, Heads
from cuscuta.broker.kv import subject_list
from cuscuta.errors import BrokerRefused, Conflict, Standing
from cuscuta.limits import BATCH_GET_SUBJECTS, BATCH_MESSAGES
from cuscuta.model import ChunkBody, Priority, RecordError, decode, encode
from cuscuta.settings import Settings
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName

GONE = (10043, 10057)  # what a deletion is refused with when the message was acknowledged a moment ago


class Waiting(Struct, frozen=True, omit_defaults=True):
    """Body of lane entries and admit messages."""

    uid: str
    priority: Priority
    group: str = ""


class Work:
    """The work-queue stream as Cuscuta uses it. Every method is safe to repeat."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self._broker, self._settings = broker, settings
        self.stream = subjects.work_stream()
        self._heads = Heads()
        self.messages = 0  # what stood in the stream at the last look

    async def put(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> bool:
        """Publish unless the subject stands; whether it was new."""
        try:
            await self._broker.publish(subject, payload, headers)
        except Standing:
            return False
        return True

    # --- lanes and admission -------------------------------------------------------------------------------------

    async def enter_lane(self, waiting: Waiting, lane: str) -> bool:
        """Put a job into its lane; whether the lane was empty, so that it is the job's turn now.

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
                self._heads.put(lane, Found(entry, await self._broker.publish(entry, body, only_if_empty), body))
                return True
        await self.put(entry, body)
        await self.admit_if_head(waiting.uid, lane)
        return False

    async def admit(self, waiting: Waiting) -> None:
        """Send a job whose turn it is to admission."""
        await self.put(subjects.admit(waiting.priority, waiting.group, waiting.uid), encode(waiting))

    async def claim(self, priority: Priority, group: str) -> str | None:
        """Take the next job of a group out of admission: its uid, which nobody else is given; None if none waits.

        Whoever is given it admits it, or sends it back; what a crash in between leaves, a job in no queue, the reaper
        mends.
        """
        while found := await self.first(subjects.admit_all(priority, group)):
            if await self.delete(found.sequence):
                with contextlib.suppress(ValueError):  # put there by hand
                    return subjects.parse_admit(found.subject)
        return None

    async def head(self, lane: str) -> Waiting | None:
        """The job whose turn it is in a lane."""
        while found := await self._known_head(lane) or await self.first(subjects.lane_all(lane)):
            try:
                _, uid = subjects.parse_lane(found.subject)
            except ValueError:
                await self.purge(found.subject)  # put there by hand, and in everybody's way
                continue
            self._heads.put(lane, found)
            try:
                waiting = decode(found.data, Waiting)
                return Waiting(uid, waiting.priority, waiting.group)
            except RecordError:  # published by hand; the subject says enough
                return Waiting(uid, Priority.NORMAL)
        return None

    async def _known_head(self, lane: str) -> Found | None:
        """The lane's head as it was seen here last, if it still stands: nothing can have come before it.

        To find the head of a lane of 10,000 costs the server milliseconds; to see that one entry stands, 0.2 ms.
        """
        known = self._heads.get(lane)
        if known is None:
            return None
        found = await self.first(known.subject)
        if found is not None and found.sequence == known.sequence:
            return found
        self._heads.forget(lane)
        return None

    async def behind(self, lane: str, uid: str) -> tuple[str, int] | None:
        """The job that stands right behind another one in a lane, and its entry's sequence."""
        mine = await self.first(subjects.lane_entry(lane, uid))
        if mine is None:
            return None
        found = await self.first(subjects.lane_all(lane), mine.sequence + 1)
        return (subjects.parse_lane(found.subject)[1], found.sequence) if found else None

    async def admit_if_head(self, uid: str, lane: str) -> None:
        """Send a job to admission if it is its lane's turn; closes the gap between a release and a late entry."""
        head = await self.head(lane)
        if head and head.uid == uid:
            await self.admit(head)

    async def leave_lane(self, lane: str, uid: str) -> Waiting | None:
        """Take a job's entry out of its lane; the new head, which the caller sends to admission."""
        await self.purge(subjects.lane_entry(lane, uid))
        return await self.head(lane)

    async def active_consumers(self) -> int:
        """How many jobs have a consumer now; also looks how much stands in the stream."""
        state = (await self._broker.api(f"STREAM.INFO.{self.stream}"))["state"]
        self.messages = int(state["messages"])
        return int(state["consumer_count"])

    # --- chunks --------------------------------------------------------------------------------------------------

    async def publish_chunks(
        self, chunks: Iterable[ChunkName], body: ChunkBody, traceparent: str | None = None
    ) -> bool:
        """Publish chunks with one body in atomic batches; those that stand already are left as they are.

        Whether all were new.
        """
        new = True
        headers = {"traceparent": traceparent} if traceparent else {}
        payload = encode(body)
        names = iter(chunks)
        while group := list(islice(names, BATCH_MESSAGES)):
            messages: list[Message] = [(subjects.chunk(name), payload, headers) for name in group]
            try:
                await publish_batch(self._broker, messages)
            except Standing:  # an earlier try got further than we knew
                new = False
                for subject, data, more in messages:
                    await self.put(subject, data, more)
        return new

    async def queued(self, uid: str) -> list[ChunkName]:
        """The chunks of a job that wait or are held, from the leader."""
        names = []
        for subject in await subject_list(self._broker, self.stream, subjects.chunks_of(uid)):
            try:
                names.append(subjects.parse_chunk(subject))
            except ValueError:
                continue  # a malformed message; whoever pulls it files it
        return names

    async def next_chunk(self, uid: str) -> Found | None:
        """The first chunk of a job that waits or is held, from the leader; None means that the queue is empty."""
        return await self.first(subjects.chunks_of(uid))

    async def make_job_consumer(self, uid: str, target: str) -> None:
        """The job's pull consumer. Raises NoRoom at `max_active_jobs`."""
        await assets.make_consumer(
            self._broker,
            subjects.job_consumer(uid),
            [subjects.chunks_of(uid)],
            self._settings.ack_wait_s,
            self._settings.max_deliver,
            target=target.encode("ascii", "backslashreplace").decode()[:100],
        )

    async def drop_job_consumer(self, uid: str) -> None:
        """Delete the job's consumer if it is there."""
        try:
            await self._broker.api(f"CONSUMER.DELETE.{self.stream}.{subjects.job_consumer(uid)}")
        except BrokerRefused as error:
            if error.code not in NOT_FOUND:
                raise

    async def job_consumers(self) -> set[str]:
        """The uids of all jobs that have a consumer."""
        uids: set[str] = set()
        offset = 0
        while True:
            answer = await self._broker.api(f"CONSUMER.NAMES.{self.stream}", {"offset": offset})
            page = answer.get("consumers") or []
            uids.update(uid for name in page if (uid := subjects.parse_job_consumer(name)))
            offset += len(page)
            if not page or offset >= int(answer.get("total", 0)):
                return uids

    async def _consumer_info(self, uid: str) -> dict[str, Any] | None:
        try:
            return await self._broker.api(f"CONSUMER.INFO.{self.stream}.{subjects.job_consumer(uid)}")
        except BrokerRefused as error:
            if error.code in NOT_FOUND:
                return None
            raise

    async def consumer_delivered(self, uid: str) -> tuple[int, int] | None:
        """(pending, unacknowledged) of a job's consumer, None if it has none."""
        if (info := await self._consumer_info(uid)) is None:
            return None
        return int(info["num_pending"]), int(info["num_ack_pending"])

    async def waiters(self, uid: str) -> tuple[int, int]:
        """(chunks that nobody has, open pulls) of a job's consumer; (0, 0) if it has none."""
        if (info := await self._consumer_info(uid)) is None:
            return 0, 0
        return int(info["num_pending"]), int(info["num_waiting"])

    async def sequences(self, names: Sequence[ChunkName]) -> dict[Span, int]:
        """The stream sequences of those chunks that stand, by span; read directly."""
        found: dict[Span, int] = {}
        for i in range(0, len(names), BATCH_GET_SUBJECTS):
            body = {"multi_last": [subjects.chunk(name) for name in names[i : i + BATCH_GET_SUBJECTS]]}
            async for msg in self._broker.batch_get(self.stream, {"batch": BATCH_GET_SUBJECTS, **body}):
                headers = msg.headers or {}
                found[subjects.parse_chunk(headers["Nats-Subject"]).span] = int(headers["Nats-Sequence"])
        return found

    async def dealt_until(self, uid: str) -> int | None:
        """The stream sequence of the last chunk that a job's consumer delivered; None if it has none."""
        if (info := await self._consumer_info(uid)) is None:
            return None
        return int(info["delivered"]["stream_seq"])

    # --- any subject ---------------------------------------------------------------------------------------------

    async def first(self, subject_filter: str, sequence: int = 1) -> Found | None:
        """The first message of a filter, at or after a sequence, from the leader."""
        body = {"seq": sequence, "next_by_subj": subject_filter}
        try:
            answer = await self._broker.api(f"STREAM.MSG.GET.{self.stream}", body)
        except BrokerRefused as error:
            if error.code in NOT_FOUND:
                return None
            raise
        message = answer["message"]
        return Found(message["subject"], int(message["seq"]), base64.b64decode(message.get("data", "")))

    async def subjects(self, subject_filter: str) -> list[str]:
        """All standing subjects of a filter, from the leader."""
        return await subject_list(self._broker, self.stream, subject_filter)

    async def remove(self, subject: str) -> bool:
        """Remove the message of one subject whose consumer goes on; whether there was one."""
        found = await self.first(subject)
        return found is not None and await self.delete(found.sequence)

    async def delete(self, sequence: int) -> bool:
        """Remove one message whose consumer goes on; whether it was there.

        Not by a purge of its subject: at every purge the server (2.15.1, `consumer.purge`) forgets which messages the
        subject's consumer was about to deliver again, and nobody is ever given those.
        """
        try:
            await self._broker.api(f"STREAM.MSG.DELETE.{self.stream}", {"seq": sequence, "no_erase": True})
        except BrokerRefused as error:
            if error.code in (*NOT_FOUND, *GONE):
                return False
            raise
        return True

    async def purge(self, subject_filter: str) -> int:
        """Remove all messages of a filter that no consumer serves, or whose consumer ends; how many."""
        answer = await self._broker.api(f"STREAM.PURGE.{self.stream}", {"filter": subject_filter})
        return int(answer.get("purged", 0))
