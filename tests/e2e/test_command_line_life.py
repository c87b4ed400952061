"""The life of a job on the command line: schedules, events, chains, downloads."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq

from tests.conftest import MakeHouse
from tests.e2e.test_command_line import fleet, run


async def test_schedules(make_house: MakeHouse) -> None:
    _, env = await fleet(make_house)
    run("catalogues", "put", "songs", "-", env=env, text="a\nb\n")
    added = run(
        "schedules", "add", "0 9 * * 1-5", "player 1", "songs", "--time-zone", "Europe/Berlin", "--json", env=env
    )
    uid = json.loads(added)["id"]
    assert len(json.loads(added)["next"]) == 5
    assert json.loads(added)["job"] == {"target": "player 1", "catalogue": "songs"}
    assert "Europe/Berlin" in run("schedules", "show", uid, env=env)
    listed = run("schedules", "list", env=env)
    assert uid in listed
    assert "runs" in listed
    assert "paused" in run("schedules", "pause", uid, env=env)
    assert json.loads(run("schedules", "resume", uid, "--json", env=env))["paused"] is False
    run("schedules", "remove", uid, env=env)
    assert uid not in run("schedules", "list", env=env)
    assert "Send cron" in run("schedules", "add", "sometimes", "player 1", "songs", env=env, code=1)
    assert "no schedule" in run("schedules", "show", uid, env=env, code=1)


async def test_events_chains_and_downloads(make_house: MakeHouse, tmp_path: Path) -> None:
    h, env = await fleet(make_house)
    await h.accounts(2)
    run("catalogues", "put", "songs", "-", env=env, text="\n".join(f"s{n}" for n in range(30)))
    first = run("jobs", "submit", "player 1", "songs", env=env).strip()
    second = run("jobs", "submit", "player 2", "songs", "--after", first, env=env).strip()
    told = [json.loads(line) for line in run("events", second, "--json", env=env).splitlines()]
    assert [one["what"] for one in told if "what" in one] == ["admitted", "completed"]
    assert "completed" in run("events", first, env=env)
    graph = run("jobs", "graph", second, env=env)
    assert graph.index(first) < graph.rindex(first)  # as a job, and as what the other one runs after
    lines = run("jobs", "results", second, "--follow", env=env).splitlines()
    assert sorted(line.split("\t")[0] for line in lines) == sorted(f"s{n}" for n in range(30))
    table, frame = tmp_path / "out.csv", tmp_path / "out.parquet"
    run("jobs", "results", second, "-o", str(table), env=env)
    with table.open(newline="") as file:
        values = [int(row["value"]) for row in csv.DictReader(file)]
    assert len(values) == 30
    run("jobs", "results", second, "-o", str(frame), env=env)
    assert pq.read_table(frame).column("value").to_pylist() == values
    assert (
        run("jobs", "results", second, "--format", "csv", "-o", "-", env=env).splitlines()[0] == "index,id,value,error"
    )
    assert "Use one of them" in run("jobs", "results", second, "--follow", "-o", str(table), env=env, code=2)
    assert "there is no job" in run("jobs", "results", "nobody", "-o", str(tmp_path / "none.csv"), env=env, code=1)
    assert not (tmp_path / "none.csv").exists()
    assert "there is no job" in run("events", "nobody", env=env, code=1)


def test_a_fresh_webhook_secret_is_one_that_the_settings_take() -> None:
    secret = run("webhook-secret").strip()
    run("check-config", env={"CUSCUTA_WEBHOOK_SECRETS": secret, "CUSCUTA_WEBHOOK_URL": "https://example.com/"})
    out = run("check-config", env={"CUSCUTA_WEBHOOK_URL": "https://example.com/"}, code=2)
    assert "always signed" in out
    assert "no key" in run("check-config", env={"CUSCUTA_WEBHOOK_SECRETS": "secret"}, code=2)
