"""`cuscuta doctor`: what an operator should know before he trusts a deployment."""

import asyncio
import json
import re
import subprocess
import sys
from datetime import timedelta

from msgspec.structs import replace

from cuscuta.codec import encode
from cuscuta.db.vault import new_key
from tests.conftest import MakeHouse
from tests.e2e.test_command_line import run
from tests.support.house import House
from tests.support.process import clean_env
from tests.support.wait import until


def monitor(h: House) -> str:
    """The monitoring port of the house's NATS."""
    ports = json.loads(next(h.nats.folder.glob("*.ports")).read_text())
    return str(ports["monitoring"][0])


async def found(h: House, *more: str, code: int = 0) -> dict[str, tuple[str, str]]:
    """(state, detail and fix) of each finding."""
    command = [sys.executable, "-m", "cuscuta", "doctor", "--json", *more]
    env = {**clean_env(), **h.cli}
    done = await asyncio.to_thread(
        lambda: subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    )
    assert done.returncode == code, done.stderr
    return {f["what"]: (f["state"], f"{f['detail']} {f['fix']}") for f in json.loads(done.stdout)}


async def test_one_copy_and_relaxed_syncing_are_warned_of(make_house: MakeHouse) -> None:
    h = await make_house(upstream="noop")
    await h.entry()
    findings = await found(h, code=1)  # no account, no worker: nothing would ever be done
    assert findings["accounts"][0] == findings["workers"][0] == "bad"
    assert findings["streams"][0] == findings["PostgreSQL"][0] == findings["REST API"][0] == "good"
    assert findings["migrations"][0] == findings["clocks"][0] == "good"
    assert findings["reaper"] == ("bad", findings["reaper"][1])
    assert "cuscuta-reaper" in findings["reaper"][1]
    assert "upstream" not in findings  # nobody is there who could look
    assert findings["replication"][0] == "doubtful"
    assert "CUSCUTA_REPLICAS=3" in findings["replication"][1]
    assert findings["NATS syncing"][0] == "doubtful"
    assert "--nats-monitor" in findings["NATS syncing"][1]
    await h.accounts(1)
    await h.worker()
    await h.reaper()
    findings = await found(h, "--nats-monitor", monitor(h))
    assert findings["reaper"][0] == findings["upstream"][0] == "good"
    assert findings["NATS syncing"][0] == "doubtful"
    assert "every 120 s" in findings["NATS syncing"][1]
    assert "sync_interval: always" in findings["NATS syncing"][1]
    h.nats._sync = "always"
    h.nats.stop()
    h.nats.start()
    await h.ready(str(h.http.base_url).rstrip("/"), h.procs[0])
    assert (await found(h, "--nats-monitor", monitor(h)))["NATS syncing"][0] == "good"
    shown = await asyncio.to_thread(run, "doctor", env=h.cli)
    assert "doubtful  replication:" in shown
    refused = await asyncio.to_thread(run, "doctor", "--nats-monitor", "http://127.0.0.1:1", env=h.cli, code=1)
    assert "does not answer" in refused


async def test_who_asks_nobody_is_warned_of(make_house: MakeHouse) -> None:
    """No token, no user at NATS, old keys; all told, none shown."""
    h = await make_house(upstream="noop", insecure="true")
    old = h.key
    h.extra_env["CUSCUTA_SECRET_KEYS"] = f"{new_key()},{old}"
    url = h.nats.url.replace("nats://", "nats://tests:password-of-tests@")
    h.extra_env |= {"CUSCUTA_NATS_USER": "", "CUSCUTA_NATS_PASSWORD": ""}
    await h.entry(nats_url=url, nats_user="", nats_password="")
    findings = await found(h, code=1)
    assert findings["REST API"][0] == findings["secret keys"][0] == "doubtful"
    assert findings["NATS access"][0] == "good"  # the URL has a user
    assert old not in str(findings)
    assert "password-of-tests" not in str(findings)


async def test_what_is_wrong_is_found(make_house: MakeHouse) -> None:
    """Streams changed by hand, a migration that was not run, clocks apart, an upstream that is not there, no reaper."""
    h = await make_house()
    await h.upstream(accounts=1)
    await h.entry()
    reaper = await h.reaper()
    worker = await h.worker(seats="1")
    await h.accounts(1)
    await h.seats(1)
    findings = await found(h)
    assert {f[0] for f in findings.values()} <= {"good", "doubtful"}, findings
    assert "127.0.0.1" not in findings["upstream"][1]

    bus = await h.bus()
    standing = (await bus.broker.api("STREAM.INFO.CUSCUTA_DEAD"))["config"]
    await bus.broker.api("STREAM.UPDATE.CUSCUTA_DEAD", {**standing, "max_age": standing["max_age"] * 2})
    worker.kill()
    reaper.kill()
    h.upstream_url = "http://127.0.0.1:1"
    await h.worker(seats="1")
    await h.sql("DELETE FROM migration WHERE name = (SELECT max(name) FROM migration)")

    async def told() -> dict[str, tuple[str, str]]:
        for presence in await bus.workers():
            at = bus.clock.wall() - timedelta(minutes=10)
            late = replace(presence, worker="late", at=at, version="0.0.9", upstream="")
            await bus.worker_bucket.put("late", encode(late))
        seen = await found(h, code=1)
        whole = seen["reaper"][0] == "bad" and seen.get("upstream", ("", ""))[0] == "bad" and "versions" in seen
        return seen if whole and seen["clocks"][0] == "doubtful" else {}

    findings = await until(told, 30, "it is noticed")
    assert findings["streams"][0] == "bad"
    assert "CUSCUTA_DEAD max_age" in findings["streams"][1]
    assert findings["migrations"][0] == "bad"
    assert ".sql" in findings["migrations"][1]
    assert findings["clocks"][0] == "doubtful"
    assert re.search(r"worker late and NATS: (59|60)\d s", findings["clocks"][1]), findings
    assert findings["versions"][0] == "doubtful"
    assert "ConnectionRefusedError" in findings["upstream"][1]
    assert "CUSCUTA_UPSTREAM_URL" in findings["upstream"][1]
