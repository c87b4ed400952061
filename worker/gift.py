"""What a run has begun and what it may still give away: to idle seats, or, asked for twice, to nobody and somebody.

Safe at every line. The chunk in hand stands in the queue until all of it is stored or stands there as another chunk:
what is given away is published first, and only then not done here. A gift whose publishing failed is done here after
all. Should the holder die in between, the chunk is redelivered, and whoever takes it leaves out what is stored and what
stands in later chunks inside of it.
"""

import asyncio

from cuscuta import instruments, spans, subjects, telemetry
from cuscuta.codec import encode
from cuscuta.errors import BrokerRefused, BrokerUnavailable
from cuscuta.model import ChunkBody
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from worker import pieces, traced
from worker.account import Account
from worker.balance import Gift, Load
from worker.holds import Trust
from worker.kit import Kit
from worker.pieces import Piece
from worker.shelf import Shelf


class Gifts:
    """The part of a run that its job's tail knows."""

    def __init__(
        self, kit: Kit, account: Account, held: list[Piece], todo: list[Span], shelf: Shelf, trust: Trust
    ) -> None:
        self._kit, self._account, self._held, self._todo = kit, account, held, todo
        self._shelf, self._trust = shelf, trust
        self._fresh = held[0].fresh and todo == [pieces.whole(held)]  # what is not begun of it is fresh as well
        self._begun = todo[0].start if todo else held[-1].name.span.stop  # everything before it was asked for
        self._stop = held[-1].name.span.stop  # nothing from here on is ours any more
        self.asked: dict[int, float] = {}  # items in flight, and since when
        self._twice: set[int] = set()
        self._giving = asyncio.Lock()
        self.traceparent: str | None = None  # of the run's own span
        self._closed = False

    @property
    def uid(self) -> str:
        """The job."""
        return self._held[0].name.uid

    def begin(self, index: int) -> bool:
        """Ask for an item; False if it was given away."""
        if index >= self._stop:
            return False
        self._begun = index + 1
        return True

    async def left(self, gap: Span, cursor: int) -> bool:
        """Whether something of a gap is ours to do, once the gift on its way has arrived or failed."""
        async with self._giving:
            return cursor < min(gap.stop, self._stop)

    async def close(self) -> int:
        """No more gifts; where ours ends."""
        async with self._giving:
            self._closed = True
            return self._stop

    # --- for the tail ---------------------------------------------------------------------------------------------

    def unbegun(self) -> list[Span]:
        """What is ours to do and was not asked for yet, by gaps."""
        parts = (spans.clip(gap, Span(self._begun, self._stop)) for gap in self._todo)
        return [part for part in parts if part.size]

    @property
    def rest(self) -> int:
        """How many items were not asked for yet."""
        return sum(part.size for part in self.unbegun())

    def load(self, now: float, typical_s: float) -> Load:
        """What is left of it."""
        item_s = self._account.item_s or typical_s
        waited_s = now - max(self.asked.values(), default=now - item_s)
        # A call that is overdue is expected to last as long again, so that nothing stays behind one that is stuck.
        busy_s = item_s - waited_s if waited_s <= item_s else waited_s
        return Load(busy_s if self.asked else 0.0, 0 if self._closed else self.rest, item_s)

    def asked_since(self) -> dict[int, float]:
        """Items in flight that were not asked for twice yet, and since when."""
        return {index: since for index, since in self.asked.items() if index not in self._twice}

    async def give(self, gift: Gift) -> int:
        """Give away all but `keep` of what is not begun, as `parts` chunks; how many were published."""
        async with self._giving:
            if self._closed or not self._trust.holds() or not (unbegun := self.unbegun()):
                return 0
            last = unbegun[-1]
            given = Span(max(last.start, last.stop - (self.rest - gift.keep)), last.stop)
            if not given.size:
                return 0
            self._stop = given.start
            published = 0
            parts = self._by_piece(spans.split(given, gift.parts))
            async with self._shelf.giving([part for part, _ in parts]) as heard:
                for part in reversed(parts):
                    if not heard or not await self._publish(*part, heard, fresh=self._fresh):
                        self._stop = part[0].stop  # this part and what lies before it is ours after all
                        break
                    published += 1
            return published

    def _by_piece(self, parts: list[Span]) -> list[tuple[Span, Piece]]:
        """The parts cut at the bounds of the chunks in hand, so that later chunks lie inside of earlier ones."""
        cut = ((spans.clip(part, piece.name.span), piece) for part in parts for piece in self._held)
        return [(inner, piece) for inner, piece in cut if inner.size]

    async def hedge(self, index: int) -> bool:
        """Let another seat ask for an item in flight too; the first result wins."""
        async with self._giving:
            if self._closed or index not in self.asked or index in self._twice or not self._trust.holds():
                return False
            self._twice.add(index)
            self._shelf.alone(index)
            await self._shelf.flush()  # what waits behind a stuck item would keep the job from its end
            (part,) = self._by_piece([Span(index, index + 1)])
            async with self._shelf.giving([part[0]]) as heard:
                return bool(heard) and await self._publish(*part, heard, fresh=False)

    async def _publish(self, part: Span, piece: Piece, claim: dict[int, int], *, fresh: bool) -> bool:
        """Publish a part of a chunk in hand; whether it stands, or may stand, in the queue.

        Tried again for as long as we hold the chunk. If it never stood there, it is a gap that settling finds.
        """
        name = ChunkName(self.uid, part, piece.name.n + 1 if part == piece.name.span else 1)
        ours = piece.body
        body = ChunkBody(
            self.uid, ours.catalogue, ours.target, piece.attempts, fresh, gift=True, claim=claim.get(part.start, 0)
        )
        kind = "gift" if part.size > 1 or part.start not in self._twice else "hedge"
        headers = telemetry.handing_on(traced.above(self._kit.jobs, piece), self.traceparent, kind)
        maybe = False
        while self._trust.holds():
            try:
                await self._kit.bus.work.put(subjects.chunk(name), encode(body), headers)
                instruments.GIFTS.add(1, {"cuscuta.kind": kind})
                return True
            except BrokerUnavailable:
                maybe = True  # only the answer may be lost
            except BrokerRefused as error:
                self._kit.log.debug("a gift was refused", uid=self.uid, span=str(part), cause=str(error))
                if not maybe:
                    return False
            await self._kit.bus.clock.sleep(0.2)
        return maybe
