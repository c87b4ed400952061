"""The REST API by its users: jobs, results, lists, accounts, catalogues, health."""

import json
from typing import Any

import pytest

from cuscuta.spans import Span
from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.api import refused
from tests.support.house import gather


@pytest.mark.parametrize(
    "target", ["a b", "a.b", "*", ">", "a.*.>", "😀", "é" * 150, "x" * 300, "$JS.API.>", "a/b?c=d#e", "\\'\"{item.id}"]
)
async def test_any_target_is_just_text(make_house: MakeHouse, target: str) -> None:
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=1)
    await h.entry()
    await h.reaper()
    await h.worker(seats="2")
    await h.accounts(2)
    items = await h.catalogue(["plain", "with space", "a/b", "*", "é😀", "{target}"])
    await h.seats(2)
    uid = await h.submit(target)
    await h.ended(uid)
    await checks.complete(h, uid, target, items)


async def test_submit_show_list_and_results(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=20)
    await h.entry()
    await h.reaper()
    await h.worker(seats="2")
    await h.accounts(2)
    items = await h.catalogue(100)
    await h.seats(2)
    body = {"target": "player 1", "catalogue": "songs", "labels": {"team": "red"}, "from": 10, "to": 90}
    response = await h.http.post("/jobs", json=body)
    assert response.status_code == 202
    accepted = response.json()
    uid = accepted["uid"]
    assert response.headers["location"] == accepted["url"] == f"/jobs/{uid}"
    await h.done(uid, 20)
    partial = await h.http.get(accepted["results_url"])
    assert partial.status_code == 206
    assert int(partial.headers["retry-after"]) >= 1
    so_far = partial.json()
    missing = [Span(*s) for s in so_far["missing"]]
    assert so_far["done"] == len(so_far["items"]) == 80 - sum(s.size for s in missing)
    assert not {i["index"] for i in so_far["items"]} & {i for s in missing for i in range(*s)}
    running = await h.call("GET", "/queue")
    assert [r["uid"] for r in running["running"]] == [uid]
    assert running["seats"] == 2
    job = await h.job(uid)
    assert job["status"] == "pending"
    assert job["eta_s"] >= 0
    await h.ended(uid)
    full = await h.http.get(accepted["results_url"])
    assert full.status_code == 200
    assert [i["id"] for i in full.json()["items"]] == items[10:90]
    page = await h.http.get(accepted["results_url"], params={"from": 20, "to": 25})
    assert [i["index"] for i in page.json()["items"]] == [20, 21, 22, 23, 24]
    lines = await h.http.get(accepted["results_url"], headers={"accept": "application/x-ndjson"})
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line)["id"] for line in lines.text.splitlines()] == items[10:90]
    await refused(h, "GET", accepted["results_url"], 422, "from", params={"from": 5})
    assert (await h.job(uid))["progress"] == {"done": 80, "total": 80, "share": 1.0, "missing": []}
    for params in ({"status": "completed"}, {"target": "player 1"}, {"catalogue": "songs"}, {"label": "team:red"}):
        assert [j["uid"] for j in (await h.call("GET", "/jobs", params=params))["jobs"]] == [uid]
    for params in ({"status": "failed"}, {"target": "other"}, {"catalogue": "x"}, {"label": "team:blue"}):
        assert (await h.call("GET", "/jobs", params=params))["jobs"] == []


async def test_lists_are_paged_newest_first(make_house: MakeHouse) -> None:
    h = await make_house(max_active_jobs="2")
    await h.entry()
    await h.catalogue(3)
    uids = [await h.submit(f"player {n}") for n in range(7)]
    seen, before = [], None
    while True:
        page = await h.call("GET", "/jobs", params={"limit": 3, **({"before": before} if before else {})})
        seen += [j["uid"] for j in page["jobs"]]
        before = page["next"]
        if before is None:
            break
    assert seen == uids[::-1]
    waiting = await h.call("GET", "/queue")
    assert waiting["waiting"]["normal"] == 5
    assert len(waiting["running"]) == 2


async def test_one_idempotency_key_is_one_job(make_house: MakeHouse) -> None:
    """Fifty posts at once with one key: one job; the same key with another body: 409 (FIELD 22)."""
    h = await make_house()
    await h.entry()
    await h.catalogue(3)
    body = {"target": "p", "catalogue": "songs"}
    key = {"Idempotency-Key": "abc"}
    answers = await gather(*(h.http.post("/jobs", json=body, headers=key) for _ in range(50)))
    assert {a.status_code for a in answers} == {202}
    assert len({a.json()["uid"] for a in answers}) == 1
    await refused(h, "POST", "/jobs", 409, "Idempotency-Key", json={**body, "target": "q"}, headers=key)
    assert len((await h.call("GET", "/jobs"))["jobs"]) == 1


async def test_accounts(make_house: MakeHouse) -> None:
    """Add, import in three forms, change, disable, release, remove; passwords never come out."""
    h = await make_house()
    await h.entry()

    async def load(kind: str, body: str) -> Any:
        return await h.call("POST", "/accounts/import", content=body.encode(), headers={"content-type": kind})

    assert await load("application/json", '[{"email": "a@x", "password": "pw:1"}]') == {"added": 1, "changed": 0}
    assert await load("text/csv", 'password,email\n"p,w",b@x\npw,c@x\n') == {"added": 2, "changed": 0}
    assert await load("text/plain", "# mine\na@x:new:with:colons\nd@x:pw\n\n") == {"added": 1, "changed": 1}
    assert await h.call("POST", "/accounts", json={"email": "e@x", "password": "pw-e"}) == {"added": 1, "changed": 0}
    for kind, body, field in (
        ("text/csv", "email,password\na@x\n", "line 2"),
        ("text/csv", "mail@x,hunter2\n", "line 1"),
        ("text/plain", "a@x:1\nnocolon\n", "line 2"),
        ("text/plain", "a@x:1\na@x:2\n", "line 2"),
        ("text/plain", "", "body"),
        ("application/json", '[{"email": "a@x"}]', "body"),
        ("application/json", "{", "body"),
    ):
        answer = await refused(h, "POST", "/accounts/import", 422, field, content=body, headers={"content-type": kind})
        assert "hunter2" not in json.dumps(answer)
    await refused(
        h, "POST", "/accounts/import", 415, "Content-Type", content="x", headers={"content-type": "image/png"}
    )
    accounts = await h.call("GET", "/accounts")
    assert [a["email"] for a in accounts] == ["a@x", "b@x", "c@x", "d@x", "e@x"]
    assert all("password" not in json.dumps(a).lower() and "token" not in a for a in accounts)
    first = accounts[0]["id"]
    assert (await h.call("PATCH", f"/accounts/{first}", json={"rate": 0.5}))["rate"] == 0.5
    assert (await h.call("PATCH", f"/accounts/{first}", json={"disabled": True}))["state"] == "Disabled"
    assert [a["id"] for a in await h.call("GET", "/accounts", params={"state": "Disabled"})] == [first]
    assert (await h.call("POST", f"/accounts/{first}/release"))["state"] == "Idle"
    await refused(h, "PATCH", f"/accounts/{first}", 422, "body", json={})
    await refused(h, "PATCH", f"/accounts/{first}", 400, "rate", json={"rate": 2})
    assert (await h.http.delete(f"/accounts/{first}")).status_code == 204
    await refused(h, "DELETE", f"/accounts/{first}", 404, "account")
    stored = await h.sql("SELECT account_password FROM account_table")
    assert all("pw" not in row["account_password"][:3] and len(row["account_password"]) > 80 for row in stored)


async def test_catalogues_are_stored_listed_and_shown(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    items = ["a", {"id": "b", "weight": 3, "params": {"page": 2, "lang": "de"}}, *(f"i{n}" for n in range(5000))]
    stored = await h.call("PUT", "/catalogues/my songs!", json={"items": items})
    assert (stored["items"], stored["weight"]) == (5002, 5004)
    again = await h.call("PUT", "/catalogues/copy", json={"items": items})
    assert again["hash"] == stored["hash"]  # named by content
    other = await h.call("PUT", "/catalogues/copy", json={"items": items[:-1]})
    assert other["hash"] != stored["hash"]
    assert [c["name"] for c in await h.call("GET", "/catalogues")] == ["copy", "my songs!"]
    shown = await h.call("GET", "/catalogues/my songs!", params={"from": 1, "limit": 2})
    assert shown["page"] == [{"id": "b", "weight": 3, "params": {"page": 2, "lang": "de"}}, {"id": "i0"}]
    assert shown["next"] == 3
    last = await h.call("GET", "/catalogues/my songs!", params={"from": 5001})
    assert (last["page"], last["next"]) == ([{"id": "i4999"}], None)


async def test_health_names_the_cause_and_is_never_500(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    h.nats.kill()
    for _ in range(20):
        response = await h.http.get("/readyz")
        assert response.status_code in (200, 503)
    assert (await h.http.get("/livez")).status_code == 200
    response = await h.http.post("/jobs", json={"target": "p", "catalogue": "songs"})
    assert response.status_code == 503
    assert "NATS" in response.json()["detail"]
    assert response.headers["retry-after"]


async def test_openapi_describes_every_route_with_examples(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    described = await h.call("GET", "/openapi.json")
    for path in ("/jobs", "/jobs/{uid}", "/jobs/{uid}/results", "/accounts/import", "/catalogues/{name}", "/queue"):
        assert path in described["paths"], sorted(described["paths"])
    for path in ("/jobs/{uid}/retry", "/jobs/{uid}/graph", "/jobs/{uid}/events", "/events", "/schedules/{uid}"):
        assert path in described["paths"], sorted(described["paths"])
    assert {"get", "post", "delete"} <= set(described["paths"]["/jobs"])
    assert {"get", "patch", "delete"} == set(described["paths"]["/schedules/{uid}"])
    assert "@every 15m" in json.dumps(described["components"]["schemas"]["ScheduleRequest"])
    assert "player 17" in json.dumps(described)
    submit = described["paths"]["/jobs"]["post"]["responses"]
    assert {"202", "400", "409", "413", "422", "503"} <= set(submit)
    assert "application/problem+json" in submit["422"]["content"]
    assert {"200", "206", "404"} <= set(described["paths"]["/jobs/{uid}/results"]["get"]["responses"])
    body = described["paths"]["/accounts/import"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "text/csv", "text/plain"}


async def test_cancel_and_deadline_leave_nothing(make_house: MakeHouse) -> None:
    """Cancel with and without workers, and expiry: zero messages, no consumer (FIELD 10), late polls do not count."""
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=50)
    await h.entry()
    await h.reaper()
    await h.catalogue(200)
    uid = await h.submit("nobody works")
    cancelled = await h.call("DELETE", f"/jobs/{uid}")
    assert cancelled["status"] == "cancelled"
    await checks.nothing_left(h)
    await h.worker(seats="2")
    await h.accounts(2)
    await h.seats(2)
    uid = await h.submit("player 1")
    await h.done(uid, 10)
    late = await h.submit("player 2", deadline_s=1.5)
    await h.call("DELETE", f"/jobs/{uid}")
    moment = (await h.world())["now"]
    done = (await h.job(uid))["progress"]["done"]
    job = await h.ended(late, 15)
    assert job["status"] == "failed"
    assert job["failure_counts"] == {"DeadlineExceeded": 1}
    assert 0 < job["progress"]["done"] < 200
    assert len(await h.results(late)) == job["progress"]["done"]
    await checks.nothing_left(h)
    assert [c for c in (await h.world())["calls"] if c[1] == "player 1" and c[3] > moment + 2] == []
    assert (await h.job(uid))["progress"]["done"] == done
    assert (await h.call("DELETE", f"/jobs/{uid}"))["status"] == "cancelled"  # again: nothing changes


async def test_jobs_of_one_lane_run_one_after_another(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.upstream(accounts=4, latency_ms=10)
    await h.entry()
    await h.reaper()
    await h.worker(seats="4")
    await h.accounts(4)
    await h.catalogue(40)
    await h.seats(4)
    uids = [await h.submit(f"player {n}", key="one lane") for n in range(4)]
    other = await h.submit("alone", key=None)
    assert "before it in its lane" in (await h.job(uids[3]))["waiting_for"]
    for uid in [*uids, other]:
        await h.ended(uid)
    calls = (await h.world())["calls"]
    for n in range(3):
        last = max(c[4] for c in calls if c[1] == f"player {n}")
        assert min(c[3] for c in calls if c[1] == f"player {n + 1}") >= last
    await checks.nothing_left(h)
