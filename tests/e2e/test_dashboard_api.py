"""The dashboard's API: what it says is true, whoever asks. What it costs: `python -m tests.bench listing`."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from cuscuta.db import Scope
from tests.conftest import MakeHouse
from tests.support.house import House
from tests.support.wait import until


async def told(h: House, path: str = "") -> Any:
    return await h.call("GET", f"/deployment{path}")


async def test_it_follows_a_job_from_its_submission_to_its_end(make_house: MakeHouse) -> None:
    h = await make_house(name="Garden")
    await h.upstream(accounts=2, latency_ms=250)
    await h.entry()
    await h.accounts(2)
    await h.catalogue(40)
    first = await told(h)
    assert (first["api"], first["name"], first["running_total"], first["workers"]) == (1, "Garden", 0, 0)
    assert first["accounts"] == {"Idle": 2}
    uid = await h.submit("player 1", key="lane", labels={"group": "red"})
    behind = await h.submit("player 2", key="lane", labels={"group": "red"})
    await until(lambda: _runs(h, uid), 10, "it runs")
    waiting = await told(h)
    assert [row["uid"] for row in waiting["waiting"]] == [behind]
    assert (waiting["waiting_by_group"], waiting["waiting_by_priority"]) == ({"red": 1}, {"normal": 1})
    cells = (await told(h, f"/jobs/{uid}"))["cells"]
    assert {cell["state"] for cell in cells} == {"waiting"}
    assert (cells[0]["start"], cells[-1]["stop"]) == (0, 40)
    worker = await h.worker(seats="2")

    async def half() -> Any:
        detail = await told(h, f"/jobs/{uid}")
        states = {cell["state"] for cell in detail["cells"]}
        return detail if {"held", "done"} <= states else None

    detail = await until(half, 20, "some of it is done and some is held", 0.05)
    held = [cell for cell in detail["cells"] if cell["state"] == "held"]
    (row,) = await told(h, "/workers")
    assert {cell["by"].rsplit(" ", 1)[0] for cell in held} == {row["worker"]}
    assert {seat["account"] for seat in row["seats"]} == {"1", "2"}
    await h.ended(uid)
    await h.ended(behind)
    detail = await told(h, f"/jobs/{uid}")
    assert {cell["state"] for cell in detail["cells"]} == {"done"}
    assert [event["what"] for event in detail["events"]] == ["admitted", "completed"]

    async def counted() -> bool:
        minutes = (await told(h, "/history"))["minutes"]
        return [sum(minute[what] for minute in minutes) for what in ("completed", "items")] == [2, 80]

    await until(counted, 10, "both ends are counted")
    found = await told(h, "/jobs?search=PLAYER 1")
    assert [job["uid"] for job in found["jobs"]] == [uid]
    worker.kill()

    async def gone() -> bool:
        return not await told(h, "/workers") and not (await told(h))["seats"]

    await until(gone, 10, "the killed worker is not shown any more")


async def _runs(h: House, uid: str) -> bool:
    return uid in [job["uid"] for job in (await told(h))["running"]]


async def test_its_answers_are_what_its_description_says(make_house: MakeHouse) -> None:
    """docs/dashboard-api.schema.json, by which quite another system could offer the same."""
    h = await make_house()
    await h.upstream(accounts=2)
    await h.entry()
    await h.worker(seats="2")
    await h.accounts(2)
    await h.catalogue(10)
    uid, bad = await h.submit("player 1", labels={"group": "a"}), await h.submit("unknown player")
    for one in (uid, bad):
        await h.ended(one)
    described = json.loads((Path(__file__).parents[2] / "docs" / "dashboard-api.schema.json").read_text())
    paths = {"overview": "", "workers": "/workers", "jobs": "/jobs", "job": f"/jobs/{bad}", "accounts": "/accounts",
             "history": "/history"}  # fmt: skip
    assert set(paths) == set(described["properties"])
    for name, path in paths.items():
        answer = await told(h, path)
        jsonschema.validate(answer, {**described["properties"][name], "$defs": described["$defs"]})
        assert answer
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"api": "1"}, {**described["properties"]["overview"], "$defs": described["$defs"]})


async def test_changes_are_told_as_they_happen(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.upstream(accounts=1, latency_ms=100)
    await h.entry()
    await h.accounts(1)
    await h.catalogue(20)
    uid = await h.submit()
    await h.worker(seats="1")
    done: list[int] = []
    running: list[int] = []
    async with h.http.stream("GET", f"/deployment/changes?uid={uid}") as answer:
        kind = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                kind = line[7:]
            if line.startswith("data: ") and kind == "job":
                done.append(json.loads(line[6:])["job"]["progress"]["done"])
                if done[-1] == 20:
                    break
            if line.startswith("data: ") and kind == "overview":
                running.append(json.loads(line[6:])["running_total"])
    assert done == sorted(done)
    assert 2 < len(done) < 20  # some steps of it, and not each item's
    assert 1 in running


async def test_a_groups_token_sees_its_own_jobs_only(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    await h.accounts(1)
    account = (await h.call("GET", "/accounts"))[0]
    await h.call("PATCH", f"/accounts/{account['id']}", json={"rate": 0.5})
    await h.catalogue(5)
    red, blue = [await h.submit(group, labels={"group": group}) for group in ("red", "blue")]
    h.http.headers["authorization"] = f"Bearer {await h.token(Scope.READ, 'red')}"

    async def sees() -> list[str]:
        return [row["uid"] for row in (await told(h, "/jobs"))["jobs"]]

    assert await until(sees, 10, "its job is listed") == [red]
    overview = await told(h)
    assert [row["uid"] for row in (*overview["running"], *overview["waiting"])] == [red]
    await h.call("GET", f"/deployment/jobs/{blue}", 404)
    await h.call("GET", f"/deployment/changes?uid={blue}", 404)
    accounts = await told(h, "/accounts")
    assert [one["account"] for one in accounts["troubled"]] == [account["id"]]
    assert account["email"] not in json.dumps(accounts)


async def test_records_put_there_by_hand_are_no_fault_of_ours(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    await h.catalogue(5)
    uid = await h.submit()
    bus, now = await h.bus(), "2026-01-01T00:00:00Z"
    for n, working in enumerate(["", "x", uid, f"{uid} 5-1", f"{uid} a-b", "idle"]):
        odd = {"worker": f"w{n}", "boot": "b", "version": "0", "seats": 1, "working": [working], "started_at": now,
               "accounts": {"no number": 1.0}, "at": now, "item_s": {"no number": 0.0}}  # fmt: skip
        await bus.worker_bucket.put(f"w{n}", json.dumps(odd).encode())
    for path in ("", "/workers", f"/jobs/{uid}"):
        assert await told(h, path)
    assert len(await told(h, "/workers")) == 6
    await h.call("GET", "/scaling")


async def test_the_page_is_for_everybody_and_lets_nothing_in_from_elsewhere(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    async with httpx.AsyncClient(base_url=h.http.base_url) as nobody:
        page = await nobody.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert not re.search(r"https?://|<style|style=|<script(?! type=\"module\" src=\"/page/)", page.text)
        again = await nobody.get("/", headers={"if-none-match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        for name in re.findall(r"/page/[a-z.]+", page.text):
            assert (await nobody.get(name)).status_code == 200
        for name in ("nothing.js", "..%2fapp.py", "%2e%2e%2frun.py"):
            assert (await nobody.get(f"/page/{name}")).status_code == 404
