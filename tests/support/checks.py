"""What must hold after every test of the main job, whatever was broken on the way."""

from collections import Counter
from typing import Any

from cuscuta import spans
from cuscuta.spans import Span
from tests.support.house import House
from tests.support.wait import until
from worker.upstream.reference.rules import score


async def nothing_left(h: House, timeout: float = 15) -> None:
    """No message, consumer or active entry of any job. (Idle seats keep their leases; `no_leases` is for the end.)"""
    bus = await h.bus()
    left: list[object] = []

    async def clean() -> bool:
        left[:] = await bus.work.subjects("cuscuta.>"), await bus.work.job_consumers(), await bus.active_bucket.keys()
        return not any(left)

    try:
        await until(clean, timeout, "the bus is empty")
    except AssertionError as error:
        raise AssertionError(f"{error}: {left}") from None


async def no_leases(h: House, timeout: float = 20) -> None:
    async def clean() -> bool:
        return (await h.states()).get("Using", 0) == 0

    await until(clean, timeout, "every lease is returned")


async def stored_once(h: House, uid: str, span: Span) -> None:
    """Every item is stored, and none twice."""
    stored = await (await h.bus()).results.stored(uid)
    assert spans.gaps(span, stored) == []
    assert sum(s.size for s in stored) == span.size, sorted(stored)


async def complete(h: House, uid: str, target: str, items: list[str]) -> Any:
    """The job completed, with the right value for every item, each stored once and nothing left behind."""
    job = await complete_values(h, uid, target, items)
    await nothing_left(h)
    return job


async def complete_values(h: House, uid: str, target: str, items: list[str]) -> Any:
    """The job completed, with the right value for every item, each stored once."""
    job = await h.job(uid)
    assert job["status"] == "completed", job
    results = await h.results(uid)
    ids = [r["id"] for r in results]
    stored = sorted(await (await h.bus()).results.stored(uid))
    assert ids == items, f"{uid}: {len(ids)} rows, without {sorted(set(items) - set(ids))}; stored {stored}"
    assert [r["value"] for r in results] == [score(target, item) for item in items]
    await stored_once(h, uid, Span(0, len(items)))
    return job


async def polls(h: House, target: str) -> Counter[str]:
    """How often the upstream was asked for each item of a target."""
    return Counter(call[2] for call in (await h.world())["calls"] if call[1] == target)


async def never_together(h: House) -> None:
    """The upstream never saw two polls of one account at once, nor one over its allowance."""
    world = await h.world()
    assert world["overlaps"] == 0
    assert world["over_rate"] == 0
