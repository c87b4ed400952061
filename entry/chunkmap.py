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
    DONE = "done"
    GIVEN_UP = "given_up"


class Cell(Struct):
    """Items `start` to `stop - 1`. `by` is who holds it, as `worker account`."""

    start: int
    stop: int
    state: CellState
    by: str | None = None


def cells(
    whole: Span, plan: Sequence[Span], stored: Sequence[Span], dead: Sequence[Span], held: Mapping[Span, str]
) -> list[Cell]:
    """The map: cut where the plan, a result, a grave or a holder's chunk begins or ends."""
    done, given_up, holders = spans.union(stored), spans.union(dead), sorted(held)
    starts = [span.start for span in holders]
    if len(plan) + len(stored) > SHOWN:  # nobody sees so many: what is alike and touches is one cell
        plan, stored = (), done
    found = []
    for part in spans.cut(whole, (edge for span in (*plan, *stored, *dead, *held) for edge in span)):
        by, at = None, bisect_right(starts, part.start)
        if spans.meets(done, part):
            state = CellState.DONE
        elif spans.meets(given_up, part):
            state = CellState.GIVEN_UP
        else:
            near = holders[max(0, at - _NEAR) : at]  # nearly all are disjoint
            by = next((held[span] for span in near if spans.inside(part, span)), None)
            state = CellState.HELD if by else CellState.WAITING
        found.append(Cell(part.start, part.stop, state, by))
    return found
