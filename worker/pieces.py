"""Chunks in a seat's hands, and which of them can be worked off as one: pure but for the holds that they carry."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cuscuta import spans
from cuscuta.model import ChunkBody
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from worker.holds import Hold


class Piece(NamedTuple):
    """One delivered chunk; the deaths of its earlier holders count as attempts."""

    hold: Hold
    name: ChunkName
    body: ChunkBody

    @property
    def attempts(self) -> int:
        """Attempts used up before this delivery."""
        return self.body.attempts + self.hold.delivery.delivered - 1

    @property
    def fresh(self) -> bool:
        """Whether this is the first delivery of a chunk of which nobody had asked for anything."""
        return self.body.fresh and self.hold.delivery.delivered == 1


def stretches(held: Iterable[Piece], fresh: Callable[[Piece], bool]) -> list[list[Piece]]:
    """Neighbouring fresh chunks of one job as one stretch: one run, one result. Anything else stands alone."""
    found: list[list[Piece]] = []
    last_is_fresh = False
    for piece in held:
        is_fresh = fresh(piece)
        if is_fresh and last_is_fresh and _neighbours(found[-1][-1], piece):
            found[-1].append(piece)
        else:
            found.append([piece])
        last_is_fresh = is_fresh
    return found


def _neighbours(left: Piece, right: Piece) -> bool:
    return left.name.uid == right.name.uid and left.name.span.stop == right.name.span.start


def whole(pieces: Sequence[Piece]) -> Span:
    """The span of a stretch."""
    return Span(pieces[0].name.span.start, pieces[-1].name.span.stop)


def rest(piece: Piece, cursor: int, stop: int) -> Span:
    """What of a chunk the cursor has not reached, up to where what was given away begins."""
    return spans.clip(piece.name.span, Span(cursor, stop))
