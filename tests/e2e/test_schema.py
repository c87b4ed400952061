"""Schemathesis: requests made up from the API's own description, good and bad, for a minute; never a 5xx.

`CUSCUTA_FUZZ_S=600` makes it ten.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import MakeHouse
from tests.support.process import clean_env

SECONDS = int(os.environ.get("CUSCUTA_FUZZ_S", "60"))
# Streams do not end by themselves; tests/e2e/test_events.py sends them bad input.
ENDLESS = r"/(events|changes)$"


@pytest.mark.timeout(SECONDS + 240)
async def test_nothing_that_the_description_allows_or_forbids_is_a_fault_of_ours(make_house: MakeHouse) -> None:
    h = await make_house(upstream="noop")
    entry = await h.entry()
    await h.reaper()
    await h.worker()
    await h.accounts(2)
    await h.catalogue(20)
    await h.submit()
    url = str(h.http.base_url).rstrip("/")
    command = [
        str(Path(sys.executable).parent / "schemathesis"), "run", f"{url}/openapi.json",
        "--header", f"Authorization: {h.http.headers['authorization']}",
        "--checks", "not_a_server_error", "--exclude-path-regex", ENDLESS, "--workers", "1",
        "--max-time", str(SECONDS), "--max-examples", "1000", "--continue-on-failure", "--request-timeout", "40",
        "--no-color", "--warnings", "off", "--no-shrink",
    ]  # fmt: skip
    run = h.spawn("schemathesis", command, clean_env())
    code = await asyncio.to_thread(run.popen.wait, SECONDS + 180)
    text = run.text()
    assert code == 0, text[-6000:]
    assert "Test cases" in text or "passed" in text, text[-2000:]
    assert (await h.http.get("/readyz")).status_code == 200
    assert "a fault in a route" not in entry.text()
    assert "Traceback" not in entry.text()
