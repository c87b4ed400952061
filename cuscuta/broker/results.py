"""Results: created, never overwritten; what is stored is known from the keys alone.

Nobody overwrites, and nobody stores an item beside another: what is written begins where nothing begins yet, which
NATS itself makes sure of. Two who work on the same items by mistake (NATS forgot that it had delivered them, or one is
very late) therefore meet at the first item that neither has stored. The later one learns of it, and from then on adds
only what is missing. Whoever lets others begin inside of what is his first claims the place where he will go on, and
writes into the claim what he gives away, so that a third who knows nothing of them is met there as well.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

import msgspec

from cuscuta import limits, spans, subjects
from cuscuta.broker.connection import Broker
from cuscuta.broker.kv import Bucket
from cuscuta.codec import RecordError, decode, encode
from cuscuta.errors import ResultTooLarge, TooLarge
from cuscuta.model import ChunkResult, ItemError
from cuscuta.spans import Span

NULL = msgspec.Raw(b"null")
GIVING_S = 2.0  # what somebody has said he gives away stands in the queue after this, or never will
READ_KEYS = 64  # results read at a time: 64 of at most 1 MiB stay below the server's 64 MiB of pending output


class Results:
    """`cuscuta_results` and the dead chunks, which together say what of a job is settled."""

    def __init__(self, broker: Broker, bucket: Bucket) -> None:
        self._broker, self._bucket = broker, bucket

    async def claim(self, uid: str, start: int, given: Sequence[Span], revision: int = 0) -> int:
        """Claim the place where one will go on, and say what behind it is given away: the claim's revision.

        0 if somebody else begins there; with a revision, if the claim is not ours any more.
        """
        key, beside = subjects.claim_key(uid, start), subjects.results_from(uid, start)
        return await self._bucket.create(key, encode(given), beside, revision)

    async def write(self, uid: str, span: Span, result: ChunkResult, claim: int = 0) -> bool:
        """Store a span's results; False, and not all of them are, if somebody else begins at the same item.

        Too big ones are split; a single item that is too big becomes an error.
        """
        value = encode(result)
        if len(value) <= self._broker.max_payload - limits.RESULT_HEADROOM_BYTES:
            with contextlib.suppress(TooLarge):  # the stream takes less than the server
                key, beside = subjects.result_key(uid, span), subjects.results_from(uid, span.start)
                return await self._bucket.create(key, value, beside, claim) > 0
        if span.size == 1:
            return await self.write(uid, span, _refused(span, result, len(value)), claim)
        first, second = spans.split(span, 2)
        return await self.write(uid, first, sliced(result, span, first), claim) and await self.write(
            uid, second, sliced(result, span, second)
        )

    async def fill(
        self, uid: str, span: Span, result: ChunkResult, missing: Callable[[Span, list[Span]], Awaitable[list[Span]]]
    ) -> list[ChunkResult]:
        """Store what of a span is missing, where others may be storing parts of it at the same time; what was stored.

        `missing` is told what has been given away, as the claim of whoever goes on there says. What he has given stands
        in the queue in a moment, and is then not missing; if it is after a while, he has died or failed before.
        """
        until, written = self._broker.clock.monotonic() + GIVING_S, list[ChunkResult]()
        while gaps := await missing(span, []):
            found = await self._bucket.get(subjects.results_from(uid, gaps[0].start))
            if found and _spans([found.key]):
                continue  # stored after the look at what is missing
            if found and self._broker.clock.monotonic() < until and gaps != await missing(span, _given(found.value)):
                await self._broker.clock.sleep(GIVING_S / 20)
                continue
            part = sliced(result, span, gaps[0])
            if await self.write(uid, gaps[0], part, found.revision if found else 0):
                written.append(part)
        return written

    async def stored(self, uid: str) -> list[Span]:
        """The spans that have results, from the leader, as they were written."""
        return _spans(await self._bucket.keys(subjects.results_of(uid)))

    async def missing(self, uid: str, span: Span, given: Sequence[Span]) -> list[Span]:
        """What of a span is neither stored nor given away."""
        return spans.gaps(span, [*await self.stored(uid), *given])

    async def begun(self, uid: str, start: int) -> bool:
        """Whether something stored, or a claim, begins at an item; one cheap direct read."""
        return bool(await self._bucket.many([subjects.results_from(uid, start)]))

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
                yield part, sliced(value, span, part)
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
            if not seen:  # purged meanwhile, or the replica that answers lags behind the leader
                for span in missing:
                    if leaders := await self._bucket.get(subjects.result_key(uid, span)):
                        with contextlib.suppress(RecordError):
                            found[span] = decode(leaders.value, ChunkResult)
                break
            missing = [span for span in missing if span not in seen]
        return found

    async def revision(self) -> int:
        """Of what was stored last, of any job; from the leader."""
        return await self._bucket.revision()

    async def forget(self, uid: str, until: int) -> int:
        """Remove what results a job had up to a revision, and its graves; how many records.

        The revision is one from before the job was found to be none: this call may be held up for so long that another
        job of the uid has begun, and ended.
        """
        await self.forget_graves(uid)
        return await self._bucket.purge(subjects.results_of(uid), until)

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


def _given(claim: bytes) -> list[Span]:
    """What a claim says; nothing if it was put there by hand."""
    with contextlib.suppress(RecordError):
        return decode(claim, list[Span])
    return []


def sliced(result: ChunkResult, span: Span, part: Span) -> ChunkResult:
    """What a span's results say of a part of it."""
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
