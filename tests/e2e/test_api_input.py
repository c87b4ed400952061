"""Bad input to the REST API: each a clear 4xx that names the field and the fix, and nothing is accepted."""

from tests.conftest import MakeHouse
from tests.support.api import refused


async def test_bad_jobs_are_refused_by_field(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    await h.catalogue(10)
    good = {"target": "p", "catalogue": "songs"}
    await refused(h, "POST", "/jobs", 422, "catalogue", "PUT /catalogues", json={**good, "catalogue": "none"})
    await refused(h, "POST", "/jobs", 422, "to", "10 items", json={**good, "to": 11})
    await refused(h, "POST", "/jobs", 422, "from", "empty", json={**good, "from": 5, "to": 5})
    await refused(h, "POST", "/jobs", 422, "from", "empty", json={**good, "from": 10})
    await refused(h, "POST", "/jobs", 400, "from", json={**good, "from": -1})
    await refused(h, "POST", "/jobs", 400, "target", json={**good, "target": 5})
    await refused(h, "POST", "/jobs", 400, "target", json={**good, "target": ""})
    await refused(h, "POST", "/jobs", 400, "target", "required", json={"catalogue": "songs"})
    await refused(h, "POST", "/jobs", 400, "priorty", "Did you mean priority?", json={**good, "priorty": "high"})
    await refused(h, "POST", "/jobs", 400, "priority", json={**good, "priority": "urgent"})
    await refused(h, "POST", "/jobs", 400, "deadline_s", json={**good, "deadline_s": -1})
    soon, over = "2099-01-01T00:00:00Z", "2020-01-01T00:00:00Z"
    both = {"deadline": soon, "deadline_s": 5}
    await refused(h, "POST", "/jobs", 422, "deadline", "one of them", json={**good, **both})
    await refused(h, "POST", "/jobs", 422, "deadline", "is over", json={**good, "deadline": over})
    await refused(h, "POST", "/jobs", 422, "start_by", "is over", json={**good, "start_by": over})
    await refused(h, "POST", "/jobs", 400, "start_by", json={**good, "start_by": "2099-01-01T00:00:00"})
    for field in ("deadline_s", "start_by_s"):  # nought is no way to say never (FIELD 12)
        for never in (0, -1, -0.0):
            await refused(h, "POST", "/jobs", 400, field, json={**good, field: never})
    both = {"tolerance_items": 1, "tolerance_share": 0.5}
    await refused(h, "POST", "/jobs", 422, "tolerance_share", "one of them", json={**good, **both})
    await refused(h, "POST", "/jobs", 400, "tolerance_share", json={**good, "tolerance_share": 1.5})
    await refused(h, "POST", "/jobs", 400, "lane_policy", json={**good, "lane_policy": "halt"})
    await refused(h, "DELETE", "/jobs", 422, "status", "no filter")
    await refused(h, "DELETE", "/jobs?label=red", 422, "label", "key:value")
    await refused(h, "POST", "/jobs/none/retry", 404, "uid")
    await refused(h, "POST", "/jobs", 422, "target", "1,024", json={**good, "target": "x" * 1025})
    await refused(h, "POST", "/jobs", 422, "key", json={**good, "key": ""})
    await refused(h, "POST", "/jobs", 422, "labels", json={**good, "labels": {str(n): "x" for n in range(17)}})
    response = await h.http.post("/jobs", content=b"{nonsense", headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert "problem+json" in response.headers["content-type"]
    surrogate = rb'{"target": "\ud800", "catalogue": "songs"}'
    response = await h.http.post("/jobs", content=surrogate, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422)
    assert await h.messages("cuscuta.>") == []  # nothing of all that was accepted
    assert (await h.call("GET", "/jobs"))["jobs"] == []


async def test_bad_catalogues_are_refused(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    put = {"method": "PUT", "path": "/catalogues/songs"}
    await refused(h, **put, status=422, field="items", word="at least one", json={"items": []})
    await refused(h, **put, status=422, field="items[2].id", word="items[0]", json={"items": ["a", "b", "a"]})
    await refused(h, **put, status=422, field="items[1].id", json={"items": ["a", ""]})
    await refused(h, **put, status=400, field="items[1]", json={"items": ["a", 5]})
    await refused(h, **put, status=400, field="items[0].weight", json={"items": [{"id": "a", "weight": 0}]})
    await refused(h, **put, status=422, field="items[0].id", word="512", json={"items": ["x" * 513]})
    await refused(h, "PUT", "/catalogues/" + "n" * 129, 422, "name", json={"items": ["a"]})
    await refused(h, "GET", "/catalogues/none", 404, "name")
    assert await h.call("GET", "/catalogues") == []


async def test_a_body_of_100_mb_is_refused_and_nothing_breaks(make_house: MakeHouse) -> None:
    h = await make_house()
    entry = await h.entry()
    before = entry.rss_bytes()
    for path, method in (("/jobs", "POST"), ("/catalogues/x", "PUT"), ("/accounts/import", "POST")):
        response = await h.http.request(
            method, path, content=b"[" * (100 << 20), headers={"content-type": "application/json"}
        )
        assert response.status_code == 413, response.text
        assert response.json()["status"] == 413
    assert entry.rss_bytes() - before < 80 << 20
    assert (await h.http.get("/readyz")).status_code == 200


async def test_unknown_things_are_404_and_wrong_methods_405(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    for path in ("/jobs/none", "/jobs/00000000000000000000000000", "/jobs/*/results", "/jobs/%3E"):
        await refused(h, "GET", path, 404, "uid")
    await refused(h, "GET", "/accounts/5", 404, "account")
    await refused(h, "GET", f"/accounts/{2**70}", 404, "account")
    for path in ("/page/nothing", "/nowhere", "/jobs/a/b/c/d"):
        nowhere = await h.http.get(path)
        assert nowhere.status_code == 404
        assert nowhere.headers["content-type"].startswith("application/problem+json")
    assert (await h.http.put("/jobs")).status_code == 405
    await refused(h, "GET", "/jobs", 422, "label", params={"label": "nocolon"})
    await refused(h, "GET", "/jobs", 422, "before", params={"before": "nobody"})
    assert (await h.http.get("/jobs", params={"limit": 0})).status_code == 400
    assert (await h.http.get("/jobs", params={"status": "lost"})).status_code == 400
