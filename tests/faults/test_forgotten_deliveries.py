"""NATS forgets what it has delivered: chunks in somebody's hands come to others as if for the first time.

A consumer that is made anew counts from one, and so does a server that was killed before it had written its count down.
Whoever holds a chunk goes on, and shares it out, while another begins it from its first item.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest

from cuscuta.broker import Bus
from cuscuta.broker.activate import activate
from cuscuta.broker.lanes import Waiting
from cuscuta.errors import BrokerRefused, BrokerUnavailable
from cuscuta.model import Priority
from tests.conftest import MakeHouse
from tests.support import checks

Remake = Callable[[Bus, str, str], Awaitable[None]]


async def remade(bus: Bus, uid: str, target: str) -> None:
    """Without a word to anybody."""
    await bus.work.make_job_consumer(uid, target)


async def mended(bus: Bus, uid: str, target: str) -> None:
    """As the reaper does it."""
    await activate(bus, Waiting(uid, Priority.NORMAL), 6)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("latency_ms", "items", "remake"), [(60, 48, remade), (2, 1500, mended)], ids=["gifts", "stretches"]
)
async def test_a_chunk_in_hand_is_delivered_as_new(
    make_house: MakeHouse, latency_ms: int, items: int, remake: Remake
) -> None:
    h = await make_house()
    await h.upstream(accounts=6, latency_ms=latency_ms)
    await h.entry()
    await h.reaper()
    for _ in range(3):
        await h.worker(seats="2")
    await h.accounts(6)
    names = await h.catalogue(items)
    await h.seats(6)
    for n in (1, 2):
        await h.control(f"account-{n}@example.com", set={"latency_s": latency_ms / 1000 * 5})
    bus = await h.bus()
    again = 0
    for number in range(5):
        target = f"player {number}"
        uid = await h.submit(target)
        ended = asyncio.ensure_future(h.ended(uid))
        while not ended.done():
            await asyncio.wait({ended}, timeout=random.uniform(0.02, 0.3))
            if uid in await bus.work.job_consumers():
                await bus.work.drop_job_consumer(uid)
                with contextlib.suppress(BrokerRefused, BrokerUnavailable):
                    await remake(bus, uid, target)
        await ended
        again += sum((await checks.polls(h, target)).values()) - items
        await checks.complete(h, uid, target, names)
    assert again  # so the same items were in several hands
