"""Health that means something, and the small HTTP server that shows it.

Live: the loop made progress within the last seconds. Ready: the last round trip to everything needed worked.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from cuscuta import instruments, limits, telemetry
from cuscuta.clock import Clock
from cuscuta.connections import Impatient
from cuscuta.settings import Settings

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Ping = Callable[[], Awaitable[str | None]]
PING_S = 2.0
PING_LIMIT_S = 4.0  # well below what makes liveness red
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Health:
    """What a process knows of its own state. `causes` maps a part to what is wrong with it; empty means ready."""

    STALL_S = 15.0  # a loop that beats every few seconds at most is taken for stuck after this

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beat = clock.monotonic()
        self._causes: dict[str, str] = {"start": "not started yet"}
        instruments.READY.set(0)  # also of one that never gets there

    def beat(self) -> None:
        """The main loop made progress."""
        self._beat = self._clock.monotonic()

    async def beating(self, work: Awaitable[None]) -> None:
        """Wait for a part of the start that may take long; the loop turns meanwhile."""
        beats = asyncio.ensure_future(self._beats())
        try:
            await work
        finally:
            beats.cancel()

    async def _beats(self) -> None:
        while True:
            self.beat()
            await self._clock.sleep(1.0)

    async def watch(self, pings: Mapping[str, Ping]) -> None:
        """A round trip to everything needed every 2 s, for ever; a ping's answer is the cause of its failure."""

        async def look(part: str, ping: Ping) -> None:
            try:
                async with asyncio.timeout(PING_LIMIT_S):
                    cause = await ping()
            except TimeoutError:
                cause = f"no answer within {PING_LIMIT_S:g} s"
            if cause:
                self.bad(part, cause)
            else:
                self.good(part)

        while True:
            self.beat()
            await asyncio.gather(*(look(part, ping) for part, ping in pings.items()))
            instruments.READY.set(int(self.ready()[0]))
            await self._clock.sleep(PING_S)

    def bad(self, part: str, cause: str) -> None:
        """A part does not work, with the cause for a person."""
        self._causes[part] = cause

    def good(self, part: str) -> None:
        """A part works."""
        self._causes.pop(part, None)

    def live(self) -> tuple[bool, dict[str, str]]:
        """Whether the loop still turns, and the cause if not."""
        silent = self._clock.monotonic() - self._beat
        return (True, {}) if silent < self.STALL_S else (False, {"loop": f"no progress for {silent:.0f} s"})

    def ready(self, without: Collection[str] = ()) -> tuple[bool, dict[str, str]]:
        """Whether everything needed works but for some parts, and the causes if not."""
        causes = {part: cause for part, cause in self._causes.items() if part not in without}
        return (not causes, causes)


class Server(uvicorn.Server):
    """uvicorn that leaves signals to the process and says which port it got."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: `service.run` owns the signals."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one. Raises OSError with the address in its text."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    sock.listen(2048)
    return sock


@contextlib.asynccontextmanager
async def serving(
    app: Any, settings: Settings, host: str, port: int, **options: Any
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Serve an ASGI app while the block runs; writes the port to `port_file` if that is set. Raises OSError.

    Yields what stops the server early: it takes no more requests and finishes those under way.
    """
    sock = listen(host, port)
    if settings.port_file:
        Path(settings.port_file).write_text(str(sock.getsockname()[1]))  # noqa: ASYNC240 - five bytes, at the start
    options = {
        "timeout_keep_alive": limits.KEEP_ALIVE_S,
        "http": Impatient,
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
        **options,
    }
    config = uvicorn.Config(app, server_header=False, **options)
    server = Server(config)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve([sock]))

        async def drain() -> None:
            server.should_exit = True
            await asyncio.wait({serving})

        try:
            yield drain
        finally:
            server.should_exit = True


def tasks() -> int:
    """How many things this process is doing or waiting for; a number that only ever grows is a leak."""
    return len(asyncio.all_tasks())


def app(health: Health) -> Any:
    """An ASGI app that answers /livez, /readyz and /metrics."""

    async def answer(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/metrics":
            with contextlib.suppress(LookupError):
                await _send(send, 200, *telemetry.exposition())
                return
        checks = {"/livez": health.live, "/readyz": health.ready}
        check = checks.get(scope["path"])
        good, causes = (
            check() if check else (False, {"path": "only /livez, /readyz and /metrics (unless switched off) are here"})
        )
        status = 404 if check is None else 200 if good else 503
        body = msgspec.json.encode({"status": "ok" if good else "unavailable", "causes": causes, "tasks": tasks()})
        await _send(send, status, body, "application/json")

    return answer


async def _send(send: Send, status: int, body: bytes, kind: str) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
