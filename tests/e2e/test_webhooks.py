"""Webhooks over real HTTP: signed, tried again, once for each end, and never where they must not go."""

import asyncio
import base64
import hashlib
import hmac
import json
from typing import Any

from cuscuta import subjects
from cuscuta.broker.settle import tidy
from cuscuta.codec import encode
from cuscuta.model import Event, JobStatus
from tests.conftest import MakeHouse
from tests.support.answers import Answer, Seen, Server
from tests.support.api import refused
from tests.support.house import House
from tests.support.wait import until

SECRETS = ["whsec_" + base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2)]


class Receiver:
    """Somebody's server; `statuses` are what it answers, the last one for ever."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self.seen: list[Seen] = []

    def __call__(self, seen: Seen) -> Answer:
        self.seen.append(seen)
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        return Answer(status, b"", (("location", "/elsewhere"),) if status // 100 == 3 else ())

    async def heard(self, count: int) -> bool:
        return len(self.seen) >= count


async def house(make_house: MakeHouse, **env: str) -> House:
    h = await make_house(webhook_secrets=",".join(SECRETS), **{"webhook_allow_private": "true", **env})
    await h.upstream(accounts=2, latency_ms=2)
    await h.entry()
    await h.reaper()
    await h.accounts(2)
    await h.catalogue(6)
    await h.worker(seats="2")
    return h


async def settled(h: House, kind: str) -> bool:
    """Whether nothing is left to tell, now or later."""
    asked = f"CONSUMER.INFO.{subjects.EVENTS_STREAM}.{subjects.HOOK_CONSUMERS[kind]}"
    info = await (await h.bus()).broker.api(asked)
    return bool(info["num_ack_pending"] == 0 and info["num_pending"] == 0)


def verified(seen: Seen) -> dict[str, Any]:
    """What was told, after a check of both signatures as its receiver would make it."""
    signed = f"{seen.headers['webhook-id']}.{seen.headers['webhook-timestamp']}.".encode() + seen.content
    given = seen.headers["webhook-signature"].split()
    for secret, signature in zip(SECRETS, given, strict=True):
        key = base64.b64decode(secret.removeprefix("whsec_"))
        assert signature == "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return dict(json.loads(seen.content))


async def test_an_end_is_told_once_signed_and_with_its_figures(make_house: MakeHouse) -> None:
    h = await house(make_house)
    receiver = Receiver(204)
    async with Server(receiver) as server:
        uid = await h.submit(webhook=f"{server.url}/hook?team=red", labels={"team": "red"})
        silent = await h.submit("player 2")  # nobody is to be told
        await h.ended(uid)
        await h.ended(silent)
        await until(lambda: receiver.heard(1), 10, "it is told")
        told = verified(receiver.seen[0])
        assert receiver.seen[0].raw_path == "/hook?team=red"
        assert told["type"] == "job.completed"
        data = told["data"]
        assert (data["uid"], data["status"], data["done"], data["labels"]) == (uid, "completed", 6, {"team": "red"})
        # The job's end is tidied again, at once and, as far as the event's name tells, after the server forgot it.
        bus = await h.bus()
        tag = await bus.tags.get(uid)
        assert tag is not None
        await tidy(bus, tag)
        late = Event(uid, "completed", bus.clock.wall(), JobStatus.COMPLETED, None, tag.run_ids[-1])
        await bus.broker.publish(subjects.event(uid, "completed"), encode(late))
        unknown = await h.submit("unknown player", webhook=f"{server.url}/failed")
        await h.ended(unknown)
        await until(lambda: receiver.heard(2), 10, "the failure is told")
        failed = verified(receiver.seen[1])
        assert (failed["type"], failed["data"]["uid"]) == ("job.failed", unknown)
        assert failed["data"]["failure"] == "TargetNotFound"
        assert len({seen.headers["webhook-id"] for seen in receiver.seen}) == len(receiver.seen) == 2


async def test_whoever_does_not_hear_is_told_again_and_a_redirect_is_not_followed(make_house: MakeHouse) -> None:
    """Refused, redirected, and entry killed in between: told again with the same id until it was heard."""
    h = await house(make_house)
    receiver = Receiver(503, 302, 200)
    async with Server(receiver) as server:
        uid = await h.submit(webhook=f"{server.url}/hook")
        await h.ended(uid)
        await until(lambda: receiver.heard(1), 10, "it is told")
        next(proc for proc in h.procs if "entry" in proc.name).kill()
        await h.entry()
        await until(lambda: receiver.heard(3), 90, "it is told until it was heard")
        assert {seen.raw_path for seen in receiver.seen} == {"/hook"}
        assert len({seen.headers["webhook-id"] for seen in receiver.seen}) == 1
        assert verified(receiver.seen[2])["data"]["uid"] == uid
        await until(lambda: settled(h, "job"), 10, "nothing is left to tell")
        assert len(receiver.seen) == 3


async def test_a_receiver_that_is_gone_is_not_asked_again(make_house: MakeHouse) -> None:
    h = await house(make_house)
    receiver = Receiver(410)
    async with Server(receiver) as server:
        uid = await h.submit(webhook=f"{server.url}/hook")
        await h.ended(uid)
        entry = next(proc for proc in h.procs if "entry" in proc.name)

        async def given_up() -> bool:
            return "a webhook is given up" in entry.text()

        await until(given_up, 10, "it is given up")
        await until(lambda: settled(h, "job"), 10, "nothing is left to tell")
        assert len(receiver.seen) == 1


async def test_the_deployment_is_told_of_every_job_but_not_at_a_private_address(make_house: MakeHouse) -> None:
    receiver = Receiver(200)
    async with Server(receiver) as server:
        h = await house(make_house, webhook_url=f"{server.url}/all")
        uids = {await h.submit(f"player {n}") for n in range(3)}
        await until(lambda: receiver.heard(3), 15, "all are told")
        assert {verified(seen)["data"]["uid"] for seen in receiver.seen} == uids
        entry = next(proc for proc in h.procs if "entry" in proc.name)
        entry.stop()
        connections: list[object] = []
        listening = await asyncio.start_server(lambda _, writer: connections.append(writer), "localhost", 0)
        port = listening.sockets[0].getsockname()[1]
        private = f"https://localhost:{port}/"  # a name, so that only a look at the address can tell
        closed = await h.entry(webhook_allow_private="false", webhook_url=private)
        await h.submit("player 9")

        async def refused_to() -> bool:
            return "a webhook was not heard" in closed.text()

        await until(refused_to, 15, "the connection is not made")
        assert connections == []
        listening.close()
        assert len(receiver.seen) == 3
        assert SECRETS[0] not in closed.text() + entry.text()


async def test_a_bad_webhook_is_refused_at_the_submit(make_house: MakeHouse) -> None:
    h = await make_house(webhook_secrets=SECRETS[0])
    await h.entry()
    await h.catalogue(3)
    job = {"target": "player 1", "catalogue": "songs"}
    for url, word in (("http://example.com/", "TLS"), ("https://127.0.0.1/", "public"), ("nonsense", "URL")):
        await refused(h, "POST", "/jobs", 422, "webhook", word, json={**job, "webhook": url})
    body = {"when": "@hourly", "job": {**job, "webhook": "https://10.0.0.1/"}}
    await refused(h, "POST", "/schedules", 422, "webhook", "public", json=body)


async def test_a_deployment_without_a_key_takes_no_webhooks(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    await h.catalogue(3)
    job = {"target": "player 1", "catalogue": "songs", "webhook": "https://example.com/"}
    await refused(h, "POST", "/jobs", 422, "webhook", "signs no", json=job)
