"""A deployment whose every connection goes through a proxy of its own, and what must hold after each fault."""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from typing import Self

from cuscuta import spans
from cuscuta.spans import Span
from tests.faults.moments import Part, Server
from tests.support import checks
from tests.support.house import House
from tests.support.patient import Patient
from tests.support.process import Proc
from tests.support.proxy import Proxy
from tests.support.wait import until
from worker.upstream.reference.rules import score

ACCOUNTS, ITEMS = 6, 24
_PARTS: dict[Part, tuple[Server, ...]] = {
    "entry": ("nats", "postgres"),
    "worker": ("nats", "postgres", "upstream"),
    "reaper": ("nats", "postgres"),
}


class Stage(Patient):
    """One of each part, behind proxies; a second worker comes to help when the first is struck."""

    def __init__(self, h: House) -> None:
        super().__init__(h)
        self.proxies: dict[tuple[Part, Server], Proxy] = {}
        self.parts: dict[Part, Proc] = {}
        self.helper: Proc | None = None
        self.items: list[str] = []
        self._end = AsyncExitStack()

    async def __aenter__(self) -> Self:
        h = self.h
        h.nats._sync = "always"
        h.nats.stop()
        h.nats.start()
        await h.upstream(accounts=ACCOUNTS, latency_ms=20)
        ports = {"nats": h.nats.port, "postgres": h.postgres.port, "upstream": int(h.upstream_url.rsplit(":", 1)[1])}
        for part, servers in _PARTS.items():
            for server in servers:
                self.proxies[part, server] = await self._end.enter_async_context(Proxy(ports[server]))
        for part in _PARTS:
            await self.start(part)
        await h.accounts(ACCOUNTS)
        self.items = await h.catalogue(ITEMS)
        await h.seats(2)
        return self

    async def __aexit__(self, *_: object) -> None:
        for proc in self.h.procs:
            if proc.running():
                proc.kill()
        await self._end.aclose()

    async def start(self, part: Part, wait: bool = True) -> Proc:
        """Start a part behind its proxies."""
        database = self.h.postgres.url(self.h.database)
        where = {"nats_url": f"nats://127.0.0.1:{self.proxies[part, 'nats'].port}"}
        where["postgres_url"] = database.replace(
            f":{self.h.postgres.port}/", f":{self.proxies[part, 'postgres'].port}/"
        )
        if part == "worker":
            where["upstream_url"] = f"http://127.0.0.1:{self.proxies[part, 'upstream'].port}"
        make = {"entry": self.h.entry, "worker": self.h.worker, "reaper": self.h.reaper}[part]
        self.parts[part] = await make(wait, seats="2", **where)
        return self.parts[part]

    async def one_slow(self) -> None:
        """One of the worker's accounts is slow, so that the other has nothing to do at a job's end."""
        owner = json.loads(self.parts["worker"].text().splitlines()[0])["process"]
        held = "SELECT account_email FROM account_table WHERE lease_owner = $1"
        first, *_ = await until(lambda: self.h.sql(held, owner), 10, "the worker has an account")
        await self.h.control(set={"latency_s": 0.02})
        await self.h.control(first["account_email"], set={"latency_s": 0.3})

    async def help(self) -> None:
        """A second worker, connected directly."""
        self.helper = self.helper or await self.h.worker(wait=False, seats="2")

    async def mend(self) -> None:
        """Every part runs and is ready, and the helper has gone again."""
        for part, proc in list(self.parts.items()):
            if not proc.running():
                await self.start(part)
        for proc in self.parts.values():
            await self.h.ready(self.h.urls[proc.name], proc, 30)
        if self.helper is not None:
            await asyncio.to_thread(self.helper.stop)
            self.helper = None

    async def losses(self, uid: str, target: str) -> tuple[int, int]:
        """Of a completed job: items that are missing or wrong, and items that are stored twice."""
        read = {row["id"]: row.get("value") for row in await self.h.results(uid)}
        lost = sum(read.get(item) != score(target, item) for item in self.items)
        stored = await (await self.h.bus()).results.stored(uid)
        return lost + spans.total(spans.gaps(Span(0, ITEMS), stored)), sum(s.size for s in stored) - ITEMS

    async def repeats(self, target: str) -> int:
        """Polls of a target beyond one for each item."""
        return sum((await checks.polls(self.h, target)).values()) - ITEMS

    async def overlapped(self, first: str, second: str) -> bool:
        """Whether a lane's second job was polled for before its first one's last poll had begun."""
        calls = (await self.h.world())["calls"]
        last = max(float(call[3]) for call in calls if call[1] == first)
        return last > min(float(call[3]) for call in calls if call[1] == second)


async def lasts(seconds: float) -> None:
    """For so long a fault goes on."""
    end = time.monotonic() + seconds

    async def over() -> bool:
        return time.monotonic() >= end

    await until(over, seconds + 60, "it is over", min(0.1, seconds))
