"""The work queue: chunks and their consumers, and the stream below it all. A subject stands in it once."""

import base64
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from cuscuta import subjects, telemetry
from cuscuta.broker import assets
from cuscuta.broker.batch import Message, publish_batch
from cuscuta.broker.connection import Broker
from cuscuta.broker.kv import subject_list
from cuscuta.broker.translation import NOT_FOUND
from cuscuta.codec import encode
from cuscuta.errors import BrokerRefused, Standing
from cuscuta.limits import BATCH_GET_SUBJECTS, BATCH_MESSAGES
from cuscuta.model import ChunkBody
from cuscuta.settings import Settings
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName

GONE = (10043, 10057)  # what a deletion is refused with when the message was acknowledged a moment ago


class Found(NamedTuple):
    """A message of the stream, read without a consumer."""

    subject: str
    sequence: int
    data: bytes


class Work:
    """The work-queue stream as Cuscuta uses it. Every method is safe to repeat."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self._broker, self._settings = broker, settings
        self.stream = subjects.work_stream()
        self.messages = 0  # what stood in the stream at the last look

    async def put(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> bool:
        """Publish unless the subject stands; whether it was new."""
        try:
            await self._broker.publish(subject, payload, headers)
        except Standing:
            return False
        return True

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
        headers = {telemetry.TRACEPARENT: traceparent} if traceparent else {}
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

    async def deliveries(self, uid: str) -> int:
        """How many deliveries a job's consumer has made, repeated ones included; 0 if it has none."""
        info = await self._consumer_info(uid)
        return int(info["delivered"]["consumer_seq"]) if info else 0

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

    async def purge(self, subject_filter: str, until: int = 0) -> int:
        """Remove all messages of a filter that no consumer serves, or whose consumer ends; how many.

        With `until`, those up to this sequence.
        """
        what: dict[str, str | int] = {"filter": subject_filter}
        if until:
            what["seq"] = until + 1
        answer = await self._broker.api(f"STREAM.PURGE.{self.stream}", what)
        return int(answer.get("purged", 0))
