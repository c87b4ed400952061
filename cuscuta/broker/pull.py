"""Our own pull loop: one subscription a seat, no task a message, and a lost pull is noticed after two heartbeats.

nats-py's `fetch` is 3.5 times slower, hangs after a fail-over and does not see that its consumer is gone [nats §0].
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from nats.aio.msg import Msg

from cuscuta.broker.connection import Broker
from cuscuta.broker.translation import translated
from cuscuta.errors import BrokerUnavailable

HEARTBEAT_S = 0.5
ANSWER_S = 2.0  # a pull that does not wait is answered at once, or was lost
_NS = 1_000_000_000


class Delivery:
    """A message that was pulled and must be acknowledged. Figures come from its reply subject."""

    __slots__ = ("_broker", "data", "delivered", "headers", "pending", "reply", "sequence", "stamp_ns", "subject")

    def __init__(self, broker: Broker, msg: Msg) -> None:
        self._broker = broker
        self.subject, self.data, self.reply, self.headers = msg.subject, msg.data, msg.reply, msg.headers or {}
        parts = msg.reply.split(".")
        if len(parts) > 9:  # $JS.ACK.<domain>.<account>.<stream>.… instead of $JS.ACK.<stream>.…
            parts = parts[2:]
        self.delivered, self.sequence, self.pending = int(parts[4]), int(parts[5]), int(parts[8])
        self.stamp_ns = int(parts[7])  # when it was stored, by the server's clock

    async def ack(self) -> None:
        """Done; asynchronous, buffered while NATS is gone."""
        await self._broker.tell(self.reply, b"+ACK")

    async def ack_sync(self) -> None:
        """Done, and the server knows it. Raises BrokerUnavailable."""
        await self._broker.request(self.reply, b"+ACK")

    async def touch(self) -> None:
        """Still at work: ack-wait starts anew. Raises BrokerUnavailable if the server did not hear it."""
        await self._broker.request(self.reply, b"+WPI")

    async def nak(self, delay_s: float) -> None:
        """Not now: deliver again after a while."""
        await self._broker.tell(self.reply, b"-NAK " + msgspec.json.encode({"delay": int(delay_s * _NS)}))

    async def term(self, reason: str) -> None:
        """Never again, with a reason for the advisory; the server knows it. Raises BrokerUnavailable."""
        await self._broker.request(self.reply, f"+TERM {reason}".encode())


class Pulled(NamedTuple):
    """What a pull brought. `gone` means that the consumer was not there or did not answer.

    `asked` is when the pull began (monotonic): no message of it can have been delivered, and ack-wait begun, earlier.
    """

    deliveries: list[Delivery]
    asked: float
    gone: bool = False


class Puller:
    """One seat's pulls, one at a time. What comes after its pull was left goes to `stray`."""

    def __init__(self, broker: Broker, stray: Callable[[Delivery], None]) -> None:
        self._broker, self._stray = broker, stray
        self._inbox = ""
        self._tokens = 0
        self._heard = 0.0
        self._open: _Pull | None = None
        self._end = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Subscribe."""
        self._inbox = self._broker.nc.new_inbox()
        self._end.push_async_callback(await self._broker.subscribe(f"{self._inbox}.*", self._on))

    async def stop(self) -> None:
        """Unsubscribe; a message on its way is redelivered after ack-wait."""
        await self._end.aclose()

    async def _on(self, msg: Msg) -> None:
        self._heard = self._broker.clock.monotonic()
        pull = self._open
        if msg.subject.startswith(self._inbox):
            if pull and msg.subject == pull.inbox:
                pull.status((msg.headers or {}).get("Status", ""))
        elif pull:
            pull.add(Delivery(self._broker, msg))
        else:
            self._stray(Delivery(self._broker, msg))

    async def take(self, stream: str, consumer: str, batch: int) -> Pulled:
        """Up to `batch` messages that wait now, without waiting for more."""
        with self._opened(batch) as pull:
            try:
                await self._ask(pull, stream, consumer, {"no_wait": True})
                async with asyncio.timeout(ANSWER_S):
                    await pull.done.wait()
            except (TimeoutError, BrokerUnavailable):
                pull.gone = True
        return pull.result()

    async def wait(
        self,
        stream: str,
        consumer: str,
        seconds: float,
        wake: asyncio.Event,
        then: Callable[[], Awaitable[None]] | None = None,
    ) -> Pulled:
        """The next message, waiting for it until the time is up, the pull is lost, or `wake` is set.

        `then` is called once the pull is on its way, to tell others that somebody waits.
        """
        clock = self._broker.clock
        self._heard = clock.monotonic()
        with self._opened(1) as pull:
            try:
                beat = min(HEARTBEAT_S, seconds / 3)  # the server takes at most half of the time asked for
                options = {"expires": int(seconds * _NS), "idle_heartbeat": int(beat * _NS)}
                await self._ask(pull, stream, consumer, options)
                if then:
                    await then()
            except BrokerUnavailable:
                pull.gone = True
                return pull.result()
            waits = [asyncio.ensure_future(wake.wait()), asyncio.ensure_future(pull.done.wait())]
            try:
                while not (pull.done.is_set() or wake.is_set() or pull.gone):
                    await asyncio.wait(waits, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                    pull.gone = pull.gone or clock.monotonic() - self._heard > 2 * HEARTBEAT_S + 0.2
            finally:
                for wait in waits:
                    wait.cancel()
        return pull.result()

    @contextlib.contextmanager
    def _opened(self, batch: int) -> Iterator["_Pull"]:
        self._tokens += 1
        pull = self._open = _Pull(f"{self._inbox}.{self._tokens}", batch, self._broker.clock.monotonic())
        try:
            yield pull
        except BaseException:
            for delivery in pull.deliveries:  # cancelled with messages in hand
                self._stray(delivery)
            raise
        finally:
            self._open = None

    async def _ask(self, pull: "_Pull", stream: str, consumer: str, options: dict[str, Any]) -> None:
        body = msgspec.json.encode({"batch": pull.batch, **options})
        with translated("pull"):
            await self._broker.nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", body, reply=pull.inbox)


class _Pull:
    """One pull request on its way."""

    __slots__ = ("asked", "batch", "deliveries", "done", "gone", "inbox")

    def __init__(self, inbox: str, batch: int, asked: float) -> None:
        self.inbox, self.batch, self.asked = inbox, batch, asked
        self.deliveries: list[Delivery] = []
        self.done = asyncio.Event()
        self.gone = False

    def add(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if len(self.deliveries) >= self.batch:
            self.done.set()

    def status(self, code: str) -> None:
        if code == "100":
            return
        self.gone = code not in ("404", "408")
        self.done.set()

    def result(self) -> Pulled:
        return Pulled(self.deliveries, self.asked, self.gone and not self.deliveries)
