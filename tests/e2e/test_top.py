"""`cuscuta top` in a terminal, once and as JSON; and what the shell completes."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import MakeHouse
from tests.e2e.test_command_line import run
from tests.support.house import House
from tests.support.process import clean_env


async def watched(make_house: MakeHouse) -> House:
    h = await make_house(name="Garden")
    await h.upstream(accounts=2, latency_ms=200)
    await h.entry()
    await h.accounts(2)
    await h.catalogue(100)
    await h.submit("[bold]player 1")
    await h.submit("player 2", key="lane")
    await h.submit("player 3", key="lane")
    await h.worker(seats="2")
    await h.seats(2)
    return h


async def test_once_and_as_json(make_house: MakeHouse) -> None:
    h = await watched(make_house)
    shown = await asyncio.to_thread(run, "top", "--once", env=h.cli)
    assert "Garden" in shown
    assert "2 running   1 waiting" in shown
    assert "[bold]player 1" in shown  # a name, not a style
    assert "player 3" in shown
    told = json.loads(await asyncio.to_thread(run, "top", "--json", env=h.cli))
    assert (told["name"], told["running_total"], told["waiting_total"]) == ("Garden", 2, 1)


def live(env: dict[str, str], draws: int) -> tuple[bytes, int]:
    """What stands on the terminal until it was drawn so often, and how Ctrl-C ends it."""
    ours, theirs = os.openpty()
    process = subprocess.Popen([sys.executable, "-m", "cuscuta", "top"], stdin=theirs, stdout=theirs, env=env)
    os.close(theirs)
    text, stopped = b"", False
    try:
        while part := os.read(ours, 65536):
            text += part
            if not stopped and text.count(b"Garden") >= draws:
                stopped = True
                process.send_signal(signal.SIGINT)
    except OSError:
        pass  # so Linux says that nobody writes to it any more
    finally:
        os.close(ours)
    return text, process.wait(10)


async def test_live_until_ctrl_c(make_house: MakeHouse) -> None:
    h = await watched(make_house)
    env = {**clean_env(), **h.cli, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    text, code = await asyncio.to_thread(live, env, 3)  # drawn anew each second
    assert code == 130
    assert b"player 2" in text
    assert b"Traceback" not in text


@pytest.mark.parametrize(
    ("shell", "sign"), [("bash", "_cuscuta_completion"), ("zsh", "#compdef"), ("fish", "function")]
)
def test_shells_complete(shell: str, sign: str) -> None:
    assert sign in run(env={"_CUSCUTA_COMPLETE": f"{shell}_source"})
    if shell == "bash":
        words = {"_CUSCUTA_COMPLETE": "bash_complete", "COMP_WORDS": "cuscuta jobs re", "COMP_CWORD": "2"}
        assert {"plain,results", "plain,retry"} <= set(run(env=words).split())
