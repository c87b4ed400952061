"""Calls that are ended in time, cut off, cancelled from outside, or that cancel themselves."""

import asyncio

import pytest

from worker.cutoff import AdapterCancelled, Cutoff, Cutoffs


def soon(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def for_ever(cutoff: Cutoff) -> None:
    with cutoff:
        await asyncio.Event().wait()


async def passed(seconds: float) -> None:
    """Until another cutoff of that length has come."""
    with pytest.raises(TimeoutError):
        await for_ever(Cutoffs().until(soon(seconds)))


async def begun(calls: Cutoffs, *ends: float) -> tuple[list[Cutoff], list[asyncio.Task[None]]]:
    """Calls that go on for ever, all of them under way."""
    open_calls, under_way = [calls.until(end) for end in ends], asyncio.Event()
    running = [asyncio.ensure_future(for_ever(call)) for call in open_calls]
    asyncio.get_running_loop().call_soon(under_way.set)  # after the first steps of them all
    await under_way.wait()
    return open_calls, running


async def test_calls_end_in_their_order_whatever_the_order_they_began_in() -> None:
    calls, ended = Cutoffs(), []

    async def call(seconds: float) -> None:
        with pytest.raises(TimeoutError):
            await for_ever(calls.until(soon(seconds)))
        ended.append(seconds)

    await asyncio.gather(*(call(s) for s in (0.06, 0.02, 0.09, 0.04)))
    assert ended == [0.02, 0.04, 0.06, 0.09]


async def test_the_timer_of_a_call_that_is_over_does_no_harm_to_the_next() -> None:
    calls = Cutoffs()
    with calls.until(soon(0.02)):
        pass
    late = calls.until(soon(0.2))
    with late:
        await passed(0.05)
    assert not late.expired
    with pytest.raises(TimeoutError):
        await for_ever(calls.until(soon(0.01)))


async def test_all_are_cut_off_at_once_and_their_end_says_so() -> None:
    calls = Cutoffs()
    open_calls, running = await begun(calls, soon(5.0), float("inf"))
    end = soon(0.01)
    calls.all_by(end)
    calls.all_by(end + 9.0)  # never later
    assert [type(r) for r in await asyncio.gather(*running, return_exceptions=True)] == [TimeoutError] * 2
    assert [call.end for call in open_calls] == [end] * 2


@pytest.mark.parametrize("first", ["cancelled", "expired"])
async def test_a_cancellation_from_outside_stays_one_also_at_the_end_of_its_time(first: str) -> None:
    (cutoff,), (running,) = await begun(Cutoffs(), soon(5.0))
    for act in (running.cancel, cutoff.expire) if first == "cancelled" else (cutoff.expire, running.cancel):
        act()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cutoff.expired
    assert running.cancelling() == 1  # its own is taken back


async def test_a_call_can_begin_at_the_moment_when_others_are_cut_off() -> None:
    calls = Cutoffs()
    _, (running,) = await begun(calls, soon(5.0))
    calls.all_by(soon(0.0))
    later = calls.until(soon(0.2))
    with later, pytest.raises(TimeoutError):
        await running
    assert not later.expired


async def test_a_call_that_cancels_itself_is_a_bug_and_the_task_goes_on() -> None:
    calls = Cutoffs()
    with pytest.raises(AdapterCancelled), calls.until(soon(5.0)):
        raise asyncio.CancelledError
    await passed(0.0)  # would raise if the task were cancelled


async def test_other_errors_pass_and_nothing_is_left() -> None:
    calls = Cutoffs()
    with pytest.raises(ValueError, match="x"), calls.until(soon(0.01)):
        raise ValueError("x")
    await passed(0.03)
    task = asyncio.current_task()
    assert task
    assert task.cancelling() == 0
