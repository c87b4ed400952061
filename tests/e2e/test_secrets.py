"""Secrets: keys are replaced while everything runs, and a canary in every secret field is found nowhere.

For the second, a deployment does everything and fails in every way; then all that it emits is searched: logs, answers
of the API, events, webhooks, traces, the command line, NATS's streams and files.
"""

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from aiohttp import web

from cuscuta.db import Lease, Scope, Vault
from cuscuta.db.vault import new_key
from cuscuta.embedded.nats import Nats
from cuscuta.embedded.postgres import Postgres
from cuscuta.settings import load
from entry.requests import AccountChange, AccountRequest
from entry.routes.tokens import MadeToken
from tests.conftest import MakeHouse
from tests.e2e.test_access import NEEDS
from tests.e2e.test_command_line import run
from tests.support import users
from tests.support.adapters import TOKEN_CANARY
from tests.support.house import House
from tests.support.wait import until
from worker.failures import describe
from worker.upstream import Session

PASSWORD, WRONG = "canary-password-Qk3", "canary wrong/password+Wm5"
NATS_PASSWORD, HOOK = "canary-nats-Pv7", "canary-hook-Rt2"
WEBHOOK_SECRET = "whsec_Y2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5LWNh"


@asynccontextmanager
async def sink() -> AsyncIterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server that takes whatever is sent to it: traces and webhooks."""
    taken: list[tuple[str, bytes]] = []

    async def take(request: web.Request) -> web.Response:
        taken.append((request.path, b"\n".join([str(dict(request.headers)).encode(), await request.read()])))
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", taken
    finally:
        await runner.cleanup()


async def test_no_secret_is_in_anything_that_is_emitted(folder: Path, postgres: Postgres) -> None:
    async with sink() as (url, taken):
        login: dict[str, Any] = {"nats_user": "cuscuta", "nats_password": NATS_PASSWORD}
        h = House(folder, postgres, **login)
        user = f'authorization {{ user: "cuscuta", password: "{NATS_PASSWORD}" }}'
        h.nats = Nats(folder / "nats", extra=user)
        h.otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        async with h:
            await h.entry(webhook_secrets=WEBHOOK_SECRET, webhook_allow_private="true", **login)
            await h.reaper(**login)
            wrong = [{"email": f"wrong-{n}@x", "password": WRONG} for n in range(2)]
            await h.call("POST", "/accounts", json=[{"email": "right@x", "password": PASSWORD}, *wrong])
            await h.catalogue(12)
            worker = await h.worker(upstream="tests.support.adapters:Tells", seats="3", max_attempts="2", **login)
            hook = f"{url}/hook?key={HOOK}"
            uids = [await h.submit(target, webhook=hook, key=None) for target in ("player 1", "nobody", "player 2")]
            jobs = [await h.ended(uid) for uid in uids]
            answers = await everything(h, uids)
            command_line = run("jobs", "show", uids[0], env=h.cli) + run("accounts", "list", env=h.cli)

            async def told() -> bool:
                return sum("/hook" in path for path, _ in taken) >= 3 and any("trace" in path for path, _ in taken)

            await until(told, 20, "webhooks and traces have come")
            (sealed,) = await h.sql("SELECT temp_token FROM account_table WHERE account_email = 'right@x'")
            rows = str(await h.sql("SELECT * FROM account_table")) + str(await h.sql("SELECT * FROM api_token"))
            bus = await h.bus()
            tags = [await bus.tags.get(uid) for uid in uids]
            for proc in h.procs:
                proc.stop()
            h.nats.stop()
            stored = [p.read_bytes() for p in (folder / "nats" / "jetstream").rglob("*") if p.is_file()]
            logs = "".join(proc.text() for proc in h.procs) + (folder / "nats" / "nats.log").read_text()
            assert Vault([h.key]).open(sealed["temp_token"]) == TOKEN_CANARY

        # The canaries were where they could have sung: all kinds of errors that held them were told of.
        kinds = {kind for job in jobs for kind in job["failure_counts"]}
        assert kinds >= {"AccountFailed", "TargetNotFound", "KeyError"}, kinds
        assert "***" in str(jobs)
        assert "ItemNotFound" in answers
        assert "*** is not the password" in rows
        assert HOOK in str(tags)  # a job's webhook is kept as it was given, and shown without what may be secret
        assert b"".join(stored).count(uids[0].encode()) > 3
        database = h.postgres.url(h.database).split(":")[2].split("@")[0]
        token = h.cli["CUSCUTA_TOKEN"].split("_", 2)[2]
        secrets = [PASSWORD, WRONG, TOKEN_CANARY, NATS_PASSWORD, WEBHOOK_SECRET, h.key, users.SEAL, token, database]
        emitted = {
            "logs": logs,
            "answers": answers,
            "command line": command_line,
            "webhooks and traces": b"".join(body for _, body in taken).decode("utf-8", "replace"),
            "NATS": b"".join(stored).decode("utf-8", "replace"),
            "rows": rows,
        }
        for where, text in emitted.items():
            for secret in secrets:
                for form in (secret, json.dumps(secret)[1:-1], secret.replace(" ", "%20").replace("/", "%2F")):
                    assert form not in text, f"{form} in {where}: {text[max(0, text.find(form) - 200) :][:400]}"
        for where in ("logs", "answers", "command line", "webhooks and traces"):
            assert HOOK not in emitted[where], where
        assert worker.popen.returncode == 0


async def everything(h: House, uids: list[str]) -> str:
    """What every route that reads answers, for each job."""
    texts = []
    for routes in NEEDS.values():
        for line in routes.replace("\n", " ").split(","):
            method, path = line.split()
            if method != "GET" or path in ("/events", "/deployment/changes"):
                continue
            for uid in uids:
                place = (
                    path.replace("/catalogues/x", "/catalogues/songs").replace("x", uid, 1) if "/x" in path else path
                )
                texts.append((await h.http.get(place)).text)
    texts.append((await h.http.get("/openapi.json")).text)
    texts += [(await h.http.get(f"{url}/metrics")).text for name, url in h.urls.items() if "entry" not in name]
    async with h.http.stream("GET", "/events", headers={"last-event-id": "0"}) as stream:
        async for line in stream.aiter_lines():
            texts.append(line)
            if uids[-1] in line:
                break
    return "\n".join(texts)


async def test_no_command_line_holds_a_secret(folder: Path, postgres: Postgres) -> None:
    """What `ps` shows to every user of the machine."""
    async with House(folder, postgres) as h:
        await h.entry()
        await h.reaper()
        shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        assert "entry.run" in shown
        for secret in (h.key, h.cli["CUSCUTA_TOKEN"], h.postgres.url().split(":")[2].split("@")[0]):
            assert secret not in shown


async def test_a_key_is_replaced_while_jobs_run(make_house: MakeHouse) -> None:
    """The steps of docs/security.md, with a job after each: no account is lost, and the old key is needed no more."""
    h = await make_house()
    await h.upstream(accounts=2)
    old, new = h.key, new_key()
    await h.entry()
    await h.reaper()
    await h.accounts(2)
    await h.catalogue(4)
    parts = [h.procs[-2], await h.worker(seats="2")]
    for keys, sealed in ((f"{old},{new}", 0), (f"{new},{old}", 2), (new, 0)):
        h.key = keys
        others = [await h.entry(), await h.worker(seats="2")]
        assert (await h.ended(await h.submit()))["status"] == "completed"  # both versions lease
        for part in parts:
            part.stop()
        parts = others
        assert f"{sealed} sealed anew, {2 - sealed} were in order" in run("secrets", "rotate", env=h.cli)
    assert (await h.ended(await h.submit()))["status"] == "completed"
    assert "Disabled" not in await h.states()
    h.key = new_key()
    await h.entry()
    assert "does not have" in run("secrets", "rotate", env=h.cli, code=1)


def test_what_holds_secrets_does_not_show_them_when_printed() -> None:
    """`repr`, which lands in tracebacks and debuggers."""
    account = {"email": "a@x", "password": PASSWORD}
    holders = [
        load({"CUSCUTA_SECRET_KEYS": (key := new_key()), "CUSCUTA_POSTGRES_URL": f"postgresql://u:{PASSWORD}@h/d"}),
        msgspec.convert(account, AccountRequest),
        msgspec.convert({"password": PASSWORD}, AccountChange),
        Session(email="a@x", password=PASSWORD, token=TOKEN_CANARY),
        Lease(account=1, email="a@x", password=PASSWORD, user_id=None, token=TOKEN_CANARY, rate=1.0, term=1,
              trusted_until=0.0),
        MadeToken(TOKEN_CANARY, "n", Scope.READ, "", None),
    ]  # fmt: skip
    for holder in holders:
        for text in (repr(holder), str(holder), f"{[holder]}"):
            assert not any(secret in text for secret in (PASSWORD, TOKEN_CANARY, key)), text


@pytest.mark.parametrize(
    "said",
    [
        "plain {}",
        "pa\0rted {}",
        "split\n{}",
        "quoted %27{}%27",
    ],
)
@pytest.mark.parametrize("secret", [WRONG, 'quo"te\\back', "ünïcode wörd", "two  blanks"])
def test_errors_are_told_without_secrets(said: str, secret: str) -> None:
    forms = {secret, quote(secret), quote_plus(secret), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    forms |= {"\0".join(secret), secret.replace(" ", "\n")}
    for form in forms:
        text = describe(ValueError(said.format(form)), secret, "the longer " + secret)
        assert "***" in text, form
        assert not any(word in text for word in secret.split() if len(word) > 3), text


def test_the_longer_of_two_secrets_goes_first() -> None:
    assert describe(ValueError("abc-def"), "abc", "abc-def") == "***"
