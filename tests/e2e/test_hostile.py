"""Callers and upstreams that mean harm: nobody fills the memory, holds the door, or sends us inside."""

import asyncio
import gzip
import re
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from cuscuta import limits
from tests.conftest import MakeHouse
from tests.support.house import House
from tests.support.wait import until

ADAPTER = """
name = "hostile"
base_url = "http://127.0.0.1:1"
timeout_s = 2
[poll]
path = "/poll/{item.id}"
result = "score"
"""
MEGABYTE = b"x" * (1 << 20)


# --- callers ---------------------------------------------------------------------------------------------------------


async def connection(h: House) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(str(h.http.base_url))
    return await asyncio.open_connection(parts.hostname, parts.port)


async def closed(reader: asyncio.StreamReader, within_s: float) -> bytes:
    """What came until the other side closed."""
    try:
        return await asyncio.wait_for(reader.read(), within_s)
    except ConnectionError:
        return b""


async def test_ten_thousand_idle_connections_keep_nobody_out(make_house: MakeHouse) -> None:
    """Others are served meanwhile, and those who say nothing are shown the door."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 10_000
    if hard != resource.RLIM_INFINITY and hard < count + 1_000:
        pytest.skip(f"this system lets a process open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 1_000), hard))
    h = await make_house()
    entry = await h.entry()
    await h.catalogue(3)
    before = entry.rss_bytes()
    ends = [await connection(h) for _ in range(count)]
    for n in range(20):
        assert await h.submit(f"player {n}")
    assert entry.rss_bytes() - before < 200 << 20
    got = await asyncio.gather(*(closed(reader, limits.HEAD_S + 30) for reader, _ in ends))
    assert set(got) == {b""}
    for _, writer in ends:
        writer.close()
    assert (await h.http.get("/readyz")).status_code == 200


async def test_an_idle_connection_outlives_what_clients_keep(make_house: MakeHouse) -> None:
    """httpx, among others, sends over a connection that was idle for up to five seconds: it must not end just then."""
    h = await make_house()
    await h.entry()
    reader, writer = await connection(h)
    try:
        for _ in range(2):
            writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            assert b"200 OK" in head
            length = re.search(rb"content-length: (\d+)", head, re.I)
            assert length
            await reader.readexactly(int(length[1]))
            with pytest.raises(TimeoutError):  # nothing comes, its end neither
                await asyncio.wait_for(reader.read(1000), 7)
    finally:
        writer.close()


async def test_slow_heads_and_bodies_end(make_house: MakeHouse) -> None:
    """A byte now and then is not enough: the head has its time, whatever comes of it meanwhile."""
    h = await make_house()
    await h.entry()
    reader, writer = await connection(h)
    began = time.monotonic()
    writer.write(b"POST /jobs HTTP/1.1\r\nHost: x\r\n")
    ending = asyncio.ensure_future(closed(reader, limits.HEAD_S * 3))

    async def drip() -> bool:
        writer.write(b"X-A: b\r\n")
        return ending.done()

    await until(drip, limits.HEAD_S + 10, "the connection is closed", 0.5)
    assert time.monotonic() - began >= limits.HEAD_S - 1
    assert await ending == b""
    writer.close()
    assert await h.messages("cuscuta.>") == []


async def test_heads_without_end_are_refused(make_house: MakeHouse) -> None:
    h = await make_house()
    entry = await h.entry()
    before = entry.rss_bytes()
    for one_line in (False, True):
        reader, writer = await connection(h)
        writer.write(b"GET /jobs HTTP/1.1\r\nHost: x\r\n" + (b"X-Long: " if one_line else b""))
        answer = asyncio.ensure_future(closed(reader, 20))
        try:
            while not answer.done():
                writer.write(b"a" * 8_192 if one_line else b"X-Header: y\r\n" * 600)
                await asyncio.wait_for(writer.drain(), 10)
        except (ConnectionError, TimeoutError):
            pass
        writer.close()
        assert (await answer)[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 400", b"")
    assert entry.rss_bytes() - before < 60 << 20
    assert (await h.http.get("/readyz")).status_code == 200


async def test_bodies_that_are_bombs_are_refused(make_house: MakeHouse) -> None:
    """Compressed ones are not unpacked, deep ones not descended into."""
    h = await make_house()
    entry = await h.entry()
    before = entry.rss_bytes()
    bomb = gzip.compress(b'{"target": "' + b"a" * (50 << 20))
    packed = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = await h.http.post("/jobs", content=bomb, headers=packed)
    assert answer.status_code in (400, 415), answer.text
    assert "problem+json" in answer.headers["content-type"]
    for deep in (b"[" * 500_000, b'{"a":' * 100_000, b'{"target": ' + b"[" * 400_000):
        answer = await h.http.post("/jobs", content=deep, headers={"content-type": "application/json"})
        assert answer.status_code == 400, answer.text
    assert entry.rss_bytes() - before < 60 << 20


# --- upstreams -------------------------------------------------------------------------------------------------------

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """An HTTP server that answers everything with one handler; its address."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _giant(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"content-type": "application/json"})
    await answer.prepare(request)
    for _ in range(200):
        await answer.write(MEGABYTE)
    return answer


async def _bomb(request: web.Request) -> web.StreamResponse:
    packed = {"content-type": "application/json", "content-encoding": "gzip"}
    return web.Response(body=gzip.compress(MEGABYTE * 300), headers=packed)


async def _heads(request: web.Request) -> web.StreamResponse:
    return web.Response(text='{"score": 1}', headers={"X-Long": "a" * (1 << 20)})


async def _deep(request: web.Request) -> web.StreamResponse:
    return web.Response(text="[" * 1_000_000, content_type="application/json")


async def _endless(request: web.Request) -> web.StreamResponse:
    """A byte now and then, for longer than anybody waits."""
    answer = web.StreamResponse(headers={"content-type": "application/json"})
    await answer.prepare(request)

    async def drip() -> bool:
        await answer.write(b" ")
        return False

    await until(drip, 30, "it is told to stop", 0.2)
    return answer


HOSTILE = {"giant": _giant, "bomb": _bomb, "heads": _heads, "deep": _deep, "endless": _endless}


@pytest.mark.parametrize("kind", list(HOSTILE))
async def test_an_upstreams_answer_cannot_fill_the_worker(make_house: MakeHouse, kind: str) -> None:
    """The item is given up with its reason; memory stays, and so does the worker."""
    async with serving(HOSTILE[kind]) as url:
        h = await ready(make_house, url)
        worker = h.procs[-1]
        before = worker.rss_bytes()
        uid = await h.submit("player 1")
        job = await h.ended(uid, 120)
        assert job["status"] == "failed"
        assert worker.running()
        assert worker.rss_bytes() - before < 150 << 20
        assert "Traceback" not in worker.text()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_an_upstream_sends_us_nowhere_else(make_house: MakeHouse, status: int) -> None:
    """Not inside, as 169.254.169.254 would be, and not anywhere: a redirect is no answer."""
    asked: list[str] = []

    async def inside(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(text='{"score": 1}', content_type="application/json")

    async with serving(inside) as secret:

        async def redirect(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers={"location": f"{secret}/latest/meta-data"})

        async with serving(redirect) as url:
            h = await ready(make_house, url)
            job = await h.ended(await h.submit("player 1"), 120)
            assert job["status"] == "failed"
            assert asked == []


async def ready(make_house: MakeHouse, url: str) -> House:
    """A worker of that upstream, and a catalogue of one item."""
    h = await make_house(max_attempts="1", max_deliver="2", transient_retries="0", item_timeout_s="2")
    adapter = h.folder / "hostile.toml"
    adapter.write_text(ADAPTER)
    h.extra_env["CUSCUTA_UPSTREAM"] = str(adapter)
    h.upstream_url = url
    await h.entry()
    await h.reaper()
    await h.accounts(1)
    await h.catalogue(1)
    await h.worker(seats="1")
    await h.seats(1)
    return h
