"""docs/nats-cli.md, run command by command with the real `nats`; and what an operator may do with it by hand.

`CUSCUTA_WRITE_DOCS=1` writes the page's outputs anew.
"""

import asyncio
import os
import re
import shlex
import subprocess
from itertools import count
from pathlib import Path

import pytest

from cuscuta import subjects
from cuscuta.model import DeadChunk
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from cuscuta.uids import new_uid
from tests.conftest import MakeHouse
from tests.support import checks, users
from tests.support.house import House
from tests.support.process import clean_env
from tests.support.tools import find, needs
from tests.support.wait import until

PAGE = Path(__file__).parents[2] / "docs" / "nats-cli.md"
NATS = find("nats")
BLOCK = re.compile(r"```console\n(.*?)```", re.S)
pytestmark = needs("nats", "go install github.com/nats-io/natscli/nats@v0.5.0")


async def nats(h: House, user: str, *words: str, code: int = 0) -> str:
    assert NATS
    login = ["-s", h.nats.url, "--user", user, "--password", users.password(user), "--inbox-prefix", f"_INBOX.{user}"]
    env = {**clean_env(), "HOME": str(h.folder), "COLUMNS": "160"}
    done = await asyncio.to_thread(
        subprocess.run,
        [NATS, *login, *words],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == code, f"nats {' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def shape(line: str) -> str:
    """A line without what differs from run to run: ids, numbers, units of time and size, the widths of tables."""
    line = re.sub(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}(\.[0-9]+)?( \+0000 UTC|Z)?", "T", line)
    line = re.sub(r"\b[0-9a-z]{24,64}\b|vm-[0-9a-z-]+|\bhost-[0-9a-z-]+", "U", line)
    line = re.sub(r"[0-9]+(\.[0-9]+)?(ns|µs|ms|s|m|h| ?[KM]?i?B)?\b", "0", line)
    line = re.sub(r"[─━═╭╮╰╯├┤┬┴┼]+", "-", line)
    return re.sub(r"\s+", " ", re.sub(r"0([:hms .-]*0)+", "0", line)).strip()


async def prepared(make_house: MakeHouse) -> tuple[House, dict[str, str]]:
    h = await make_house(presence_ttl_s="600")  # the worker that is killed is shown for so long
    await h.upstream(accounts=2, latency_ms=200)
    await h.entry()
    await h.accounts(2)
    await h.catalogue(8)
    uid = await h.submit("player 1", key="lane")
    await h.submit("player 2", key="lane")
    worker = await h.worker(seats="1")
    await h.done(uid, 1)
    worker.kill()
    bus = await h.bus()
    dead = new_uid(bus.clock.wall())
    await bus.bury(DeadChunk(dead, Span(4, 6), "KeyError: 'score'", 5, bus.clock.wall(), "vm-1-a"))
    return h, {"uid": uid, "dead": dead}


async def test_every_command_of_the_page_shows_what_the_page_shows(make_house: MakeHouse) -> None:
    h, names = await prepared(make_house)
    text = PAGE.read_text()
    blocks = BLOCK.findall(text)
    assert len(blocks) >= 8
    for block in blocks:
        shown: list[str] = []
        for part in re.split(r"^(?=\$ )", block, flags=re.M)[1:]:
            command, _, expected = part.partition("\n")
            words = shlex.split(re.sub(r"<(uid|dead)>", lambda m: names[m[1]], command))[2:]
            output = await nats(h, "inspector", *words)
            assert output.strip(), command
            if os.environ.get("CUSCUTA_WRITE_DOCS"):
                lines = [line.rstrip() for line in output.strip().splitlines()]
                shown += [command, *(line for line in lines if line), ""]
                continue
            there = {shape(line) for line in output.splitlines()}
            missing = [line for line in expected.splitlines() if line.strip() and shape(line) not in there]
            assert not missing, f"{command}\nthe page shows {missing}\nreally\n{output}"
            assert expected.strip(), f"{command}: the page shows nothing"
        if shown:
            text = text.replace(block, "\n".join(shown).rstrip() + "\n")
    if os.environ.get("CUSCUTA_WRITE_DOCS"):
        PAGE.write_text(text)


async def test_events_are_seen_live(make_house: MakeHouse) -> None:
    h, _ = await prepared(make_house)
    watching = asyncio.create_task(nats(h, "inspector", "sub", "cuscuta.event.>", "--count", "1", "--raw"))
    numbers = count()

    async def seen() -> bool:
        if not watching.done():
            await h.submit(f"listener {next(numbers)}")  # each in a lane of its own
        return watching.done()

    await until(seen, 20, "an event was seen", 0.5)
    assert '"what":"admitted"' in await watching


async def test_the_inspector_changes_nothing(make_house: MakeHouse) -> None:
    h, names = await prepared(make_house)
    subject = subjects.chunks_of(names["uid"])
    for words in (
        ("stream", "purge", "CUSCUTA_WORK", "--subject", subject, "-f"),
        ("consumer", "rm", "CUSCUTA_WORK", subjects.job_consumer(names["uid"]), "-f"),
        ("kv", "del", "cuscuta_active", names["uid"], "-f"),
        ("pub", "-J", subjects.chunk(ChunkName(names["uid"], Span(0, 1), 9)), "{}"),
    ):
        await nats(h, "inspector", *words, "--timeout", "1s", code=1)
    assert await (await h.bus()).work.queued(names["uid"])
    log = h.nats.folder / "nats.log"
    log.write_text(log.read_text().replace("Violation", "refused, as it should be"))


@pytest.mark.parametrize("repair", ["consumer", "purge", "message", "active"])
async def test_repairs_by_hand_lose_nothing(make_house: MakeHouse, repair: str) -> None:
    h, names = await prepared(make_house)
    await h.reaper()
    bus, uid = await h.bus(), names["uid"]
    found = await bus.work.next_chunk(uid)
    assert found
    await nats(h, "tests", *{
        "consumer": ("consumer", "rm", "CUSCUTA_WORK", subjects.job_consumer(uid), "-f"),
        "purge": ("stream", "purge", "CUSCUTA_WORK", "--subject", subjects.chunks_of(uid), "-f"),
        "message": ("stream", "rmm", "CUSCUTA_WORK", str(found.sequence), "-f"),
        "active": ("kv", "del", "cuscuta_active", uid, "-f"),
    }[repair])  # fmt: skip
    await h.worker(seats="2")
    await h.ended(uid)
    await checks.complete_values(h, uid, "player 1", [f"song-{n}" for n in range(8)])
