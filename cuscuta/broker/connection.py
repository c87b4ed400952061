"""One connection to NATS: it never gives up, and every error of it is translated here, once."""

import asyncio
import contextlib
import random
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from cuscuta import backoff, errors, instruments, limits
from cuscuta.broker.deafness import Deafness
from cuscuta.broker.translation import refused, translated
from cuscuta.clock import Clock
from cuscuta.logs import Logger
from cuscuta.settings import Settings

ResultT = TypeVar("ResultT")


class Broker:
    """Requests, publishes and subscriptions with our errors. `connect` waits for ever, with a log line."""

    CLOSE_S = 2  # seconds; nats-py wants a whole number
    REQUEST_S = 2.0  # a lost request is tried again after this; all of ours are safe to repeat [nats §10]

    def __init__(self, settings: Settings, clock: Clock, log: Logger, name: str) -> None:
        self._settings, self.clock, self._log, self._name = settings, clock, log, name
        self.nc = Client()
        self.connected = asyncio.Event()
        self._closing = self._said = False
        self._connected_at = 0.0
        self._inbox, self._asked = "", 0
        self._deafness, self._shunned = Deafness(), ""
        self._answers: dict[str, asyncio.Future[Msg] | asyncio.Queue[Msg]] = {}

    async def connect(self) -> None:
        """Connect; tries again until it works."""
        s, tries = self._settings, 0
        options: dict[str, Any] = {"user": s.nats_user, "password": s.nats_password} if s.nats_user else {}
        if s.nats_creds:
            options["user_credentials"] = s.nats_creds
        if s.nats_ca or s.nats_cert:
            options["tls"] = ssl.create_default_context(cafile=s.nats_ca or None)
            if s.nats_cert:
                options["tls"].load_cert_chain(s.nats_cert, s.nats_key or None)
        while True:
            try:
                self.nc = await nats.connect(
                    s.nats_url.split(","),
                    name=self._name,
                    inbox_prefix=f"_INBOX.{self._name.split()[0].rpartition('.')[2]}",  # deploy/nats/users.conf
                    ping_interval=5,
                    max_outstanding_pings=2,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.3,
                    connect_timeout=2,
                    pending_size=limits.OUTPUT_BYTES * 2,  # past it nats-py waits without end, deaf to cancellation
                    disconnected_cb=self._lost,
                    reconnected_cb=self._back,
                    error_cb=self._error,
                    reconnect_to_server_handler=self._elsewhere,
                    **options,
                )
                break
            except (nats.errors.Error, OSError, TimeoutError) as error:
                tries += 1
                if tries in (1, 10) or tries % 60 == 0:
                    self._log.warning("waiting for NATS", url=_public(s.nats_url), cause=_cause(error))
                await self.clock.sleep(0.5)
        self._inbox = self.nc.new_inbox()
        await self.nc.subscribe(f"{self._inbox}.*", cb=self._answered)
        self._connect()

    async def _lost(self) -> None:
        instruments.CONNECTED.set(0)
        if self.connected.is_set() and not self._closing:
            self._log.warning("NATS is gone, trying again until it is back")
        self.connected.clear()

    async def _back(self) -> None:
        self._log.info("NATS is back")
        instruments.RECONNECTS.add(1)
        self._connect()

    def _connect(self) -> None:
        self._deafness.forget()
        self._connected_at = self.clock.monotonic()
        instruments.CONNECTED.set(1)
        self.connected.set()

    @property
    def server_id(self) -> str:
        """Of the server that the connection is with; another one after each of its starts."""
        return str(self.nc._server_info.get("server_id", ""))  # nats-py has it, and no public name for it

    @property
    def connected_s(self) -> float:
        """For how long the connection has stood without a break, in seconds; 0 while it does not."""
        return self.clock.monotonic() - self._connected_at if self.connected.is_set() else 0.0

    async def _unanswered(self, subject: str, asked: float) -> None:
        """A request was not answered: after some time of that, try another server if there is one."""
        if len(self.nc.servers) < 2 or not self.nc.is_connected:
            return
        if self._deafness.unanswered(subject, asked, self.clock.monotonic()):
            self._shunned = self.nc.connected_url.netloc if self.nc.connected_url else ""
            url = self._shunned.rpartition("@")[2]
            self._log.warning("this NATS server leaves requests unanswered, trying another", url=url)
            await self.nc.force_reconnect()

    def _elsewhere(self, servers: list[Any], _: Any) -> tuple[Any, float]:
        """Which server to try next, and in how many seconds: whichever failed least, and none that is shunned."""
        others = [server for server in servers if server.uri.netloc != self._shunned] or servers
        pause_s = 0.0 if self._shunned else 0.3
        self._shunned = ""
        return min(others, key=lambda server: (server.reconnects, random.random())), pause_s

    async def _error(self, error: Exception) -> None:
        if not self._inbox and not self._said:  # nats-py tries for ever by itself, and says so only here
            self._said = True
            self._log.warning("waiting for NATS", url=_public(self._settings.nats_url), cause=_cause(error))
        self._log.debug("nats client", cause=_cause(error))

    async def close(self) -> None:
        """Send what is buffered, then disconnect; bounded."""
        self._closing = True
        if self.nc.is_connected:
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                await self.nc.flush(timeout=self.CLOSE_S)
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
            await self.nc.close()

    @property
    def max_payload(self) -> int:
        """The largest message the server takes, in bytes."""
        return self.nc.max_payload

    async def request(
        self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None, timeout: float = REQUEST_S
    ) -> Msg:
        """Ask and get the answer. Raises BrokerUnavailable or TooLarge.

        Not nats-py's own `request`: it makes a random token and a `wait_for` for each call, and in Python 3.11 a
        `wait_for` whose answer comes at the moment of a cancellation swallows the cancellation, which hangs a stop.
        """
        if self.nc.pending_data_size > limits.OUTPUT_BYTES:
            raise errors.BrokerUnavailable("the output buffer is full: NATS takes nothing at the moment")
        token, asked = self._token(), self.clock.monotonic()
        answer = self._answers[token] = asyncio.get_running_loop().create_future()
        try:
            with translated(f"request {subject[:40]}"):
                async with asyncio.timeout(timeout):
                    await self.nc.publish(subject, payload, reply=f"{self._inbox}.{token}", headers=headers)
                    msg: Msg = await answer
                if msg.headers and msg.headers.get("Status") == "503":
                    raise errors.BrokerUnavailable(f"request {subject[:40]}: nobody answers")
        except errors.BrokerUnavailable:
            await self._unanswered(subject, asked)
            raise
        finally:
            del self._answers[token]
        self._deafness.answered(subject)
        return msg

    def _token(self) -> str:
        self._asked += 1
        return str(self._asked)

    async def _answered(self, msg: Msg) -> None:
        answer = self._answers.get(msg.subject.rpartition(".")[2])
        if isinstance(answer, asyncio.Queue):
            answer.put_nowait(msg)
        elif answer and not answer.done():
            answer.set_result(msg)

    async def api(self, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call `$JS.API.<name>`. Raises BrokerRefused or BrokerUnavailable."""
        payload = msgspec.json.encode(body) if body is not None else b""
        answer: dict[str, Any] = msgspec.json.decode((await self.request(f"$JS.API.{name}", payload)).data)
        if error := answer.get("error"):
            raise refused(error)
        return answer

    async def publish(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> int:
        """Publish into a stream and wait for its word; the sequence. Raises BrokerRefused or BrokerUnavailable."""
        return int((await self._publish(subject, payload, headers))["seq"])

    async def publish_once(self, subject: str, payload: bytes, headers: dict[str, str]) -> bool:
        """`publish` with a `Nats-Msg-Id`; False if the stream has had it already."""
        return not (await self._publish(subject, payload, headers)).get("duplicate")

    async def _publish(self, subject: str, payload: bytes, headers: dict[str, str] | None) -> dict[str, Any]:
        answer: dict[str, Any] = msgspec.json.decode((await self.request(subject, payload, headers)).data)
        if error := answer.get("error"):
            raise refused(error)
        return answer

    async def tell(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Publish without an answer; dropped while NATS is gone."""
        try:
            await self.nc.publish(subject, payload, reply=reply)
        except (nats.errors.Error, TimeoutError, OSError) as error:
            self._log.debug("not sent", subject=subject[:40], cause=_cause(error))

    async def insist(self, what: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Do something that is safe to repeat until NATS answers, for ever. Refusals are raised."""
        tries = 0
        while True:
            try:
                return await what()
            except errors.BrokerUnavailable as error:
                tries += 1
                say = self._log.warning if tries in (8, 64) else self._log.debug
                say("trying again", cause=str(error), tries=tries)
                await self.clock.sleep(backoff.exponential(tries, 0.1, 2.0, random.random()))
                await self.connected.wait()

    async def subscribe(
        self, subject: str, callback: Callable[[Msg], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        """A plain subscription, kept across reconnects; returns what ends it."""
        sub = await self.nc.subscribe(subject, cb=callback)

        async def end() -> None:
            with contextlib.suppress(nats.errors.Error):
                await sub.unsubscribe()

        return end

    async def batch_get(self, stream: str, body: dict[str, Any]) -> AsyncIterator[Msg]:
        """A direct batch get: the messages it finds, as they come. Raises BrokerUnavailable."""
        if not self.nc.is_connected:
            raise errors.BrokerUnavailable("batch get: not connected")
        token, asked, subject = self._token(), self.clock.monotonic(), f"$JS.API.DIRECT.GET.{stream}"
        answers = self._answers[token] = asyncio.Queue()
        try:
            with translated("batch get"):
                inbox = f"{self._inbox}.{token}"
                await self.nc.publish(subject, msgspec.json.encode(body), reply=inbox)
                while True:
                    async with asyncio.timeout(self.REQUEST_S):
                        msg = await answers.get()
                    if (msg.headers or {}).get("Status") != "503":
                        self._deafness.answered(subject)
                    status = (msg.headers or {}).get("Status")
                    if status in ("204", "404"):
                        return
                    if status is not None:
                        raise errors.BrokerUnavailable(f"batch get: status {status}")
                    yield msg
        except errors.BrokerUnavailable:
            await self._unanswered(subject, asked)
            raise
        finally:
            del self._answers[token]


def _cause(error: BaseException) -> str:
    """What nats-py says, which tells a wrong password from a server that is not there."""
    return _public(str(error)).removeprefix("nats: ") or type(error).__name__


def _public(urls: str) -> str:
    """Server addresses without the credentials that may stand in them."""
    return ",".join(re.sub(r"//[^/]*@", "//", url) for url in urls.split(","))
