"""Results: created, never overwritten; what is stored is known from the keys alone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from cuscuta import limits, spans, subjects
from cuscuta.broker.connection import Broker
from cuscuta.broker.kv import Bucket
from cuscuta.codec import RecordError, decode, encode
from cuscuta.errors import BrokerUnavailable, ResultTooLarge, TooLarge
from cuscuta.model import ChunkResult, ItemError
from cuscuta.spans import Span

NULL = msgspec.Raw(b"null")
READ_KEYS = 64  # results read at a time: 64 of at most 1 MiB stay below the server's 64 MiB of pending output


class Results:
    """`cuscuta_results` and the dead chunks, which together say what of a job is settled."""

    def __init__(self, broker: Broker, bucket: Bucket) -> None:
        self._broker, self._bucket = broker, bucket

    async def write(self, uid: str, span: Span, result: ChunkResult) -> None:
        """Store a span's results unless they are there. Too big ones are split; a single such item becomes an error.

        What begins where something else begins is not stored beside it: the first write wins, and of the later one
        only what is not there yet is added. So a holder that was too slow does not double what another has done.
        """
        value = encode(result)
        if len(value) <= self._broker.max_payload - limits.RESULT_HEADROOM_BYTES:
            try:
                key, beside = subjects.result_key(uid, span), subjects.results_from(uid, span.start)
                if await self._bucket.create(key, value, beside):
                    return
                gaps = spans.gaps(span, await self.stored(uid))
                if gaps == [span]:  # put there by hand, or on its way and not to be seen yet
                    if await self._bucket.create(key, value):
                        return
                    raise BrokerUnavailable("a result that begins at the same item is being stored")
                for gap in gaps:
                    await self.write(uid, gap, _slice(result, span, gap))
                return
            except TooLarge:
                pass  # the stream takes less than the server
        if span.size == 1:
            await self.write(uid, span, _refused(span, result, len(value)))
            return
        for part in spans.split(span, 2):
            await self.write(uid, part, _slice(result, span, part))

    async def fill(self, uid: str, span: Span, result: ChunkResult) -> None:
        """Store what of a span is not stored yet, where others may be storing parts of it too."""
        for gap in spans.gaps(span, await self.stored(uid)):
            await self.write(uid, gap, _slice(result, span, gap))

    async def stored(self, uid: str) -> list[Span]:
        """The spans that have results, from the leader, as they were written."""
        return _spans(await self._bucket.keys(subjects.results_of(uid)))

    async def starts(self, uid: str, starts: Sequence[int]) -> list[Span]:
        """Stored spans that begin at one of these items; one cheap direct read for a whole pull."""
        found = await self._bucket.many([subjects.results_from(uid, start) for start in starts])
        return _spans(entry.key for entry in found)

    async def given_up(self, uid: str) -> list[Span]:
        """The spans that were given up, from the leader."""
        answer = await self._broker.api(
            f"STREAM.INFO.{subjects.DEAD_STREAM}", {"subjects_filter": subjects.dead_of(uid)}
        )
        found = []
        for subject in answer["state"].get("subjects") or {}:
            with contextlib.suppress(ValueError):
                if parsed := subjects.parse_dead(subject):
                    found.append(parsed[1])
        return found

    async def coverage(self, uid: str) -> tuple[list[Span], list[Span]]:
        """(stored, given up)."""
        stored, dead = await asyncio.gather(self.stored(uid), self.given_up(uid))
        return stored, dead

    async def read(self, uid: str, within: Span, stored: Sequence[Span]) -> AsyncIterator[tuple[Span, ChunkResult]]:
        """The results inside of a span in order; each item once, even if two holders stored it."""
        held = sorted(s for s in stored if spans.clip(s, within).size)
        cursor = within.start
        for i in range(0, len(held), READ_KEYS):
            group = held[i : i + READ_KEYS]
            entries = await self._get(uid, group)
            for span in group:
                part = spans.clip(span, Span(cursor, within.stop))
                value = entries.get(span)
                if not part.size or value is None:
                    continue
                yield part, _slice(value, span, part)
                cursor = part.stop

    async def _get(self, uid: str, group: Sequence[Span]) -> dict[Span, ChunkResult]:
        found: dict[Span, ChunkResult] = {}
        missing = list(group)
        while missing:
            entries = await self._bucket.many([subjects.result_key(uid, span) for span in missing])
            seen = set()
            for entry in entries:
                span = subjects.parse_result(entry.key)[1]
                seen.add(span)
                with contextlib.suppress(RecordError):  # written by hand
                    found[span] = decode(entry.value, ChunkResult)
            if not seen:
                break  # purged meanwhile
            missing = [span for span in missing if span not in seen]
        return found

    async def forget(self, uid: str) -> int:
        """Remove all results and all graves of a job; how many records."""
        await self.forget_graves(uid)
        return await self._bucket.purge(subjects.results_of(uid))

    async def forget_graves(self, uid: str) -> None:
        """Let what was given up count as missing again."""
        await self._broker.api(f"STREAM.PURGE.{subjects.DEAD_STREAM}", {"filter": subjects.dead_of(uid)})

    async def jobs(self) -> set[str]:
        """The uids that have results."""
        return {key.split(".")[0] for key in await self._bucket.keys()}


def _spans(keys: Iterable[str]) -> list[Span]:
    """The spans of result keys; whatever was put there by hand and is none is passed over."""
    found = []
    for key in keys:
        with contextlib.suppress(ValueError):
            found.append(subjects.parse_result(key)[1])
    return found


def _slice(result: ChunkResult, span: Span, part: Span) -> ChunkResult:
    if part == span:
        return result
    return ChunkResult(
        values=result.values[part.start - span.start : part.stop - span.start],
        at=result.at,
        worker=result.worker,
        account=result.account,
        errors={k: v for k, v in result.errors.items() if part.start <= int(k) < part.stop},
    )


def _refused(span: Span, result: ChunkResult, size: int) -> ChunkResult:
    error = ItemError(
        ResultTooLarge.__name__, f"result too large: {size:,} bytes; NATS takes 1 MiB unless configured higher"
    )
    return ChunkResult(
        values=[NULL], at=result.at, worker=result.worker, account=result.account, errors={str(span.start): error}
    )
