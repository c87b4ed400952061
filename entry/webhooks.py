"""Webhooks: the end of a job is told to whom it concerns, signed, again and again for a day until they have heard.

The durable consumers of `CUSCUTA_EVENTS` keep what is to be told. Headers and signature are those of Standard Webhooks:
`webhook-id` is the same at every try, so whoever is told twice can know.
"""

import asyncio
import base64
import hashlib
import hmac
import random
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from cuscuta import __version__, limits, subjects
from cuscuta.broker import Bus, Delivery, Puller
from cuscuta.broker.adoption import accepted
from cuscuta.broker.assets import HOOK_ACK_WAIT_S, ensure_hooks
from cuscuta.codec import RecordError, decode, encode
from cuscuta.errors import BrokerUnavailable, CuscutaError
from cuscuta.logs import Logger
from cuscuta.model import Event, JobStatus, JobTag
from cuscuta.settings import Settings
from entry.destinations import public

_FIRST_S, _LONGEST_S = 5.0, 3_600.0  # between two tries
_ANSWER_S = HOOK_ACK_WAIT_S / 3
_GONE = "gone"  # 410: nobody wants to know any more
_PULL_S = 5.0
_STOP_S = 3.0  # what is on its way at a stop may still be heard
_AT_A_HOST = 4  # so many at a time to one host: others' webhooks do not wait for one that hangs
_BUSY_S, _BUSY_MOST_S = 2.0, 60.0  # what waits for its turn at a host comes again, ever more rarely
Start = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Webhooks:
    """Tells the ends of jobs, of one kind of destination: what a job names, or the deployment's own."""

    def __init__(self, bus: Bus, settings: Settings, log: Logger, kind: str) -> None:
        self._bus, self._settings, self._log, self._kind = bus, settings, log, kind
        self._slots = asyncio.Semaphore(limits.HOOKS_AT_ONCE)
        self._telling: set[asyncio.Task[None]] = set()
        self._busy: Counter[str] = Counter()  # by host
        self._halt = asyncio.Event()

    def halt(self) -> None:
        """Begin nothing more."""
        self._halt.set()

    async def run(self, start: Start) -> None:
        """Until `halt`. `start` begins a task in the service's task group."""
        puller = Puller(self._bus.broker, lambda delivery: None)  # what comes too late comes again
        await puller.start()
        agent = f"cuscuta/{__version__}"
        connector = aiohttp.TCPConnector(socket_factory=self._socket, use_dns_cache=False)
        async with aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": agent, "Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=_ANSWER_S),
            trust_env=False,  # a proxy would resolve names by itself
        ) as http:
            try:
                while not self._halt.is_set():
                    await self._slots.acquire()
                    pulled = await puller.wait(
                        subjects.EVENTS_STREAM, subjects.HOOK_CONSUMERS[self._kind], _PULL_S, self._halt
                    )
                    for delivery in pulled.deliveries:
                        task = start(self._tell(http, delivery))
                        self._telling.add(task)
                        task.add_done_callback(self._told)
                    if not pulled.deliveries:
                        self._slots.release()
                    if pulled.gone:
                        await self._mend()
            finally:
                await puller.stop()
                if self._telling:
                    await asyncio.wait(self._telling, timeout=_STOP_S)
                for task in self._telling:  # it comes again
                    task.cancel()

    async def _mend(self) -> None:
        """The consumer was deleted by hand, or NATS is away."""
        try:
            await ensure_hooks(self._bus.broker, self._settings)
        except CuscutaError as error:
            self._log.debug("webhooks wait", cause=str(error))
        await self._bus.clock.sleep(1.0)

    def _told(self, task: "asyncio.Task[None]") -> None:
        self._telling.discard(task)
        self._slots.release()

    def _socket(self, info: Any) -> socket.socket:
        """The one place where a connection is made, after names were resolved: nothing gets around it."""
        family, kind, proto, _, address = info
        if not (self._settings.webhook_allow_private or public(str(address[0]))):
            raise OSError(f"{address[0]} is no public address")
        return socket.socket(family, kind, proto)

    async def _tell(self, http: aiohttp.ClientSession, delivery: Delivery) -> None:
        try:
            event = decode(delivery.data, Event)
            known = await self._bus.tags.get(event.uid)
            url = self._url(known) if known is None or await accepted(self._bus, known) else None
            if url is None or event.run is None or await self._told_before(delivery, event):
                await delivery.ack()
                return
            host = urlsplit(url).netloc
            if self._busy[host] >= _AT_A_HOST:
                await delivery.nak(min(_BUSY_MOST_S, _BUSY_S * delivery.delivered) * (0.5 + random.random()))
                return
            self._busy[host] += 1
            try:
                cause = await self._post(http, url, event, known)
            finally:
                self._busy[host] -= 1
                self._busy += Counter()  # forget hosts at which none is
            if cause is None:
                await delivery.ack_sync()
                return
            age_s = (self._bus.clock.wall() - event.at).total_seconds()
            wait_s = again_s(cause, age_s, random.random())
            if wait_s is None:
                self._log.warning("a webhook is given up", uid=event.uid, cause=cause, tries=delivery.delivered)
                await delivery.term("given up")
                return
            self._log.info("a webhook was not heard", uid=event.uid, cause=cause, again_in_s=round(wait_s))
            await delivery.nak(wait_s)
        except RecordError:  # published by hand
            await delivery.ack()
        except BrokerUnavailable as error:  # it comes again after ack-wait
            self._log.debug("a webhook waits", cause=str(error))
        except CuscutaError as error:
            self._log.error("a webhook cannot be sent", cause=str(error))
        except Exception as error:  # noqa: BLE001 - of the HTTP client, at a stop: it comes again, and the API goes on
            self._log.error("a webhook cannot be sent", cause=type(error).__name__)

    def _url(self, tag: JobTag | None) -> str | None:
        if self._kind == "deployment":
            return self._settings.webhook_url
        return tag.essential.webhook if tag else None

    async def _told_before(self, delivery: Delivery, event: Event) -> bool:
        """Whether the same end of the same run was filed before: the server drops repeats for two minutes only."""
        body = {"seq": 1, "batch": 256, "next_by_subj": delivery.subject}
        async for msg in self._bus.broker.batch_get(subjects.EVENTS_STREAM, body):
            if int((msg.headers or {})["Nats-Sequence"]) >= delivery.sequence:
                break
            if decode(msg.data, Event).run == event.run:
                return True
        return False

    async def _post(self, http: aiohttp.ClientSession, url: str, event: Event, tag: JobTag | None) -> str | None:
        """Why it was not heard; None if it was."""
        body = encode(message(event, tag))
        name, stamp = f"{event.run}.{event.what}", str(int(self._bus.clock.wall().timestamp()))
        headers = {
            "webhook-id": name,
            "webhook-timestamp": stamp,
            "webhook-signature": " ".join(sign(key, name, stamp, body) for key in self._settings.webhook_secrets),
        }
        try:
            async with http.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                if answer.status < 300:
                    return None
                return _GONE if answer.status == 410 else f"answered {answer.status}"
        except TimeoutError:
            return f"no answer within {_ANSWER_S:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__  # its text may hold the URL, and that may hold a secret


def again_s(cause: str, age_s: float, dice: float) -> float | None:
    """Seconds until the next try of an end that is so old, about as long again; None to give up."""
    if cause == _GONE or age_s > limits.HOOK_GIVE_UP_S:
        return None
    return min(_LONGEST_S, max(_FIRST_S, age_s)) * (0.5 + 0.5 * dice)


def sign(secret: str, name: str, stamp: str, body: bytes) -> str:
    """A signature as Standard Webhooks has it: HMAC-SHA256 of id, time and body."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{name}.{stamp}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def message(event: Event, tag: JobTag | None) -> dict[str, Any]:
    """What is told. A job that has begun a further run since is described by what the event says alone."""
    data: dict[str, Any] = {"uid": event.uid, "status": event.status, "run": event.run}
    if event.detail:
        data["failure"] = event.detail
    if tag is not None and tag.run_ids[-1] == event.run and tag.status is event.status:
        essential, progress = tag.essential, tag.progress
        data |= {
            "target": essential.target,
            "catalogue": essential.catalogue_name,
            "labels": essential.labels,
            "items": essential.span.size,
            "done": progress.done,
            "missing_items": progress.missing_items,
            "retries": len(tag.run_ids) - 1,
            "created_at": tag.queue.created_at,
            "ended_at": tag.queue.ended_at,
            "results_url": f"/jobs/{event.uid}/results",
        }
    return {"type": f"job.{event.status or JobStatus.FAILED}", "timestamp": event.at, "data": data}
