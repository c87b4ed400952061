"""What the three services share as processes: settings or a clear refusal, signals, one loop, exit codes."""

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from cuscuta import __version__, logs, telemetry
from cuscuta.clock import Clock, SystemClock
from cuscuta.connections import raise_limit
from cuscuta.logs import Logger
from cuscuta.settings import Settings, SettingsError, load

_BOOT = secrets.token_hex(4)
_NAME = f"{socket.gethostname()}-{os.getpid()}-{_BOOT}"


class Process:
    """The furniture of one process. `halt` is set by the first SIGTERM or SIGINT; a second one ends it at once."""

    def __init__(self, part: str, settings: Settings, log: Logger, clock: Clock) -> None:
        self.part, self.settings, self.log, self.clock = part, settings, log, clock
        self.halt = asyncio.Event()
        self.boot, self.name = _BOOT, _NAME


Main = Callable[[Process], Awaitable[None]]


def run(part: str, main: Main, needs: tuple[str, ...]) -> None:
    """Run a service's main until it ends or is told to stop. Exits 0 after a clean stop, 2 on bad settings."""
    try:
        settings = load(os.environ)
        settings.require(*needs)
    except SettingsError as error:
        for fault in error.faults:
            print(f"{part}: {fault}", file=sys.stderr)
        sys.exit(2)
    log = logs.set_up(settings, f"cuscuta.{part}")
    try:
        telemetry.set_up(f"cuscuta.{part}", __version__, _NAME, settings.name)
    except ValueError as error:
        print(f"{part}: {error}", file=sys.stderr)
        sys.exit(2)
    raise_limit()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_guarded(part, settings, log, main))
    except OSError as error:
        log.error("cannot start", cause=str(error))
        sys.exit(1)
    finally:
        telemetry.shut_down()


async def unless_halted(process: Process, work: Coroutine[Any, Any, None]) -> bool:
    """Do something that may wait for ever, unless the process is told to stop; whether it was done."""
    doing, halting = asyncio.ensure_future(work), asyncio.ensure_future(process.halt.wait())
    try:
        await asyncio.wait({doing, halting}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
            return True
        return False
    finally:
        for future in (doing, halting):
            future.cancel()
        await asyncio.wait({doing, halting})


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not made for this platform; asyncio's own loop serves as well, only slower
        return None
    return uvloop.new_event_loop


async def _guarded(part: str, settings: Settings, log: Logger, main: Main) -> None:
    process = Process(part, settings, log, SystemClock())
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if process.halt.is_set():
            os._exit(130)  # asked twice: the user means now
        log.info("stopping")
        process.halt.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    log.info("starting", version=__version__, process=process.name)
    await main(process)
    log.info("stopped")
