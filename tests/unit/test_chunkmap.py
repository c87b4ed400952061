"""The chunk map: each item in one cell, whatever is known of it."""

from hypothesis import given
from hypothesis import strategies as st

from cuscuta import spans
from cuscuta.spans import Span
from entry.chunkmap import Cell, CellState, cells


def some(limit: int = 40) -> st.SearchStrategy[list[Span]]:
    pair = st.tuples(st.integers(0, limit), st.integers(0, limit)).filter(lambda p: p[0] != p[1])
    return st.lists(pair.map(lambda p: Span(min(p), max(p))), max_size=6)


def test_what_is_known_of_each_cell() -> None:
    found = cells(
        Span(0, 40),
        [Span(0, 10), Span(10, 20), Span(20, 40)],
        [Span(0, 4)],
        [Span(20, 30)],
        {Span(4, 10): "w 1"},
        {Span(4, 14): "w 2"},
    )
    assert found == [
        Cell(0, 4, CellState.DONE),
        Cell(4, 10, CellState.HELD, "w 1"),
        Cell(10, 14, CellState.RIDDEN, "w 2"),
        Cell(14, 20, CellState.WAITING),
        Cell(20, 30, CellState.GIVEN_UP),
        Cell(30, 40, CellState.WAITING),
    ]


def test_a_result_counts_more_than_who_is_said_to_hold_it() -> None:
    assert cells(Span(0, 5), [], [Span(0, 5)], [Span(0, 5)], {Span(0, 5): "w 1"}, {}) == [Cell(0, 5, CellState.DONE)]


@given(
    plan=some(),
    stored=some(),
    dead=some(),
    held=some(),
    ridden=some(),
    whole=st.tuples(st.integers(0, 20), st.integers(21, 40)),
)
def test_every_item_is_in_one_cell(
    plan: list[Span], stored: list[Span], dead: list[Span], held: list[Span], ridden: list[Span], whole: tuple[int, int]
) -> None:
    found = cells(Span(*whole), plan, stored, dead, dict.fromkeys(held, "w 1"), dict.fromkeys(ridden, "w 2"))
    assert [cell.start for cell in found] == [whole[0], *(cell.stop for cell in found[:-1])]
    assert found[-1].stop == whole[1]
    done = sum(cell.stop - cell.start for cell in found if cell.state is CellState.DONE)
    assert done == spans.total(spans.clip(span, Span(*whole)) for span in stored)
    assert all((cell.by is not None) == (cell.state in (CellState.HELD, CellState.RIDDEN)) for cell in found)
