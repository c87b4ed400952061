"""`cuscuta` as its users type it: real processes, real output."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from cuscuta.embedded.postgres import free_port
from tests.conftest import MakeHouse
from tests.support.house import House
from tests.support.process import Proc, clean_env
from tests.support.wait import until


def run(
    *args: str, env: dict[str, str] | None = None, text: str | None = None, code: int = 0, timeout: float = 120
) -> Any:
    """The command's output; it must end with this code and never show a traceback."""
    command = [sys.executable, "-m", "cuscuta", *args]
    done = subprocess.run(command, env={**clean_env(), **(env or {})}, input=text, capture_output=True, text=True,
                          timeout=timeout, check=False)  # fmt: skip
    assert done.returncode == code, f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done.stdout if code == 0 else done.stderr


async def fleet(make_house: MakeHouse) -> tuple[House, dict[str, str]]:
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=5)
    await h.entry()
    await h.reaper()
    await h.worker(seats="2")
    return h, h.cli


async def test_accounts_catalogues_and_jobs(make_house: MakeHouse, tmp_path: Path) -> None:
    _, env = await fleet(make_house)
    file = tmp_path / "accounts.txt"
    file.write_text("account-1@example.com:password-1\naccount-2@example.com:password-2\n")
    assert "2 added, 0 changed" in run("accounts", "import", str(file), env=env)
    listed = json.loads(run("accounts", "list", "--json", env=env))
    assert [a["email"] for a in listed] == ["account-1@example.com", "account-2@example.com"]
    assert "account-1@example.com" in run("accounts", "list", env=env)
    number = str(listed[0]["id"])
    assert "0.5" in run("accounts", "rate", number, "0.5", env=env)
    assert "0.5" in run("accounts", "show", number, env=env)
    assert json.loads(run("accounts", "release", number, "--json", env=env))["id"] == listed[0]["id"]
    assert "songs: 30 items" in run(
        "catalogues", "put", "songs", "-", env=env, text="\n".join(f"s{n}" for n in range(30))
    )
    assert json.loads(run("catalogues", "list", "--json", env=env))[0]["items"] == 30
    assert "s7" in run("catalogues", "show", "songs", env=env)
    uid = run("jobs", "submit", "player 1", "songs", "--label", "team=red", env=env).strip()
    run("jobs", "watch", uid, env=env)
    assert "result for every item" in run("jobs", "retry", uid, env=env, code=1)
    assert "Name a job or a filter" in run("jobs", "cancel", env=env, code=2)
    assert "cancelled 0 jobs" in run("jobs", "cancel", "--label", "team=red", env=env)  # it has ended
    assert "completed" in run("jobs", "show", uid, env=env)
    assert json.loads(run("jobs", "show", uid, "--json", env=env))["progress"]["done"] == 30
    assert uid in run("jobs", "list", "--label", "team=red", "--status", "completed", env=env)
    lines = run("jobs", "results", uid, env=env).splitlines()
    assert len(lines) == 30
    assert lines[0].startswith("s0\t")
    assert json.loads(run("jobs", "results", uid, "--json", env=env).splitlines()[29])["id"] == "s29"
    watched = run("jobs", "submit", "player 2", "songs", "--watch", "--json", env=env)
    assert json.loads(watched)["status"] == "completed"
    run("jobs", "submit", "unknown", "songs", "--watch", env=env, code=1)
    waiting = [run("jobs", "submit", "p", "songs", "--key", "k", env=env).strip() for _ in range(2)]
    assert run("jobs", "cancel", waiting[1], env=env).split()[3] in ("cancelled", "completed")
    assert "is in use" in run("accounts", "remove", number, "--yes", env=env, code=1)
    run("accounts", "import", "-", env=env, text="spare@example.com:x\n")
    spare = json.loads(run("accounts", "list", "--json", env=env))[-1]
    assert "removed" in run("accounts", "remove", str(spare["id"]), "--yes", env=env)
    assert "password-" not in run("accounts", "list", "--json", env=env)


async def test_errors_are_clear_and_without_traceback(make_house: MakeHouse) -> None:
    _, env = await fleet(make_house)
    assert "PUT /catalogues" in run("jobs", "submit", "p", "none", env=env, code=1)
    assert "there is no job" in run("jobs", "show", "nobody", env=env, code=1)
    assert "cuscuta up" in run("jobs", "list", env={"CUSCUTA_URL": f"http://127.0.0.1:{free_port()}"}, code=1)
    assert "cuscuta up" in run("jobs", "results", "x", env={"CUSCUTA_URL": f"http://127.0.0.1:{free_port()}"}, code=1)
    assert "KEY=VALUE" in run("jobs", "list", "--label", "x", env=env, code=2)
    assert "no such option" in run("jobs", "list", "--statsu", "x", env=env, code=2).lower()
    run("accounts", "remove", "1", env=env, text="n\n", code=130)


def test_check_config_names_every_fault() -> None:
    assert "in order" in run("check-config")
    out = run("check-config", env={"CUSCUTA_SEETS": "1", "CUSCUTA_SEATS": "x"}, code=2)
    assert "Did you mean seats?" in out
    assert "CUSCUTA_SEATS" in out
    assert len(run("secret-key").strip()) == 44


@pytest.mark.parametrize("part", ["entry", "worker", "reaper"])
def test_a_part_refuses_bad_settings_at_once(part: str) -> None:
    """All faults, exit code 2, no traceback (FIELD 4)."""
    env = {**clean_env(), "CUSCUTA_HEARTBEAT_S": "10", "CUSCUTA_PRESENCE_TTL_S": "10"}
    done = subprocess.run(
        [sys.executable, "-m", f"{part}.run"], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert "a live worker would be taken for gone" in done.stderr
    assert "Traceback" not in done.stderr
    env = clean_env()
    done = subprocess.run(
        [sys.executable, "-m", f"{part}.run"], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert "CUSCUTA_POSTGRES_URL" in done.stderr
    assert "CUSCUTA_SECRET_KEYS" in done.stderr


def test_the_demo_reaches_its_ratio() -> None:
    """The whole job, nothing missing, every item polled once; the ratio's bound is generous, as it is timed."""
    report = json.loads(run("demo", "--json", "--items", "400", "--latency-ms", "20").strip().splitlines()[-1])
    assert set(report) == {"items", "seconds", "ideal_seconds", "ratio", "single_seconds", "polls", "missing"}
    assert (report["items"], report["missing"]) == (400, 0)
    assert 400 <= report["polls"] <= 412  # hedges are at most 3 %
    assert report["single_seconds"] == 8.0
    assert report["ideal_seconds"] == 1.2
    assert report["ratio"] == pytest.approx(report["seconds"] / 1.2, abs=0.01)
    assert report["ratio"] < 3  # the benchmark `policies` says how good it is; a loaded machine must not fail this


def test_the_demo_shows_a_table_and_one_line() -> None:
    out = run("demo", "--items", "60", "--accounts", "3", "--workers", "1", "--seats", "3", "--latency-ms", "5")
    assert "60 items in" in out
    assert "one account alone" in out
    assert "song-0001" in out
    assert "--kill" in run("demo", "--kill", "--workers", "1", code=2)


def test_the_demo_survives_a_kill() -> None:
    command = [sys.executable, "-m", "cuscuta", "demo", "--json", "--kill", "--items", "600"]
    done = subprocess.run(command, env=clean_env(), capture_output=True, text=True, timeout=150, check=True)
    assert "kill -9 of worker-1" in done.stderr
    report = json.loads(done.stdout.strip().splitlines()[-1])
    assert report["missing"] == 0
    assert report["items"] == 600
    assert 600 <= report["polls"] < 660  # only what the dead worker held and had not stored


async def test_up_keeps_its_data_restarts_what_dies_and_stops_cleanly(folder: Path) -> None:
    """`cuscuta up`: ready, a killed worker and a killed nats-server come back, Ctrl-C ends all of it."""
    port, data = free_port(), folder / "data"
    token = data / "api-token"
    env = {**clean_env(), "CUSCUTA_UPSTREAM": "noop", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "cuscuta", "up", "--data", str(data), "--port", str(port), "--workers", "1"]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as http:

        async def up(name: str) -> Proc:
            proc = Proc(name, command, env, folder)
            await until(lambda: said(proc), 60, "it says where the API is")
            http.headers["authorization"] = f"Bearer {token.read_text()}"
            return proc

        async def said(proc: Proc) -> bool:
            assert proc.running(), proc.text()
            return "REST API   http" in proc.text()

        async def finish(uid: str) -> bool:
            try:
                return bool((await http.get(f"/jobs/{uid}")).json().get("status") == "completed")
            except (httpx.TransportError, ValueError):
                return False

        first = await up("first")
        assert (await http.put("/catalogues/songs", json={"items": ["a", "b"]})).status_code == 200
        assert (await http.post("/accounts", json={"email": "a@x", "password": "p"})).status_code == 200
        uid = (await http.post("/jobs", json={"target": "t", "catalogue": "songs"})).json()["uid"]
        await until(lambda: finish(uid), 30, "a job completes")
        parts = json.loads((data / "parts.json").read_text())
        children = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in parts}
        os.kill(next(pid for pid, line in children.items() if "worker.run" in line), signal.SIGKILL)
        nats = next(int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _is_nats(p, data))
        os.kill(nats, signal.SIGKILL)
        await until(lambda: healthy(http), 40, "everything is up again")
        assert "died" in first.text()
        answer = await until(lambda: accepted(http), 30, "a job is accepted")
        await until(lambda: finish(answer), 60, "a job completes after the kills")
        first.send(signal.SIGINT)
        assert first.popen.wait(40) == 130
        assert "Traceback" not in first.text()
        for pid in children:
            assert not _alive(pid)
        second = await up("second")  # over the same data
        assert (await http.get(f"/jobs/{uid}")).json()["status"] == "completed"
        assert len((await http.get("/accounts")).json()) == 1
        assert (data / "secret-key").stat().st_mode & 0o777 == 0o600
        assert token.stat().st_mode & 0o777 == 0o600
        assert first.text().count(token.read_text()) == 1
        assert token.read_text() not in second.text()
        command_line = {"CUSCUTA_URL": str(http.base_url), "CUSCUTA_TOKEN_FILE": str(token)}
        assert uid in run("jobs", "list", env=command_line)
        assert "CUSCUTA_TOKEN" in run("jobs", "list", env={"CUSCUTA_URL": str(http.base_url)}, code=1)
        elsewhere = [*command, "--port", str(free_port())]
        other = subprocess.run(elsewhere, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert other.returncode == 1
        assert "another cuscuta runs" in other.stderr
        other = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert "Choose another one with --port" in other.stderr
        second.send(signal.SIGTERM)
        assert second.popen.wait(40) == 130


async def accepted(http: httpx.AsyncClient) -> str:
    response = await http.post("/jobs", json={"target": "again", "catalogue": "songs"})
    return str(response.json()["uid"]) if response.status_code == 202 else ""


async def healthy(http: httpx.AsyncClient) -> bool:
    try:
        workers = (await http.get("/workers")).json()
        return (await http.get("/readyz")).status_code == 200 and any(w["seats"] for w in workers)
    except (httpx.TransportError, TypeError):
        return False


def _is_nats(process: Path, data: Path) -> bool:
    try:
        return "nats-server" in (line := (process / "cmdline").read_text()) and str(data) in line
    except OSError:
        return False


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]
    except OSError:
        return False
