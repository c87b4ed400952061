"""Events and results as they come: server-sent events, NDJSON that follows a job, CSV."""

import asyncio
import csv
import io
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pyarrow.parquet as pq

from tests.conftest import MakeHouse
from tests.support.house import House
from tests.support.wait import until
from worker.upstream.reference.rules import score


class Sent(NamedTuple):
    id: int | None
    what: str
    data: Any


async def events(
    h: House, path: str, after: int | None = None, opened: asyncio.Event | None = None
) -> AsyncGenerator[Sent, None]:
    """What a browser's EventSource would see; `opened` is set once nothing that happens can be missed."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    async with h.http.stream("GET", path, headers=headers, timeout=60) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if line.startswith(":"):
                if "ping" in line:
                    yield Sent(None, "ping", None)
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" not in fields:
                fields = {}  # an id to come back to, no event
                if opened:
                    opened.set()
            else:
                number = int(fields["id"]) if "id" in fields else None
                yield Sent(number, fields["event"], json.loads(fields["data"]))
                fields = {}


async def serving(make_house: MakeHouse, latency_ms: float = 10) -> House:
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=latency_ms)
    await h.entry()
    await h.reaper()
    await h.accounts(2)
    await h.worker(seats="2")
    await h.seats(2)
    return h


async def test_a_job_is_followed_to_its_end_and_from_where_one_left_off(make_house: MakeHouse) -> None:
    h = await serving(make_house, latency_ms=30)
    await h.catalogue(100)
    uid = await h.submit()
    seen = [event async for event in events(h, f"/jobs/{uid}/events")]  # ends by itself
    steps = [event for event in seen if event.id is not None]
    assert [event.what for event in steps] == ["admitted", "completed"]
    assert steps[0].id < steps[1].id  # type: ignore[operator]
    progress = [event.data["done"] for event in seen if event.what == "progress"]
    assert progress == sorted(set(progress))
    took_s = (datetime.fromisoformat(steps[1].data["at"]) - datetime.fromisoformat(steps[0].data["at"])).total_seconds()
    assert 2 <= len(progress) <= took_s * 2 + 2  # twice a second at most
    assert (await h.job(uid))["status"] == "completed"
    rest = [event async for event in events(h, f"/jobs/{uid}/events", steps[0].id)]
    assert [event.what for event in rest] == ["completed"]
    assert [event.id async for event in events(h, f"/jobs/{uid}/events")] == [event.id for event in steps]
    over = await h.http.get(f"/jobs/{uid}/events", headers={"Last-Event-ID": str(steps[1].id)})
    assert over.status_code == 204  # nothing came after it, and nothing will: a browser stops asking
    assert (await h.http.get("/jobs/" + "0" * 26 + "/events")).status_code == 404
    assert (await h.http.get("/events", headers={"Last-Event-ID": "x"})).status_code == 422


async def test_all_jobs_are_followed_and_every_run_has_its_events(make_house: MakeHouse) -> None:
    h = await serving(make_house, latency_ms=20)
    await h.catalogue(60)
    seen: list[Sent] = []
    opened = asyncio.Event()

    async def listen() -> None:
        async for event in events(h, "/events", opened=opened):
            seen.append(event)

    listening = asyncio.create_task(listen())
    async with asyncio.timeout(10):
        await opened.wait()
    one, two = await h.submit("player 1"), await h.submit("player 2")
    await h.done(one, 5)
    await h.call("DELETE", f"/jobs/{one}")
    await h.call("POST", f"/jobs/{one}/retry", 202)
    await h.ended(one)
    await h.ended(two)
    for uid in (one, two):
        await until(lambda uid=uid: _heard(seen, uid, "completed"), 5, "the last event is heard")  # type: ignore[misc]
    listening.cancel()
    await asyncio.wait({listening})
    mine = [event.what for event in seen if event.data["uid"] == one]
    assert mine == ["admitted", "cancelled", "retried", "admitted", "completed"]
    assert [event.what for event in seen if event.data["uid"] == two] == ["admitted", "completed"]
    assert [event.id for event in seen] == sorted({event.id for event in seen})  # type: ignore[type-var]
    async with aclosing(events(h, "/events", seen[0].id)) as again:
        assert [await anext(again) for _ in seen[1:]] == seen[1:]


async def _heard(seen: list[Sent], uid: str, what: str) -> bool:
    return any(event.what == what and event.data["uid"] == uid for event in seen)


async def test_silence_is_broken_by_pings_and_a_stop_ends_everybody(make_house: MakeHouse) -> None:
    h = await serving(make_house)
    entry = next(proc for proc in h.procs if "entry" in proc.name)
    began = time.monotonic()
    heard = [event async for event in _until_stop(h, entry)]
    assert [event.what for event in heard] == ["ping"]
    assert 14 <= time.monotonic() - began <= 25  # after 15 s, and then it stops
    assert not entry.running()


async def _until_stop(h: House, entry: Any) -> AsyncIterator[Sent]:
    async for event in events(h, "/events"):
        yield event
        await asyncio.to_thread(entry.stop)


async def test_500_readers_come_and_go_without_a_leak(make_house: MakeHouse) -> None:
    h = await serving(make_house)
    await h.catalogue(3)
    entry = next(proc for proc in h.procs if "entry" in proc.name)

    def open_files() -> int:
        return len(list(Path(f"/proc/{entry.pid}/fd").iterdir()))

    async def crowd() -> None:
        async with aiohttp.ClientSession(
            str(h.http.base_url),
            connector=aiohttp.TCPConnector(limit=0),
            read_bufsize=1 << 12,
            headers={"authorization": h.http.headers["authorization"]},
        ) as http:
            answers = await asyncio.gather(*(http.get("/events") for _ in range(500)))
            uid = await h.submit()
            await h.ended(uid)
            lines = await asyncio.gather(*(_line_of(uid, answer) for answer in answers))
            assert all(uid.encode() in line for line in lines)
            for answer in answers:
                answer.close()

    before = open_files()
    await crowd()
    await until(lambda: _at_most(open_files, before + 5), 10, "all connections are closed")
    once = entry.rss_bytes()
    for _ in range(3):
        await crowd()
    await until(lambda: _at_most(open_files, before + 5), 10, "all connections are closed")
    assert entry.rss_bytes() < once * 1.15


async def _at_most(count: Any, most: int) -> bool:
    return bool(count() <= most)


async def _line_of(uid: str, answer: aiohttp.ClientResponse) -> bytes:
    """The first event of a job; that of an earlier one's end may come before it."""
    async with asyncio.timeout(20):
        while uid.encode() not in (line := await answer.content.readline()):
            assert line, answer
        return line


async def test_results_are_followed_as_they_come(make_house: MakeHouse) -> None:
    h = await serving(make_house, latency_ms=30)
    items = await h.catalogue(80)
    uid = await h.submit(chunk_items=4)
    rows: list[dict[str, Any]] = []
    running = False
    async with h.http.stream("GET", f"/jobs/{uid}/results", params={"follow": "true"}, timeout=60) as answer:
        async for line in answer.aiter_lines():
            if not rows:
                running = (await h.job(uid))["status"] == "pending"
            rows.append(json.loads(line))
    assert running  # the first ones came while the job was at work
    assert (await h.job(uid))["status"] == "completed"
    assert sorted(row["index"] for row in rows) == list(range(80))
    assert {row["id"]: row["value"] for row in rows} == {item: score("player 1", item) for item in items}


async def test_results_as_a_table(make_house: MakeHouse) -> None:
    """An id with a comma and a quote, an item that is missing: CSV says the same as JSON."""
    h = await serving(make_house)
    await h.catalogue(['a "b", c', "missing-1", "song-1"])
    uid = await h.submit()
    await h.ended(uid)
    answer = await h.http.get(f"/jobs/{uid}/results", headers={"accept": "text/csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    assert f"{uid}.csv" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [row["id"] for row in rows] == ['a "b", c', "missing-1", "song-1"]
    assert rows[0]["value"] == str(score("player 1", 'a "b", c'))
    assert rows[1]["value"] == ""
    assert rows[1]["error"].startswith("ItemNotFound")
    answer = await h.http.get(f"/jobs/{uid}/results", headers={"accept": "application/vnd.apache.parquet"})
    assert f"{uid}.parquet" in answer.headers["content-disposition"]
    table = pq.read_table(io.BytesIO(answer.content))
    assert table.column("id").to_pylist() == ['a "b", c', "missing-1", "song-1"]
    assert table.column("index").to_pylist() == [0, 1, 2]
    assert table.column("value").to_pylist() == [score("player 1", 'a "b", c'), None, score("player 1", "song-1")]
    assert table.column("error").to_pylist()[1].startswith("ItemNotFound")
