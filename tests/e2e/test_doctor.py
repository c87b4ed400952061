"""`cuscuta doctor`: what an operator should know before he trusts a deployment."""

import asyncio
import json
import subprocess
import sys

from cuscuta.db.vault import new_key
from tests.conftest import MakeHouse
from tests.e2e.test_command_line import run
from tests.support.house import House
from tests.support.process import clean_env


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
    assert findings["replication"][0] == "doubtful"
    assert "CUSCUTA_REPLICAS=3" in findings["replication"][1]
    assert findings["NATS syncing"][0] == "doubtful"
    assert "--nats-monitor" in findings["NATS syncing"][1]
    await h.accounts(1)
    await h.worker()
    findings = await found(h, "--nats-monitor", monitor(h))
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
