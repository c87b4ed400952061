"""Random schedules of donation, hedging, rides, deaths and late wake-ups against the union of stored spans.

Real seats, a real nats-server, an upstream that remembers every poll. Whatever happens: no item is missing from a
completed job, none is stored twice, and none is polled whose result was stored already, hedges excepted.
"""

import asyncio
import gc
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuscuta import spans, subjects
from cuscuta.broker import Bus
from cuscuta.broker.activate import activate
from cuscuta.broker.assets import ensure
from cuscuta.broker.lanes import Waiting
from cuscuta.broker.settle import settle
from cuscuta.broker.submit import submit
from cuscuta.clock import SystemClock, wait_for_event
from cuscuta.embedded.nats import Nats
from cuscuta.logs import get
from cuscuta.model import Essential, Item, JobStatus, Priority
from cuscuta.settings import Settings
from cuscuta.spans import Span
from cuscuta.uids import new_uid
from tests.support.fleet import Member, Scripted, value
from worker import balance
from worker.balance import Gift
from worker.gift import Gifts
from worker.rides import Rider
from worker.upstream import Capacity

PHASES = [hypothesis.Phase.explicit, hypothesis.Phase.generate]  # a run is too long to be shrunk
# What a killed member had begun is never awaited, and that is the point.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]
SEEN_S = 0.05  # how long a stored result may be unknown to a seat that has just looked, on a machine that keeps up


@dataclass(frozen=True)
class Schedule:
    """What happens in one run. Times are shares of the time that the work takes without faults."""

    items: int
    jobs: int
    latency_ms: tuple[int, ...]  # one account each
    slow: int  # how many times slower the last account is
    stuck: tuple[int, ...]  # items that hang for a second the first time
    shared: bool
    repeatable: bool
    kill_at: float | None
    freeze_at: float | None


schedules = st.builds(
    Schedule,
    items=st.integers(1, 90),
    jobs=st.integers(1, 3),
    latency_ms=st.lists(st.integers(1, 15), min_size=3, max_size=6).map(tuple),
    slow=st.sampled_from([1, 3, 10]),
    stuck=st.lists(st.integers(0, 89), max_size=2).map(tuple),
    shared=st.booleans(),
    repeatable=st.booleans(),
    kill_at=st.none() | st.floats(0.0, 1.0),
    freeze_at=st.none() | st.floats(0.0, 1.0),
)


@hypothesis.settings(max_examples=15, suppress_health_check=list(hypothesis.HealthCheck), phases=PHASES)
@given(schedule=schedules)
def test_random_schedules(tmp_path_factory, schedule: Schedule) -> None:  # type: ignore[no-untyped-def]
    asyncio.run(_run(tmp_path_factory.mktemp("nats"), schedule))


CALM = Schedule(60, 1, (5, 5, 5), 1, (), shared=False, repeatable=True, kill_at=None, freeze_at=None)


@pytest.mark.parametrize(
    ("schedule", "what"),
    [
        (replace(CALM, slow=10), "gifts"),
        (replace(CALM, stuck=(59,)), "hedges"),
        (replace(CALM, jobs=3, shared=True), "rides"),
    ],
    ids=["gifts", "hedges", "rides"],
)
def test_schedules_come_to_what_they_are_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: Schedule, what: str
) -> None:
    """Random schedules prove nothing if nobody gives, asks twice or rides."""
    seen: Counter[str] = Counter()
    give, hedge, finish = Gifts.give, Gifts.hedge, Rider.finish

    async def giving(self: Gifts, gift: Gift) -> int:
        count = await give(self, gift)
        seen["gifts"] += count
        return count

    async def hedging(self: Gifts, index: int) -> bool:
        done = await hedge(self, index)
        seen["hedges"] += done
        return done

    async def finishing(self: Rider, settle: bool) -> None:
        await finish(self, settle)
        seen["rides"] += bool(self._stored)

    monkeypatch.setattr(Gifts, "give", giving)
    monkeypatch.setattr(Gifts, "hedge", hedging)
    monkeypatch.setattr(Rider, "finish", finishing)
    calls = asyncio.run(_run(tmp_path, schedule))
    assert seen[what] > 0, seen
    if what == "rides":
        assert calls < 0.8 * schedule.jobs * schedule.items, calls


async def _run(folder: Path, schedule: Schedule) -> int:
    """One schedule, checked; how often the upstream was called."""
    nats = Nats(folder)
    nats.start()
    settings = Settings(
        nats_url=nats.url, ack_wait_s=0.6, item_timeout_s=3.0, flush_s=0.2, max_attempts=20, max_deliver=40,
        backoff_base_s=0.05, backoff_cap_s=0.1,
    )  # fmt: skip
    bus = Bus(settings, SystemClock(), get("test"), "test")
    await bus.broker.connect()
    try:
        await ensure(bus.broker, settings)
        return await _work(bus, settings, schedule)
    finally:
        await bus.broker.close()
        nats.kill()
        gc.collect()


class Machine:
    """How long loop and server made somebody wait at the worst: a look may be older by that."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self.worst_s = bus, 0.0

    async def watch(self) -> None:
        loop, never = asyncio.get_running_loop(), asyncio.Event()
        while True:
            due = loop.time() + 0.01
            await wait_for_event(never, 0.01)
            await self._bus.ping()
            self.worst_s = max(self.worst_s, loop.time() - due)


async def _work(bus: Bus, settings: Settings, schedule: Schedule) -> int:
    loop, machine = asyncio.get_running_loop(), Machine(bus)
    watching = loop.create_task(machine.watch())
    try:
        return await _run_jobs(bus, settings, schedule, machine)
    finally:
        watching.cancel()


async def _run_jobs(bus: Bus, settings: Settings, schedule: Schedule, machine: Machine) -> int:
    loop = asyncio.get_running_loop()
    accounts = list(range(len(schedule.latency_ms)))
    latency_s = {n: ms / 1000 for n, ms in enumerate(schedule.latency_ms)}
    latency_s[accounts[-1]] *= schedule.slow
    capacity = Capacity(
        rate_per_s=float("inf"), follow_slots=10, targets_per_poll=10 if schedule.shared else 1,
        repeatable=schedule.repeatable,
    )  # fmt: skip
    upstream = Scripted(capacity, latency_s, {f"i{n}": 1.0 for n in schedule.stuck})
    stored_at: dict[tuple[str, int], float] = {}

    async def on_stored(msg) -> None:  # type: ignore[no-untyped-def]
        try:
            uid, span = subjects.parse_result(".".join(msg.subject.split(".")[2:]))
        except ValueError:
            return  # a claim
        for index in range(span.start, span.stop):
            stored_at.setdefault((uid, index), loop.time())

    await bus.broker.subscribe(subjects.kv_subject(subjects.RESULTS, ">"), on_stored)
    await bus.broker.nc.flush()
    items = [Item(f"i{n}") for n in range(schedule.items)]
    head = await bus.catalogues.put(items)
    members = [
        Member(settings, upstream, accounts[0::2], "even"), Member(settings, upstream, accounts[1::2], "odd"),
    ]  # fmt: skip
    for member in members:
        await member.start()
    uids = {new_uid(datetime.now(UTC)): f"player {n}" for n in range(schedule.jobs)}
    faults = []
    try:
        for uid, target in uids.items():
            await submit(bus, uid, Essential(target, head.hash, "songs", Span(0, schedule.items)))
            await activate(bus, Waiting(uid, Priority.NORMAL), len(accounts))
        expected_s = schedule.jobs * schedule.items / sum(1 / s for s in latency_s.values())
        if schedule.freeze_at is not None:
            faults.append(asyncio.create_task(_later(members[0].freeze(1.0), schedule.freeze_at * expected_s)))
        if schedule.kill_at is not None:
            killing = _replace(members, settings, upstream)
            faults.append(asyncio.create_task(_later(killing, schedule.kill_at * expected_s)))
        async with asyncio.timeout(40):
            for uid in uids:
                while not (tag := await bus.tags.get(uid)) or not tag.status.terminal:
                    await asyncio.sleep(0.2)
                    await settle(bus, uid)  # as the reaper does
        await asyncio.gather(*faults)
    finally:
        for member in members:
            await member.stop()
    # Whoever pulls a chunk while a ride is polling for it cannot know: he looks at what is stored when he begins.
    chunk_s = max(latency_s.values()) * schedule.items / len(accounts) if schedule.shared else 0.0
    for uid, target in uids.items():
        await _check(bus, schedule, upstream, stored_at, uid, target, SEEN_S + machine.worst_s + chunk_s)
    if schedule.kill_at is None and schedule.freeze_at is None:
        hedges = sum([tag.queue.hedges for uid in uids if (tag := await bus.tags.get(uid))])
        assert upstream.calls <= schedule.jobs * schedule.items + hedges  # sharing never costs a poll
    return upstream.calls


async def _later(work, seconds: float) -> None:  # type: ignore[no-untyped-def]
    await asyncio.sleep(seconds)
    await work


async def _replace(members: list[Member], settings: Settings, upstream: Scripted) -> None:
    """kill -9 of one process; another one comes for its accounts."""
    dead = members[1]
    await dead.kill()
    members.append(Member(settings, upstream, dead.accounts, "new"))
    await members[-1].start()


async def _check(
    bus: Bus, schedule: Schedule, upstream: Scripted, stored_at: dict[tuple[str, int], float], uid: str, target: str,
    seen_s: float,
) -> None:  # fmt: skip
    whole = Span(0, schedule.items)
    tag = await bus.tags.get(uid)
    assert tag is not None
    assert tag.status is JobStatus.COMPLETED
    stored = await bus.results.stored(uid)
    assert spans.gaps(whole, stored) == []
    assert sum(span.size for span in stored) == whole.size, sorted(stored)  # none twice
    async for span, result in bus.results.read(uid, whole, stored):
        expected = [f'"{value(target, f"i{n}")}"'.encode() for n in range(span.start, span.stop)]
        assert [bytes(v) for v in result.values] == expected
    assert tag.queue.hedges <= balance.hedges_allowed(schedule.items) * schedule.repeatable
    again = Counter(
        item for name, item, at in upstream.polls
        if name == target and at > stored_at[uid, int(item[1:])] + seen_s
    )  # fmt: skip
    assert sum(again.values()) <= tag.queue.hedges, (again, seen_s)
    polls = Counter(item for name, item, _ in upstream.polls if name == target)
    if schedule.kill_at is None and schedule.freeze_at is None and not schedule.shared:
        assert sum(polls.values()) <= schedule.items + tag.queue.hedges, polls
