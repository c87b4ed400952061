"""Groups: whose jobs a token sees, and that nobody's job waits for, fails by, or is taken for another group's."""

import json
from typing import Any

from cuscuta.db import Scope
from tests.conftest import MakeHouse
from tests.e2e.test_access import as_bearer
from tests.support.api import refused
from tests.support.house import House


async def test_a_token_sees_the_jobs_of_its_group_only(make_house: MakeHouse) -> None:
    """Two groups and an operator: lists, single jobs, results, events, graph, cancel, retry, schedules, `after`."""
    h = await make_house()
    await h.entry()
    await h.catalogue(3)
    red, blue = [as_bearer(await h.token(Scope.SUBMIT, group)) for group in ("red", "blue")]
    nobody = as_bearer(await h.token(Scope.SUBMIT))
    job = {"target": "player 1", "catalogue": "songs", "key": None}

    async def submit(who: dict[str, str], **more: Any) -> str:
        return str((await h.call("POST", "/jobs", 202, json=job | more, headers=who))["uid"])

    async def listed(who: dict[str, str]) -> set[str]:
        return {row["uid"] for row in (await h.call("GET", "/jobs", headers=who))["jobs"]}

    reds = [await submit(red), await submit(red, labels={"group": "red", "a": "b"})]
    blues = [await submit(blue, unique=True)]  # the red ones are none of its business
    free = await submit(nobody)
    assert await listed(red) == set(reds)
    assert await listed(blue) == set(blues)
    assert await listed(nobody) == {free}
    operator = as_bearer(await h.token(Scope.OPERATE, "blue"))
    assert await listed(operator) == {*reds, *blues, free}
    assert (await h.job(reds[0]))["labels"] == {"group": "red"}
    await refused(h, "POST", "/jobs", 403, "labels.group", json=job | {"labels": {"group": "red"}}, headers=blue)
    follow = {"target": "t", "catalogue": "songs", "labels": {"group": "red"}}
    await refused(h, "POST", "/jobs", 403, "on_success.labels.group", json=job | {"on_success": follow}, headers=blue)
    await refused(h, "POST", "/jobs", 422, "after[0]", json=job | {"after": [reds[0]]}, headers=blue)
    for method, path in [
        *[("GET", f"/jobs/{reds[0]}{more}") for more in ("", "/results", "/events", "/graph")],
        ("DELETE", f"/jobs/{reds[0]}"),
        ("POST", f"/jobs/{reds[0]}/retry"),
    ]:
        await refused(h, method, path, 404, "uid", headers=blue)
    await refused(h, "GET", f"/jobs?before={reds[0]}", 422, "before", headers=blue)
    waits = await submit(operator, after=[reds[0]], labels={"group": "blue"})
    shown = await h.call("GET", f"/jobs/{waits}/graph", headers=blue)
    assert [one["uid"] for one in shown["jobs"]] == [waits]
    assert shown["edges"] == []
    queue = await h.call("GET", "/queue", headers=blue)
    assert queue["waiting"]["normal"] == 1
    assert [row["uid"] for row in queue["next"]] == [waits]
    assert [row["uid"] for row in queue["running"]] == blues
    key = {"Idempotency-Key": "the same"}
    mine = await h.call("POST", "/jobs", 202, json=job, headers=red | key)
    again = await h.call("POST", "/jobs", 202, json=job, headers=red | key)
    other = await h.call("POST", "/jobs", 202, json=job | {"target": "another"}, headers=blue | key)
    assert mine["uid"] == again["uid"] != other["uid"]
    schedule = {"when": "@every 1h", "job": {"target": "t", "catalogue": "songs"}}
    made = await h.call("POST", "/schedules", 201, json=schedule, headers=red)
    assert made["job"]["labels"] == {"group": "red"}
    await refused(h, "GET", f"/schedules/{made['id']}", 404, "uid", headers=blue)
    await refused(h, "PATCH", f"/schedules/{made['id']}", 404, "uid", json={"paused": True}, headers=blue)
    assert [s["id"] for s in (await h.call("GET", "/schedules", headers=red))["schedules"]] == [made["id"]]
    assert (await h.call("GET", "/schedules", headers=blue))["schedules"] == []
    await refused(h, "DELETE", f"/schedules/{made['id']}", 404, "uid", headers=blue)
    gone = await h.call("DELETE", "/jobs", params={"target": "player 1", "dry_run": "false"}, headers=blue)
    assert gone["cancelled"] == len(blues) + 1
    assert (await h.job(reds[0]))["status"] != "cancelled"
    seen = await events(h, blue, reds[1], other["uid"])
    assert other["uid"] in seen
    assert not seen & {*reds, free}


async def test_groups_have_lanes_and_claims_of_their_own(make_house: MakeHouse) -> None:
    """Nobody's job waits for, fails by, or is taken for another group's, however the names are put together."""
    h = await make_house()
    await h.entry()
    await h.catalogue(3)
    red, nobody = as_bearer(await h.token(Scope.SUBMIT, "red")), as_bearer(await h.token(Scope.SUBMIT))
    job = {"target": "player 1", "catalogue": "songs", "lane_policy": "stop", "unique": True}
    red_uid = (await h.call("POST", "/jobs", 202, json=job, headers=red))["uid"]
    for target in ("player 1", "red player 1", "red\0player 1"):
        made = await h.call("POST", "/jobs", 202, json=job | {"target": target}, headers=nobody)
        assert not made["existing"]
        assert (await h.job(made["uid"]))["waiting_for"] != f"job {red_uid}, which is before it in its lane"
    again = await h.call("POST", "/jobs", 202, json=job, headers=red)
    assert (again["uid"], again["existing"]) == (red_uid, True)


async def events(h: House, who: dict[str, str], foreign: str, own: str) -> set[str]:
    """The jobs that all events of a token's stream, from their beginning, are about: another's ends before its own."""
    await h.call("DELETE", f"/jobs/{foreign}")
    await h.call("DELETE", f"/jobs/{own}")
    seen = set()
    async with h.http.stream("GET", "/events", headers=who | {"last-event-id": "0"}) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data:") and (text := line.removeprefix("data:").strip()).startswith("{"):
                event = json.loads(text)
                seen.add(event["uid"])
                if (event["uid"], event["what"]) == (own, "cancelled"):
                    break
    return seen
