"""A KV bucket, as `nats kv` sees it. Reads on which a decision rests go to the leader; `many` reads directly."""

import base64
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import NamedTuple

from cuscuta import limits, subjects
from cuscuta.broker.connection import Broker
from cuscuta.broker.translation import NOT_FOUND
from cuscuta.errors import BrokerRefused, Conflict

_EXPECT = "Nats-Expected-Last-Subject-Sequence"
_EXPECT_OF = "Nats-Expected-Last-Subject-Sequence-Subject"


class Entry(NamedTuple):
    """A key's value and its revision for compare-and-set."""

    key: str
    value: bytes
    revision: int
    at: datetime | None = None  # by the server's clock; of `many`, `since` and `follow` only


def _ttl(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {"Nats-TTL": f"{max(1, round(seconds))}s"}


class Bucket:
    """Keys and bytes. Deleting leaves no marker, so nothing grows."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker, self.name, self._stream = broker, name, subjects.kv_stream(name)

    def _subject(self, key: str) -> str:
        return subjects.kv_subject(self.name, key)

    async def get(self, key: str) -> Entry | None:
        """The value from the leader, None if there is none; of a filter, what was written last."""
        try:
            answer = await self._broker.api(f"STREAM.MSG.GET.{self._stream}", {"last_by_subj": self._subject(key)})
        except BrokerRefused as error:
            if error.code in NOT_FOUND:
                return None
            raise
        message = answer["message"]
        found = message["subject"].removeprefix(self._subject(""))
        return Entry(found, base64.b64decode(message.get("data", "")), int(message["seq"]))

    async def create(self, key: str, value: bytes, beside: str = "", revision: int = 0) -> int:
        """Store a value if `revision` is the last one of the key, or of the filter `beside`; its revision, else 0."""
        only_if = {_EXPECT: str(revision), **({_EXPECT_OF: self._subject(beside)} if beside else {})}
        try:
            return await self._broker.publish(self._subject(key), value, only_if)
        except Conflict:
            return 0

    async def update(self, key: str, value: bytes, revision: int, ttl_s: float | None = None) -> int:
        """Replace the value of that revision. Raises Conflict if it changed meanwhile."""
        return await self._broker.publish(self._subject(key), value, {_EXPECT: str(revision), **_ttl(ttl_s)})

    async def put(self, key: str, value: bytes) -> int:
        """Store a value, whatever was there."""
        return await self._broker.publish(self._subject(key), value)

    async def revision(self) -> int:
        """The revision of what was written last, whatever its key."""
        return int((await self._broker.api(f"STREAM.INFO.{self._stream}"))["state"]["last_seq"])

    async def purge(self, key: str, until: int | None = None) -> int:
        """Remove a key, or all keys of a filter, or of those what was written up to a revision; how many."""
        body: dict[str, str | int] = {"filter": self._subject(key), **({} if until is None else {"seq": until + 1})}
        return int((await self._broker.api(f"STREAM.PURGE.{self._stream}", body)).get("purged", 0))

    async def keys(self, key: str = ">") -> list[str]:
        """All keys of a filter, from the leader."""
        prefix = len(self._subject(""))
        return [s[prefix:] for s in await subject_list(self._broker, self._stream, self._subject(key))]

    async def made_at(self) -> str:
        """When the bucket was made; another time means that it was made anew."""
        return str((await self._broker.api(f"STREAM.INFO.{self._stream}"))["created"])

    async def many(self, filters: Sequence[str]) -> list[Entry]:
        """The values of several keys or filters (together at most BATCH_GET_SUBJECTS keys), read directly."""
        return [e async for e in self.follow({"multi_last": [self._subject(f) for f in filters]})]

    async def since(self, revision: int, batch: int = limits.BATCH_GET_SUBJECTS) -> list[Entry]:
        """The entries written after a revision, oldest first, at most `batch`."""
        return [e async for e in self.follow({"batch": batch, "seq": revision + 1})]

    async def follow(self, body: dict[str, object]) -> AsyncIterator[Entry]:
        """The entries that a direct batch get finds."""
        prefix = len(self._subject(""))
        body = {"batch": limits.BATCH_GET_SUBJECTS, **body}
        async for msg in self._broker.batch_get(self._stream, body):
            headers = msg.headers or {}
            if "KV-Operation" in headers or "Nats-Marker-Reason" in headers:
                continue  # a deletion made by hand, with the nats CLI
            at = datetime.fromisoformat(headers["Nats-Time-Stamp"])
            yield Entry(headers["Nats-Subject"][prefix:], msg.data, int(headers["Nats-Sequence"]), at)


async def subject_list(broker: Broker, stream: str, subject_filter: str) -> list[str]:
    """All subjects of a stream that match a filter and hold a message, from the leader, page by page."""
    found: list[str] = []
    while True:
        body = {"subjects_filter": subject_filter, "offset": len(found)}
        answer = await broker.api(f"STREAM.INFO.{stream}", body)
        page = answer["state"].get("subjects") or {}
        found.extend(page)
        if not page or len(found) >= int(answer.get("total", 0)):
            return found
