"""What the tail stands on: who yields to whom, how far the queue is, spans, shared answers."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuscuta import errors, spans
from cuscuta.broker import Delivery
from cuscuta.model import ActiveJob, Item, Priority
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from cuscuta.uids import new_uid
from tests.support.answers import Answer, Server
from tests.support.clock import HandClock
from worker.gaps import yields
from worker.holds import Hold, Trust
from worker.jobs import Job
from worker.upstream import Capacity, Session, Target, Upstream
from worker.upstream.declarative import Declarative
from worker.upstream.loader import AdapterError, load
from worker.upstream.schema import AdapterFileError, read

UID = new_uid(datetime(2026, 1, 1, tzinfo=UTC))
bounds = st.tuples(st.integers(0, 30), st.integers(1, 10)).map(lambda p: Span(p[0], p[0] + p[1]))
names = st.builds(ChunkName, st.just(UID), bounds, st.integers(1, 3))


@given(names, names)
def test_of_two_chunks_at_most_one_yields_and_only_what_it_leaves_to_the_other(one: ChunkName, two: ChunkName) -> None:
    assert not (yields(one, two) and yields(two, one))
    assert not yields(one, one)
    if yields(one, two):
        assert spans.inside(two.span, one.span)  # what is left out stands in the other one


@given(st.lists(bounds, max_size=8), bounds)
def test_overlapping_spans_are_found(some: list[Span], span: Span) -> None:
    disjoint = spans.union(some)
    assert list(spans.overlapping(disjoint, span)) == [s for s in disjoint if spans.clip(s, span).size]


def job(items: int = 100) -> Job:
    return Job(ActiveJob(UID, "t", "c", Span(0, items), Priority.NORMAL, datetime(2026, 1, 1, tzinfo=UTC), seats=4))


def test_how_far_a_job_is_and_how_fast_its_queue_is_dealt_out() -> None:
    mine = job()
    assert mine.left == 100
    mine.dealt(Span(0, 20), 10.0)
    mine.dealt(Span(20, 30), 10.1)  # too soon to say how fast
    assert (mine.left, mine.dealt_per_s) == (70, None)
    mine.dealt(Span(30, 40), 10.5)
    assert mine.dealt_per_s == pytest.approx(40.0)  # 20 items in half a second
    mine.dealt(Span(5, 9), 11.0)  # one that came back says nothing
    assert mine.left == 60


def test_trust_ends_with_the_first_hold_and_lives_on_with_touches() -> None:
    clock = HandClock()
    holds = [Hold(cast(Delivery, None), clock, clock.seconds, clock.seconds + s) for s in (5, 9)]
    trust = Trust(holds, clock)
    assert trust.holds()
    clock.seconds += 4.9
    assert trust.holds()
    holds[0].trusted_until += 3
    clock.seconds += 0.2
    assert trust.holds()
    clock.seconds += 3
    assert not trust.holds()


SHARED = """
name = "x"
base_url = "https://x.example"
[limits]
targets_per_poll = 5
follow_slots = 5
[poll]
path = "/{item.id}"
result = "scores[?who == {follow.id}].n | [0]"
"""


async def test_one_answer_holds_a_value_for_each_target(tmp_path: Path) -> None:
    asked = []

    def answer(seen) -> Answer:  # type: ignore[no-untyped-def]
        asked.append(seen.raw_path)
        return Answer(200, json.dumps({"scores": [{"who": "a", "n": 1}, {"who": "c", "n": 3}]}).encode())

    async with Server(answer) as server:
        file = tmp_path / "x.toml"
        file.write_text(SHARED.replace("https://x.example", server.url))
        adapter = Declarative(read(file))
        targets = [Target(name, name) for name in ("a", "b", "c")]
        found = await adapter.poll_shared(Session(email="e", password="p"), targets, Item("i"))
        await adapter.close()
    assert asked == ["/i"]
    assert (found[0], found[2]) == (1, 3)
    assert isinstance(found[1], errors.ItemNotFound)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (SHARED.replace("/{item.id}", "/{target}/{item.id}"), "poll.path"),
        (SHARED.replace("/{item.id}", "/{follow.id}"), "poll.path"),
        (SHARED.replace('result = "scores[?who == {follow.id}].n | [0]"', ""), "poll.result"),
        (SHARED.replace("targets_per_poll = 5", "targets_per_poll = 0"), "targets_per_poll"),
    ],
)
def test_faults_of_shared_polls_are_named(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(text)
    with pytest.raises(AdapterFileError, match=word):
        read(file)


class NoShared(Upstream):
    """Says that polls are shared and cannot do it."""

    capacity = Capacity(targets_per_poll=2)


def test_an_adapter_that_cannot_share_is_refused() -> None:
    with pytest.raises(AdapterError, match="poll_shared"):
        load("tests.unit.test_tail_parts:NoShared")


def test_no_limit_may_be_said_in_toml(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(SHARED.replace("[limits]", "[limits]\nrate_per_s = inf"))
    assert Declarative(read(file)).capacity.rate_per_s == math.inf
