"""Half-open spans of a catalogue: union, gaps, splitting and dividing. Pure; knows nothing but numbers."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import NamedTuple

from cuscuta import limits

_SPAN = re.compile("([0-9]+)-([0-9]+)")


class Span(NamedTuple):
    """Items `start` to `stop - 1`. Written `start-stop`; in JSON an array of two numbers."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many items, never below 0."""
        return max(0, self.stop - self.start)

    def __str__(self) -> str:
        return f"{self.start}-{self.stop}"


def parse(text: str) -> Span:
    """`12-34` as a span. Raises ValueError for anything else, an empty span included."""
    if not (found := _SPAN.fullmatch(text)):
        raise ValueError(f"not a span: {text!r}")
    span = Span(int(found[1]), int(found[2]))
    if span.start >= span.stop:
        raise ValueError(f"an empty span: {text!r}")
    return span


def union(spans: Iterable[Span]) -> list[Span]:
    """The same items as disjoint spans in order; touching ones are joined, empty ones vanish."""
    joined: list[Span] = []
    for span in sorted(s for s in spans if s.size):
        if joined and span.start <= joined[-1].stop:
            if span.stop > joined[-1].stop:
                joined[-1] = Span(joined[-1].start, span.stop)
        else:
            joined.append(span)
    return joined


def gaps(whole: Span, covered: Iterable[Span]) -> list[Span]:
    """What of `whole` no span covers, in order."""
    missing: list[Span] = []
    cursor = whole.start
    for span in union(covered):
        if span.stop <= cursor:
            continue
        if span.start >= whole.stop:
            break
        if span.start > cursor:
            missing.append(Span(cursor, span.start))
        cursor = span.stop
    if cursor < whole.stop:
        missing.append(Span(cursor, whole.stop))
    return missing


def meets(disjoint: Sequence[Span], span: Span) -> bool:
    """Whether any of the spans, which must be disjoint and in order, shares an item with `span`."""
    i = bisect_left(disjoint, span.stop, key=lambda s: s.start)  # those before i begin before its end
    return i > 0 and disjoint[i - 1].stop > span.start


def overlapping(disjoint: Sequence[Span], span: Span) -> Sequence[Span]:
    """Those of the spans, which must be disjoint and in order, that share an item with `span`."""
    stop = bisect_left(disjoint, span.stop, key=lambda s: s.start)
    start = bisect_right(disjoint, span.start, key=lambda s: s.stop)
    return disjoint[start:stop]


def total(spans: Iterable[Span]) -> int:
    """How many different items the spans cover."""
    return sum(span.size for span in union(spans))


def clip(span: Span, whole: Span) -> Span:
    """The part of `span` inside of `whole`; empty if there is none."""
    start = max(span.start, whole.start)
    return Span(start, max(start, min(span.stop, whole.stop)))


def inside(inner: Span, outer: Span) -> bool:
    """Whether all of `inner` lies in `outer`."""
    return outer.start <= inner.start and inner.stop <= outer.stop


def split(span: Span, parts: int) -> list[Span]:
    """At most `parts` non-empty spans of sizes that differ by one at most."""
    parts = max(1, min(parts, span.size))
    cuts = [span.start + span.size * i // parts for i in range(parts + 1)]
    return [Span(a, b) for a, b in pairwise(cuts) if b > a]


def cut(span: Span, at: Iterable[int]) -> list[Span]:
    """The span cut at those places that lie inside of it."""
    edges = [span.start, *sorted(c for c in set(at) if span.start < c < span.stop), span.stop]
    return [Span(a, b) for a, b in pairwise(edges)]


class Policy(StrEnum):
    """How a job is divided. `window` and `single` exist to be measured beside `chunk`."""

    CHUNK = "chunk"
    WINDOW = "window"
    SINGLE = "single"


class Grid(NamedTuple):
    """A catalogue's cut points and what it weighs up to each: `cuts[0] == 0`, `weights[0] == 0`, both rising.

    Every job over the catalogue is cut at these points only, so that jobs can share polls.
    """

    cuts: tuple[int, ...]
    weights: tuple[float, ...]

    @property
    def size(self) -> int:
        """Number of items."""
        return self.cuts[-1]

    @property
    def weight(self) -> float:
        """Weight of all items."""
        return self.weights[-1]


def make_grid(weights: Sequence[float], cells: int = limits.GRID_CELLS) -> Grid:
    """Cut a catalogue into at most `cells` cells of about equal weight, none empty."""
    sums = [0.0, *accumulate(weights)]
    count, heavy = len(weights), sums[-1]
    if count <= cells:
        return Grid(tuple(range(count + 1)), tuple(sums))
    cuts = [0]
    for i in range(1, cells):
        at = bisect_left(sums, heavy * i / cells)
        if cuts[-1] < at < count:
            cuts.append(at)
    cuts.append(count)
    return Grid(tuple(cuts), tuple(sums[i] for i in cuts))


def _weight_up_to(grid: Grid, at: int) -> float:
    cell = bisect_right(grid.cuts, at) - 1
    if cell >= len(grid.cuts) - 1:
        return grid.weights[-1]
    left, right = grid.cuts[cell], grid.cuts[cell + 1]
    part = (at - left) / (right - left)
    return grid.weights[cell] + part * (grid.weights[cell + 1] - grid.weights[cell])


def divide(
    grid: Grid, span: Span, seats: int, policy: Policy = Policy.CHUNK, chunk_items: int = limits.CHUNK_ITEMS
) -> list[Span]:
    """Cut a job into its chunks, in order, disjoint, covering exactly `span`.

    `chunk` starts with big chunks that become smaller (guided self-scheduling), down to about a quarter of a seat's
    share (in powers of two): at the tail seats share what they hold, which costs less than many small messages.
    Sizes are powers of two of cells on the fixed grid, so the chunks of two jobs nest.
    """
    if not span.size:
        return []
    seats = max(1, seats)
    if policy is Policy.SINGLE:
        return [span]
    bounds = [span.start, *(c for c in grid.cuts if span.start < c < span.stop), span.stop]
    sums = [_weight_up_to(grid, b) for b in bounds]
    if policy is Policy.WINDOW:
        return _windows(bounds, sums, seats)
    first = bisect_right(grid.cuts, span.start) - 1  # the bounds' place on the whole grid, for alignment
    chunks, i, last = [], 0, len(bounds) - 1
    least = (sums[last] - sums[0]) / (limits.CHUNK_LEAST * seats)
    while i < last:
        want = max(least, (sums[last] - sums[i]) / seats)
        cells = 1
        while (
            (first + i) % (cells * 2) == 0
            and i + cells * 2 <= last
            and sums[i + cells * 2] - sums[i] <= want
            and bounds[i + cells * 2] - bounds[i] <= chunk_items
        ):
            cells *= 2
        chunks.extend(_at_most(Span(bounds[i], bounds[i + cells]), chunk_items))
        i += cells
    return chunks


def _windows(bounds: list[int], sums: list[float], seats: int) -> list[Span]:
    heavy = sums[-1] - sums[0]
    cuts = {bounds[min(len(bounds) - 1, bisect_left(sums, sums[0] + heavy * k / seats))] for k in range(1, seats)}
    edges = sorted({bounds[0], *cuts, bounds[-1]})
    return [Span(a, b) for a, b in pairwise(edges)]


def _at_most(span: Span, items: int) -> list[Span]:
    return [span] if span.size <= items else split(span, -(-span.size // max(1, items)))
