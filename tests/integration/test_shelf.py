"""Two shelves over the same items, as after a delivery that NATS has forgotten: each item is stored once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from cuscuta import spans
from cuscuta.broker import Bus, results
from cuscuta.spans import Span
from worker.finisher import Finisher
from worker.kit import Kit
from worker.shelf import Missing, Shelf

UID = "01m8p8nbmg8vbnb9r5esg6qrge"


@pytest.fixture
async def kit(bus: Bus) -> AsyncIterator[Kit]:
    async with asyncio.TaskGroup() as group:
        made = SimpleNamespace(bus=bus, settings=bus.settings, name="test", log=bus.log, finisher=Finisher(group))
        yield cast(Kit, made)


def shelf(kit: Kit, missing: Missing | None = None, cuts: Callable[[], Sequence[int]] = tuple, start: int = 0) -> Shelf:
    found = missing or partial(kit.bus.results.missing, UID)
    return Shelf(kit, UID, 1, lambda: True, found, cuts, start=start)


async def put(on: Shelf, count: int) -> None:
    for n in range(count):
        await on.add(msgspec.Raw(str(n).encode()))
    await on.flush()


async def once(kit: Kit, whole: Span) -> bool:
    stored = await kit.bus.results.stored(UID)
    return not spans.gaps(whole, stored) and sum(span.size for span in stored) == whole.size


async def test_the_parts_of_a_cut_result_are_not_stored_beside_the_whole(kit: Kit) -> None:
    quick, late = shelf(kit), shelf(kit, cuts=lambda: [10])
    await put(quick, 20)
    assert await quick.stored()
    await put(late, 20)
    assert await late.stored()
    assert await once(kit, Span(0, 20))


async def test_what_a_shelf_learns_at_one_flush_counts_for_the_next_that_is_on_its_way(kit: Kit) -> None:
    quick, late = shelf(kit), shelf(kit)
    await put(quick, 20)
    assert await quick.stored()
    await put(late, 10)
    await put(late, 10)
    assert await late.stored()
    assert await once(kit, Span(0, 20))


async def test_what_is_given_away_is_left_to_whoever_got_it(kit: Kit) -> None:
    giver, third = shelf(kit), None
    given = Span(12, 20)

    async def standing(span: Span, told: list[Span]) -> list[Span]:
        stored = await kit.bus.results.stored(UID)
        return spans.gaps(span, [*stored, *told, given])

    async with giver.giving([given]) as heard:
        assert heard
    third = shelf(kit, standing)
    await put(third, 20)  # knows of neither
    taker, rest = shelf(kit, start=12), shelf(kit, start=16)
    await put(taker, 4)
    await put(rest, 4)
    await put(giver, 12)
    assert all([await one.stored() for one in (third, taker, rest, giver)])
    assert await once(kit, Span(0, 20))


async def test_a_gift_that_was_only_promised_is_waited_for_and_then_made_up_for(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "GIVING_S", 0.3)
    async with shelf(kit).giving([Span(0, 8), Span(8, 20)]) as heard:
        assert heard  # and then it dies
    other = shelf(kit)
    await put(other, 20)
    assert await other.stored()
    assert await once(kit, Span(0, 20))


async def test_nobody_gives_where_somebody_else_has_begun(kit: Kit) -> None:
    quick, late = shelf(kit), shelf(kit)
    await put(quick, 5)
    assert await quick.stored()
    async with late.giving([Span(3, 5)]) as heard:
        assert not heard
    await put(late, 5)
    assert await late.stored()
    async with late.giving([Span(9, 12)]) as heard:
        assert not heard  # it has met somebody once
    assert await once(kit, Span(0, 5))


async def test_a_giver_goes_on_after_its_claim(kit: Kit) -> None:
    giver = shelf(kit)
    await put(giver, 3)
    for given in (Span(8, 12), Span(6, 8)):  # twice at one place
        async with giver.giving([given]) as heard:
            assert heard
    await put(giver, 3)
    assert await giver.stored()
    assert sorted(await kit.bus.results.stored(UID)) == [Span(0, 3), Span(3, 6)]
