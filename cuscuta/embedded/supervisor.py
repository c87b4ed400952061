"""Runs Cuscuta's parts as processes: prefixed logs, restart of what dies, an orderly stop."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

STOP_S = 20.0  # a part gets this long to stop; the worker's own grace is 15 s
_PARTS = (b"entry.run", b"worker.run", b"reaper.run", b"worker.upstream.")
_RESTART_S = (0.2, 5.0)  # first and longest wait before a part is started again

Say = Callable[[str, str], None]  # (part, line)


class Part:
    """One process that is kept running."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str], say: Say) -> None:
        self.name, self._argv, self._env, self._say = name, list(argv), dict(env), say
        self.process: asyncio.subprocess.Process | None = None
        self._stopping: bool = False

    async def run(self) -> None:
        """Keep it running until `stop`."""
        wait = _RESTART_S[0]
        while True:
            began = time.monotonic()
            code = await self._once()
            if self._stopping:
                return
            if code == 2:  # bad settings: it said why, and trying again would not help
                raise RuntimeError(f"{self.name} refused to start")
            wait = _RESTART_S[0] if time.monotonic() - began > 10 else min(_RESTART_S[1], wait * 2)
            self._say(self.name, f"died (exit code {code}); starting it again in {wait:.1f} s")
            await asyncio.sleep(wait)
            if self._ending():
                return

    def _ending(self) -> bool:
        return self._stopping

    async def _once(self) -> int:
        self.process = await asyncio.create_subprocess_exec(
            *self._argv,
            env=self._env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the supervisor, which stops its parts in order
            limit=1 << 20,
        )
        assert self.process.stdout  # noqa: S101 - asked for above
        while True:
            try:
                line = await self.process.stdout.readline()
            except ValueError:
                continue  # a line longer than the limit
            if not line:
                break
            self._say(self.name, line.decode(errors="replace").rstrip())
        return await self.process.wait()

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL for what does not stop in time."""
        self._stopping = True
        process = self.process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            self._say(self.name, f"did not stop within {STOP_S:.0f} s; killed")
            process.kill()
            await process.wait()

    def kill(self) -> None:
        """kill -9, as a crash would be."""
        if self.process and self.process.returncode is None:
            self.process.kill()


def module(name: str, *args: str) -> list[str]:
    """The command line of a part by its module."""
    return [sys.executable, "-m", name, *args]


def remember(folder: Path, parts: Sequence[Part]) -> None:
    """Write the parts' pids down, for `end_leftovers` after a kill -9 of the supervisor."""
    pids = [part.process.pid for part in parts if part.process]
    (folder / "parts.json").write_text(json.dumps(pids))


def end_leftovers(folder: Path) -> None:
    """End parts that an earlier supervisor over the same folder left running."""
    with contextlib.suppress(OSError, ValueError):
        for pid in json.loads((folder / "parts.json").read_text()):
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                if any(name in line for name in _PARTS):  # else the number has gone to somebody else's process
                    os.kill(pid, signal.SIGTERM)
        (folder / "parts.json").unlink()
