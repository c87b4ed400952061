"""Spans: every operation against plain sets of items."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuscuta import limits, spans
from cuscuta.spans import Policy, Span

span = st.builds(lambda a, n: Span(a, a + n), st.integers(0, 60), st.integers(0, 20))
some = st.lists(span, max_size=12)
weights = st.lists(st.floats(0.001, 1000), min_size=1, max_size=300)


def items(found: list[Span]) -> set[int]:
    return {i for s in found for i in range(s.start, s.stop)}


@given(some)
def test_union_is_the_set_of_items_in_disjoint_order(given_spans: list[Span]) -> None:
    joined = spans.union(given_spans)
    assert items(joined) == items(given_spans)
    assert all(a.stop < b.start for a, b in pairwise(joined))
    assert all(s.size for s in joined)


@given(span, some)
def test_gaps_are_what_is_not_covered(whole: Span, covered: list[Span]) -> None:
    missing = spans.gaps(whole, covered)
    assert items(missing) == items([whole]) - items(covered)
    assert spans.union(missing) == missing


@given(some)
def test_total_counts_items_once(given_spans: list[Span]) -> None:
    assert spans.total(given_spans) == len(items(given_spans))


@given(some, span)
def test_meets_is_a_common_item(given_spans: list[Span], one: Span) -> None:
    disjoint = spans.union(given_spans)
    assert (spans.meets(disjoint, one) and one.size > 0) == bool(items(disjoint) & items([one]))


@given(span, st.integers(-3, 40))
def test_split_covers_with_even_parts(whole: Span, parts: int) -> None:
    cut = spans.split(whole, parts)
    assert items(cut) == items([whole])
    assert sum(s.size for s in cut) == whole.size
    sizes = {s.size for s in cut}
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(span, span)
def test_clip_is_the_intersection(a: Span, b: Span) -> None:
    assert items([spans.clip(a, b)]) == items([a]) & items([b])


@given(weights, st.integers(1, 64))
def test_grid_covers_everything_in_rising_cuts(given_weights: list[float], cells: int) -> None:
    grid = spans.make_grid(given_weights, cells)
    assert grid.cuts[0] == 0
    assert grid.size == len(given_weights)
    assert list(grid.cuts) == sorted(set(grid.cuts))
    assert len(grid.cuts) - 1 <= max(cells, 1) or len(given_weights) <= cells
    assert grid.weight == pytest.approx(sum(given_weights))


@given(weights, st.integers(1, 64), st.integers(1, 40), st.sampled_from(Policy), st.integers(1, 50), st.data())
def test_divide_covers_the_job_exactly(
    given_weights: list[float], cells: int, seats: int, policy: Policy, chunk_items: int, data: st.DataObject
) -> None:
    grid = spans.make_grid(given_weights, cells)
    start = data.draw(st.integers(0, grid.size - 1))
    whole = Span(start, data.draw(st.integers(start + 1, grid.size)))
    chunks = spans.divide(grid, whole, seats, policy, chunk_items)
    assert chunks[0].start == whole.start
    assert chunks[-1].stop == whole.stop
    assert all(a.stop == b.start for a, b in pairwise(chunks))
    assert all(c.size for c in chunks)
    if policy is Policy.CHUNK:
        assert max(c.size for c in chunks) <= max(chunk_items, 1)
    if policy is Policy.SINGLE:
        assert chunks == [whole]
    if policy is Policy.WINDOW:
        assert len(chunks) <= seats


@given(st.integers(1, 5000), st.integers(1, 64), st.integers(1, 64))
def test_chunks_of_different_seats_nest(count: int, few: int, many: int) -> None:
    """Whatever the number of seats, a chunk of one division never straddles half of a chunk of another's grid."""
    grid = spans.make_grid([1.0] * count)
    one = spans.divide(grid, Span(0, count), few)
    two = spans.divide(grid, Span(0, count), many)
    i = 0
    for a in one:
        while i < len(two) and two[i].start < a.stop:
            b = two[i]
            assert spans.clip(a, b) in (a, b)
            if b.stop > a.stop:
                break
            i += 1


def test_no_chunk_is_more_than_a_share_of_what_is_left() -> None:
    grid = spans.make_grid([1.0] * 1200)
    left = 1200
    for chunk in spans.divide(grid, Span(0, 1200), 8):
        assert chunk.size <= max(1200 / (limits.CHUNK_LEAST * 8), left / 8)
        left -= chunk.size


def test_heavy_items_stand_alone() -> None:
    grid = spans.make_grid([1.0] * 100 + [1000.0] + [1.0] * 100)
    chunks = spans.divide(grid, Span(0, 201), 4)
    assert Span(100, 101) in chunks


@pytest.mark.parametrize("text", ["", "-", "1-", "-1", "1-1", "2-1", "a-b", "1-2-3", "１-２", " 1-2"])
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ValueError):
        spans.parse(text)


def test_parse_reads_what_str_writes() -> None:
    assert spans.parse(str(Span(3, 17))) == Span(3, 17)
