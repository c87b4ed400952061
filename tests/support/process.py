"""One of Cuscuta's parts, or any other program, as a real process with its log in a file."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path


class Proc:
    """A running process."""

    def __init__(self, name: str, argv: list[str], env: Mapping[str, str], folder: Path) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(argv, env=dict(env), stdout=log, stderr=log, start_new_session=True)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def running(self) -> bool:
        return self.popen.poll() is None

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        self.popen.kill()
        self.popen.wait(10)

    def stop(self, timeout: float = 30) -> tuple[int, float]:
        """SIGTERM; (exit code, seconds it took)."""
        began = time.monotonic()
        self.popen.terminate()
        code = self.popen.wait(timeout)
        return code, time.monotonic() - began

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
        return 0


def module(name: str, *args: str) -> list[str]:
    return [sys.executable, "-m", name, *args]


def clean_env() -> dict[str, str]:
    """This process's environment without any setting of Cuscuta's."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("CUSCUTA_", "OTEL_"))}
