"""Nothing of ours plays the upstream: Datasette serves real public tables, and every row is asked for."""

import json
import os
import sqlite3
import sys
from pathlib import Path

import httpx

from cuscuta.embedded.postgres import free_port
from cuscuta.spans import Span
from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.process import clean_env
from tests.support.wait import until

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


async def test_every_row_of_two_iso_tables(make_house: MakeHouse) -> None:
    """ISO 639-3 languages and ISO 3166 countries through the example adapter equal the tables, row by row."""
    h = await make_house(upstream=str(EXAMPLES / "datasette.toml"))
    made = h.spawn("tables", [sys.executable, str(EXAMPLES / "iso_tables.py"), str(h.folder)], clean_env())
    assert made.popen.wait(60) == 0, made.text()
    port = free_port()
    command = [sys.executable, "-m", "datasette", "serve", str(h.folder / "iso.db"), "-p", str(port)]
    datasette = h.spawn("datasette", command, {**clean_env(), "HOME": os.environ.get("HOME", "/")})
    h.upstream_url = f"http://127.0.0.1:{port}"

    async def serves() -> bool:
        assert datasette.running(), datasette.text()
        try:
            return (await h.http.get(f"{h.upstream_url}/-/versions.json")).status_code == 200
        except httpx.TransportError:
            return False

    await until(serves, 30, "Datasette serves")
    await h.entry()
    await h.reaper()
    for _ in range(2):
        await h.worker(seats="2")
    await h.accounts(4)
    await h.seats(4)
    with sqlite3.connect(h.folder / "iso.db") as database:
        database.row_factory = sqlite3.Row
        tables = {
            table: [dict(row) for row in database.execute(f"SELECT * FROM {table} ORDER BY alpha_3")]
            for table in ("languages", "countries")
        }
    database.close()
    assert len(tables["languages"]) > 7_800
    assert len(tables["countries"]) > 240
    uids = {}
    for table in tables:
        keys = json.loads((h.folder / f"{table}.json").read_text())
        await h.catalogue(keys, table)
        uids[table] = await h.submit(table, table)
    for table, rows in tables.items():
        job = await h.ended(uids[table], 150)
        assert job["status"] == "completed", job
        results = await h.results(uids[table])
        assert [r["value"] for r in results] == rows
        assert [r["id"] for r in results] == [row["alpha_3"] for row in rows]
        await checks.stored_once(h, uids[table], Span(0, len(rows)))
    await checks.nothing_left(h)
