"""How long a held chunk waits for its next holder: after kill -9 and after SIGTERM, with production's ack-wait."""

import statistics
from pathlib import Path

from cuscuta.embedded.postgres import Postgres
from tests.bench.common import house
from tests.support.house import House
from tests.support.process import Proc

ACK_WAIT_S = 10.0


async def run(folder: Path, postgres: Postgres, rounds: int | None, quick: bool) -> dict[str, object]:
    rounds = 1 if quick else rounds or 3
    killed, stopped = [], []
    env = {"ack_wait_s": "3", "item_timeout_s": "2", "mend_after_s": "2"} if quick else {}
    ack_wait = 3.0 if quick else ACK_WAIT_S
    async with house(folder, postgres, "handover", **env) as h:
        await h.upstream(accounts=40, latency_ms=100)
        await h.entry()
        await h.reaper()
        await h.accounts(40)
        await h.catalogue(60)
        for n in range(rounds):
            killed.append(await _once(h, f"killed {n}", kill=True))
            stopped.append(await _once(h, f"stopped {n}", kill=False))
    return {
        "bench": "handover",
        "rounds": rounds,
        "ack_wait_s": ack_wait,
        "after_kill_s": round(statistics.median(killed), 3),
        "after_sigterm_s": round(statistics.median(stopped), 3),
        "after_kill_worst_s": round(max(killed), 3),
        "after_sigterm_worst_s": round(max(stopped), 3),
    }


async def _once(h: House, target: str, kill: bool) -> float:
    """One worker holds the whole job as one chunk; a second one waits. Seconds from the end to the next poll."""
    first = await h.worker(seats="1")
    await h.seats(1)
    uid = await h.submit(target, policy="single")
    await h.done(uid, 10)
    second = await h.worker(seats="1")
    await h.seats(2)
    moment = (await h.world())["now"]
    before = {call[0] for call in await _calls(h, target)}
    if kill:
        first.kill()
    else:
        first.stop()
    await h.ended(uid, timeout=120)
    later = [call[3] for call in await _calls(h, target) if call[0] not in before]
    await _end(second)
    return float(min(later)) - float(moment)


async def _calls(h: House, target: str) -> list[list[str]]:
    return [call for call in (await h.world())["calls"] if call[1] == target]


async def _end(worker: Proc) -> None:
    worker.stop()
