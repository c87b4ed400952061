"""A job's chunk map: every item in one cell, with what is known of it. Pure."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from cuscuta import spans
from cuscuta.spans import Span

SHOWN = 2_000  # chunks and results of their own; above that, cells are merged
_NEAR = 8


class CellState(StrEnum):
    """What is known of a cell's items."""

    WAITING = "waiting"  # nobody works on it, as far as the workers' last heartbeats tell
    HELD = "held"  # a seat works on it
    RIDDEN = "ridden"  # a seat at work on another job polls for this one as well
    DONE = "done"
    GIVEN_UP = "given_up"


class Cell(Struct):
    """Items `start` to `stop - 1`. `by` is who holds it or polls for it, as `worker account`."""

    start: int
    stop: int
    state: CellState
    by: str | None = None


def cells(
    whole: Span,
    plan: Sequence[Span],
    stored: Sequence[Span],
    dead: Sequence[Span],
    held: Mapping[Span, str],
    ridden: Mapping[Span, str],
) -> list[Cell]:
    """The map: cut where the plan, a result, a grave, a holder's chunk or a ride begins or ends."""
    done, given_up, holding, riding = spans.union(stored), spans.union(dead), _Whose(held), _Whose(ridden)
    if len(plan) + len(stored) > SHOWN:  # nobody sees so many: what is alike and touches is one cell
        plan, stored = (), done
    found = []
    for part in spans.cut(whole, (edge for span in (*plan, *stored, *dead, *held, *ridden) for edge in span)):
        by = None
        if spans.meets(done, part):
            state = CellState.DONE
        elif spans.meets(given_up, part):
            state = CellState.GIVEN_UP
        elif by := holding.of(part):
            state = CellState.HELD
        elif by := riding.of(part):
            state = CellState.RIDDEN
        else:
            state = CellState.WAITING
        found.append(Cell(part.start, part.stop, state, by))
    return found


class _Whose:
    """Whose span a part lies in."""

    def __init__(self, of: Mapping[Span, str]) -> None:
        self._of, self._spans = of, sorted(of)
        self._starts = [span.start for span in self._spans]

    def of(self, part: Span) -> str | None:
        at = bisect_right(self._starts, part.start)
        near = self._spans[max(0, at - _NEAR) : at]  # nearly all are disjoint
        return next((self._of[span] for span in near if spans.inside(part, span)), None)
