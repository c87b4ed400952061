"""Logs show what happened and never what is secret, in both formats."""

import subprocess
import sys

import pytest

from tests.support.process import clean_env
from worker.failures import describe

PROGRAM = """
from cuscuta import logs
from cuscuta.settings import load
log = logs.set_up(load({"CUSCUTA_LOG_FORMAT": "%s"}), "cuscuta.test")

def fail(password, pairs):
    raise RuntimeError("boom")

log.info("hello", account_password="hunter2", temp_token="hunter2", items=3)
try:
    fail("hunter2", [("a@x", "hunter2")])
except RuntimeError as error:
    log.error("a fault", exc_info=error)
import logging
try:
    fail("hunter2", ["hunter2"])
except RuntimeError:
    logging.getLogger("asyncio").exception("a library's fault")
"""


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_value_of_a_secret_or_of_a_local_variable_is_logged(form: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM % form], env=clean_env(), capture_output=True, text=True,
                          timeout=30, check=True)  # fmt: skip
    said = done.stdout + done.stderr
    assert "hunter2" not in said.replace('fail("hunter2"', "").replace('"a@x", "hunter2"', "").replace(
        '["hunter2"]', ""
    )
    for word in ("hello", "a fault", "a library's fault", "boom"):
        assert word in said
    assert "***" in said


@pytest.mark.parametrize("secret", ["p w&1/ü", "hunter2", "a'b", "x"])
def test_a_secret_is_masked_however_it_is_written(secret: str) -> None:
    from urllib.parse import quote, quote_plus

    for form in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret)):
        assert form not in describe(ValueError(f"no <{form}> here"), secret).replace("here", "").replace("no <", "")
