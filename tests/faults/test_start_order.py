"""The parts and their servers start in any order: each part says what it waits for, and goes on when it is there."""

import pytest

from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.process import Proc
from tests.support.proxy import Proxy
from tests.support.wait import until

ALL = ("nats", "postgres", "entry", "worker", "reaper")
ORDERS = [ALL[n:] + ALL[:n] for n in range(len(ALL))]
ORDERS += [tuple(reversed(ALL)), ("worker", "nats", "reaper", "postgres", "entry")]
WAITS = {
    "nats": "waiting for NATS",
    "postgres": "waiting for PostgreSQL",
    "entry": "waiting for entry to ",  # make the streams, or run the migrations
}


def waits_for(part: str, there: set[str]) -> str:
    """The line that a part must say first, given what is there; none if it has all it needs."""
    needs = ("nats", "postgres") if part == "entry" else ("nats", "postgres", "entry")
    return next((WAITS[need] for need in needs if need not in there), "")


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
async def test_parts_wait_for_what_they_need_and_say_so(make_house: MakeHouse, order: tuple[str, ...]) -> None:
    h = await make_house()
    h.nats.kill()
    await h.upstream(accounts=2, latency_ms=5)
    h.http.headers["authorization"] = f"Bearer {await h.token()}"
    there: set[str] = set()
    said: list[tuple[Proc, str]] = []
    async with Proxy(1) as database:  # nobody listens there yet
        url = h.postgres.url(h.database).replace(f":{h.postgres.port}/", f":{database.port}/")
        for what in order:
            if what == "nats":
                h.nats.start()
            elif what == "postgres":
                database.target = h.postgres.port
            else:
                start = {"entry": h.entry, "worker": h.worker, "reaper": h.reaper}[what]
                proc = await start(wait=False, postgres_url=url)
                if line := waits_for(what, there):
                    said.append((proc, line))
                    await until(lambda: _says(proc, line), 20, f"{what} says {line!r}")  # noqa: B023 - awaited at once
            there.add(what)
        for proc in h.procs:
            if proc.name in h.urls:
                await h.ready(h.urls[proc.name], proc, 30)
        await h.accounts(2)
        items = await h.catalogue(20)
        uid = await h.submit()
        await h.ended(uid)
        await checks.complete(h, uid, "player 1", items)
    for proc, line in said:
        assert proc.text().count(line) <= 3  # said, not shouted


async def _says(proc: Proc, line: str) -> bool:
    assert proc.running(), proc.text()[-2000:]
    return line in proc.text()
