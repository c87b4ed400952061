"""Tokens: what each scope may do on each route, whose jobs a token sees, and how tokens end."""

import asyncio
import json
import re
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from cuscuta.db import Scope
from cuscuta.embedded.postgres import Postgres
from entry.app import make
from entry.gate import BELIEVED_S
from tests.conftest import MakeHouse
from tests.e2e.test_command_line import run
from tests.support.api import refused
from tests.support.house import House
from tests.support.wait import until

# Litestar adds the second and the third: the same once more, and a page that says that there is nothing.
DESCRIPTION = ("/openapi.json", "/openapi.json/openapi.json", "/openapi.json/{path:str}")
OPEN = {("GET", path) for path in ("/", "/page/x", "/livez", "/readyz", *DESCRIPTION)}
NEEDS = {
    Scope.READ: """GET /jobs, GET /jobs/x, GET /jobs/x/graph, GET /jobs/x/results, GET /jobs/x/events, GET /events,
        GET /schedules, GET /schedules/x, GET /catalogues, GET /catalogues/x, GET /queue, GET /workers,
        GET /scaling, GET /deployment, GET /deployment/workers, GET /deployment/jobs, GET /deployment/jobs/x,
        GET /deployment/accounts, GET /deployment/history, GET /deployment/changes, GET /metrics""",
    Scope.SUBMIT: """POST /jobs, DELETE /jobs, DELETE /jobs/x, POST /jobs/x/retry, POST /schedules,
        PATCH /schedules/x, DELETE /schedules/x""",
    Scope.OPERATE: """PUT /catalogues/x, GET /accounts, GET /accounts/1, PATCH /accounts/1, POST /accounts/1/release,
        GET /doctor, GET /fleet""",
    Scope.ADMIN: """POST /accounts, POST /accounts/import, DELETE /accounts/1, POST /secrets/rotate, POST /tokens,
        GET /tokens, DELETE /tokens/1""",
}


def as_bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def every_route() -> dict[tuple[str, str], Scope | None]:
    """Every route of the application and its scope, those included that Litestar adds by itself."""
    named = {}
    for route in make(None).routes:  # type: ignore[arg-type]
        place = re.sub(r"\{(account|token):int\}", "1", re.sub(r"\{(uid|name):str\}", "x", route.path))
        for method, (handler, _) in route.route_handler_map.items():  # type: ignore[union-attr]
            if method != "OPTIONS":
                named[(str(method), place)] = handler.opt["scope"]
    return named


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Litestar 3 will want each argument marked
def test_every_route_names_its_scope() -> None:
    """And the table above is the whole API."""
    named = every_route()
    expected: dict[tuple[str, str], Scope | None] = dict.fromkeys(OPEN)
    for scope, routes in NEEDS.items():
        for line in routes.replace("\n", " ").split(","):
            verb, path = line.split()
            expected[(verb, path)] = scope
    assert named == expected


async def test_a_scope_reaches_what_it_names_and_no_further(make_house: MakeHouse) -> None:
    """Every route with every scope, without a token, and with one that is not ours."""
    h = await make_house()
    await h.entry()
    url = str(h.http.base_url)
    scopes = tuple(Scope)
    tokens = {scope: await h.token(scope) for scope in scopes}
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        for needed, routes in NEEDS.items():
            for line in routes.replace("\n", " ").split(","):
                method, path = line.split()
                nobody = await http.request(method, path)
                assert nobody.status_code == 401, line
                assert nobody.headers["www-authenticate"].startswith("Bearer")
                assert nobody.headers["content-type"].startswith("application/problem+json")
                for scope in scopes:
                    if path in ("/events", "/deployment/changes") and scope.includes(needed):
                        continue  # it would not end: test_a_token_sees_the_jobs_of_its_group_only reads it
                    reply = await http.request(method, path, headers=as_bearer(tokens[scope]))
                    allowed = scope.includes(needed)
                    assert (reply.status_code != 403) == allowed, f"{line} {scope} {reply.status_code} {reply.text}"
                    assert reply.status_code not in (401, 429)
                    assert reply.status_code < 500, reply.text
        for path in ("/livez", "/readyz", "/openapi.json"):
            assert (await http.get(path)).status_code == 200
        for header in ("Basic YTpi", "Bearer", "Bearer x y", "Bearer cus_1_x", f"Bearer {tokens[Scope.ADMIN]}x"):
            assert (await http.get("/jobs", headers={"authorization": header})).status_code == 401, header
        assert (await http.options("/jobs")).status_code == 401
        assert (await http.options("/jobs", headers=as_bearer(tokens[Scope.ADMIN]))).status_code == 204
    assert all(low.includes(low) and not low.includes(high) for low, high in pairwise(scopes))
    schemes = (await h.http.get("/openapi.json")).json()
    assert schemes["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert schemes["security"] == [{"token": []}]


async def test_streams_end_with_their_token(make_house: MakeHouse) -> None:
    """Events of all, of a job, and its results as they come, each cut off within seconds of the revocation."""
    h = await make_house()
    await h.entry()
    await h.catalogue(3)
    uid = await h.submit()
    text = await h.token(Scope.OPERATE)

    async def read(path: str) -> str:
        async with h.http.stream("GET", path, headers=as_bearer(text), timeout=60) as stream:
            assert stream.status_code == 200
            return "".join([part async for part in stream.aiter_text()])

    paths = ("/events", "/deployment/changes", f"/jobs/{uid}/events", f"/jobs/{uid}/results?follow=true")
    streams = [asyncio.create_task(read(path)) for path in paths]
    done, _ = await asyncio.wait(streams, timeout=1)
    assert not done, [task.result() for task in done]
    await h.call("DELETE", f"/tokens/{text.split('_')[1]}")
    async with asyncio.timeout(3 * BELIEVED_S):
        *_, results = await asyncio.gather(*streams)
    assert "the token is good no longer" in results


async def test_a_token_ends_when_it_is_revoked_or_expires(make_house: MakeHouse) -> None:
    """Here at once, at another replica within seconds; the secret is in no list and no row."""
    h = await make_house()
    await h.entry()
    first = str(h.http.base_url)
    await h.entry()
    second = str(h.http.base_url)
    made = await h.call("POST", "/tokens", 201, json={"name": "a bot", "scope": "read"})
    text, number = made["token"], int(made["token"].split("_")[1])
    secret = text.split("_", 2)[2]

    async def status(url: str, token: str = text) -> int:
        return (await h.http.get(f"{url}/jobs", headers=as_bearer(token))).status_code

    assert [await status(first), await status(second)] == [200, 200]
    wrong = text[:-1] + ("A" if text[-1] != "A" else "B")
    assert await status(first, wrong) == 401
    listed = await h.http.get("/tokens")
    assert secret not in listed.text
    (row,) = [token for token in listed.json() if token["id"] == number]
    assert (row["name"], row["scope"], row["group"], row["revoked_at"]) == ("a bot", "read", "", None)
    assert row["used_at"]
    assert secret not in str(await h.sql("SELECT * FROM api_token"))
    assert secret not in "".join(proc.text() for proc in h.procs)
    h.http.base_url = httpx.URL(first)
    gone = await h.call("DELETE", f"/tokens/{number}")
    assert gone["revoked_at"]
    assert (await h.call("DELETE", f"/tokens/{number}"))["revoked_at"] == gone["revoked_at"]
    assert await status(first) == 401

    async def refused_there() -> bool:
        return await status(second) == 401

    await until(refused_there, 10, "the other replica has heard of it")
    await refused(h, "DELETE", f"/tokens/{number + 1}", 404, "token")
    assert await status(first, await h.token(Scope.READ)) == 200  # it has that number
    short = await h.token(Scope.READ, expires_at=datetime.now(UTC) + timedelta(seconds=1))
    assert await status(first, short) == 200

    async def expired() -> bool:
        return await status(first, short) == 401

    await until(expired, 15, "it has expired")


async def test_wrong_tokens_are_limited_and_the_right_one_goes_on(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    await h.call("GET", "/jobs")  # known from now on
    answers = []
    for n in range(14):
        wrong = f"cus_1_{n:043}"
        answers.append(await h.http.get("/jobs", headers=as_bearer(wrong)))
    assert [a.status_code for a in answers] == [401] * 10 + [429] * 4
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 61
    await h.call("GET", "/jobs")


async def test_good_tokens_that_come_all_at_once_are_good(make_house: MakeHouse) -> None:
    """Nobody of them is known yet, as after a restart; several callers have one address."""
    h = await make_house()
    await h.entry()
    bearers = [as_bearer(await h.token(Scope.READ)) for _ in range(5)]
    answers = await asyncio.gather(*(h.http.get("/jobs", headers=bearers[n % 5]) for n in range(50)))
    assert Counter(answer.status_code for answer in answers) == {200: 50}


async def test_wrong_tokens_that_come_all_at_once_are_limited_too(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    await h.call("GET", "/jobs")
    wrong = [as_bearer(f"cus_1_{n:043}") for n in range(60)]
    answers = await asyncio.gather(*(h.http.get("/jobs", headers=header) for header in wrong))
    assert Counter(answer.status_code for answer in answers) == {401: 10, 429: 50}
    await h.call("GET", "/jobs")


async def test_tokens_that_were_seen_are_good_while_the_database_is_away(folder: Path) -> None:
    """Past the seconds for which a token is believed without a look."""
    server = Postgres(folder / "postgres", fast=True)
    server.start()
    try:
        async with House(folder / "house", server) as h:
            await h.entry()
            await h.call("GET", "/jobs")
            other = await h.token(Scope.READ)
            server.stop()
            try:
                assert (await h.http.get("/jobs", headers=as_bearer(other))).status_code == 503  # nobody knows it yet
                stopped = time.monotonic()
                assert await until(lambda: still_good(h, stopped), 20, "it is believed after its time")
            finally:
                server.start()
    finally:
        server.stop()


async def still_good(h: House, since: float) -> bool:
    assert (await h.http.get("/jobs")).status_code == 200
    return time.monotonic() - since > 2 * BELIEVED_S


async def test_the_command_line_makes_lists_and_revokes_tokens(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    env = h.cli
    text = run("tokens", "make", "ci", "--scope", "submit", "--group", "red", "--expires", "12h", env=env).strip()
    row = next(t for t in json.loads(run("tokens", "list", "--json", env=env)) if t["name"] == "ci")
    assert (row["scope"], row["group"]) == ("submit", "red")
    lasts = datetime.fromisoformat(row["expires_at"]) - datetime.fromisoformat(row["created_at"])
    assert timedelta(hours=11.9) < lasts < timedelta(hours=12.1)
    assert "ci" in run("tokens", "list", env=env)
    assert "scope admin" in run("tokens", "list", env=env | {"CUSCUTA_TOKEN": text}, code=1)
    run("jobs", "list", env=env | {"CUSCUTA_TOKEN": text})
    assert "revoked" in run("tokens", "revoke", str(row["id"]), env=env)
    assert "CUSCUTA_TOKEN" in run("jobs", "list", env=env | {"CUSCUTA_TOKEN": text}, code=1)
    assert "30d" in run("tokens", "make", "x", "--scope", "read", "--expires", "soon", env=env, code=2)
    database = {"CUSCUTA_POSTGRES_URL": h.postgres.url(h.database)}
    assert "--another" in run("tokens", "bootstrap", env=database, code=1)
    fresh = run("tokens", "bootstrap", "--another", env=database).strip()
    run("tokens", "list", env=env | {"CUSCUTA_TOKEN": fresh})
    assert "CUSCUTA_POSTGRES_URL" in run("tokens", "bootstrap", code=1)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3"])  # noqa: S104 - to be refused
async def test_insecure_is_refused_off_loopback(make_house: MakeHouse, host: str) -> None:
    h = await make_house()
    assert "insecure" in run("check-config", env={"CUSCUTA_INSECURE": "true", "CUSCUTA_ENTRY_HOST": host}, code=2)
    await h.entry(insecure="true")
    async with httpx.AsyncClient(base_url=h.http.base_url) as http:
        assert (await http.get("/tokens")).status_code == 200
        assert (await http.get("/tokens", headers={"host": "rebound.example"})).status_code == 403
        assert (await http.get("/tokens", headers={"x-forwarded-for": "203.0.113.9"})).status_code == 403
    assert "may do anything" in h.procs[-1].text()
