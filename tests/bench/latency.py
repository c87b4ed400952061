"""Submit to result, and submit to first poll: an idle system, backlogs, and high priority.

`one_item`: one job of one item, upstream answers in process; from the submit's first byte over HTTP until `GET
/jobs/{uid}/results` says that all of it is there.
`high`: a job of high priority into a backlog of normal ones that keep every seat and every place busy; submit to first
poll, by the upstream's own log.
`waiting`: submit alone, and submit to first poll of such a job, for growing backlogs.
"""

import asyncio
import time
from pathlib import Path

import aiohttp

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import house, spread
from tests.support.house import House
from tests.support.wait import until

REFERENCE_ACCOUNTS = 8
CLIENTS = 16
LATENCY_S = 0.02


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    trials = 20 if quick else rounds or 300
    backlogs = (0, 100) if quick else (0, 1_000, 10_000, 100_000)
    return {
        "bench": "latency",
        "one_item_ms": spread(await _one_item(folder, postgres, trials)),
        **await _backlogs(folder, postgres, backlogs, 5 if quick else 120),
    }


async def _one_item(folder: Path, postgres: Postgres, trials: int) -> list[float]:
    async with house(folder, postgres, "one-item", upstream="noop") as h:
        await h.entry()
        await h.reaper()
        await h.worker(seats="4")
        await h.accounts(4)
        await h.catalogue(1)
        await h.seats(4)
        waits = []
        async with aiohttp.ClientSession(
            str(h.http.base_url), headers=_token(h)
        ) as http:  # httpx would add 5 ms of its own
            for n in range(trials + 20):  # the first twenty warm up
                began = time.perf_counter()
                async with http.post("/jobs", json={"target": f"player {n}", "catalogue": "songs"}) as answer:
                    uid = (await answer.json())["uid"]
                async with http.get(f"/jobs/{uid}/results", params={"wait_s": 10}) as answer:
                    await answer.read()
                    assert answer.status == 200, answer.status  # 206 while it runs
                waits.append((time.perf_counter() - began) * 1000)
        return waits[20:]


async def _backlogs(folder: Path, postgres: Postgres, backlogs: tuple[int, ...], trials: int) -> dict[str, object]:
    """One deployment whose backlog grows; the upstream is slow enough for it to stay."""
    submits, polls = {}, {}
    async with house(folder, postgres, "backlog", seats="4") as h:
        await h.upstream(REFERENCE_ACCOUNTS, latency_ms=LATENCY_S * 1000)
        await h.entry()
        await h.reaper()
        for _ in range(2):
            await h.worker()
        await h.accounts(REFERENCE_ACCOUNTS)
        await h.catalogue(20)
        await h.catalogue(1, "one")
        await h.catalogue(200, "warm up")
        await h.seats(REFERENCE_ACCOUNTS)
        await h.ended(await h.submit("warm up", "warm up"))  # accounts have logged in, their pace is known
        standing = 0
        for backlog in backlogs:
            if backlog > standing:
                await h.control(set={"latency_s": 1.0})  # the machine is for building the backlog
                await _submit(h, standing, backlog)
                await h.control(set={"latency_s": LATENCY_S}, reset=True)
                await until(lambda: _all_quick(h), 60, "every account has ended a call that began since")
            standing = max(standing, backlog)
            submits[backlog], polls[backlog] = await _high(h, backlog, trials)
    return {
        "submit_ms": {n: spread(waits) for n, waits in submits.items()},
        "high_first_poll_ms": {n: spread(waits) for n, waits in polls.items()},
    }


async def _high(h: House, backlog: int, trials: int) -> tuple[list[float], list[float]]:
    began, submits = {}, []
    for n in range(trials):
        target = f"urgent {backlog} {n}"
        began[target] = time.monotonic()  # the upstream's clock too: one machine, one CLOCK_MONOTONIC
        uid = await h.submit(target, "one", priority="high")
        submits.append((time.monotonic() - began[target]) * 1000)
        await h.ended(uid)
    polled = {call[1]: call[3] for call in (await h.world())["calls"]}
    return submits, [(polled[target] - at) * 1000 for target, at in began.items()]


async def _all_quick(h: House) -> bool:
    return len({call[0] for call in (await h.world())["calls"] if call[4]}) == REFERENCE_ACCOUNTS


async def _submit(h: House, first: int, last: int) -> None:
    numbers = iter(range(first, last))

    async def client(http: aiohttp.ClientSession) -> None:
        for n in numbers:
            async with http.post("/jobs", json={"target": f"player {n}", "catalogue": "songs"}) as answer:
                assert answer.status == 202, await answer.text()

    async with aiohttp.ClientSession(str(h.http.base_url), headers=_token(h)) as http:
        await asyncio.gather(*(client(http) for _ in range(CLIENTS)))


def _token(h: House) -> dict[str, str]:
    return {"authorization": h.http.headers["authorization"]}
