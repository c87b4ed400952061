"""Traces and logs of real processes, through a real collector."""

import json

import pytest

from tests.conftest import MakeHouse
from tests.e2e.test_tail import stuck
from tests.support.collector import Collected, Link, Span, collector
from tests.support.house import REFERENCE, House
from tests.support.process import module

TRACE = "0af7651916cd43dd8448eb211c80319c"
SERVER, CLIENT, PRODUCER, CONSUMER = 2, 3, 4, 5  # span kinds as OTLP numbers them


async def small(make_house: MakeHouse, got: Collected, **env: str) -> House:
    h = await make_house(**env)
    h.otel = got.env
    await h.upstream(accounts=2, latency_ms=20)
    await h.entry()
    await h.reaper()
    await h.worker(seats="2")
    await h.accounts(2)
    await h.catalogue(40)
    await h.seats(2)
    return h


async def traced(h: House, target: str, trace: str = TRACE, **body: object) -> str:
    """A job whose submitter traces, and sends baggage that is nobody's business."""
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "baggage": "secret=canary-baggage"}
    job = {"target": target, "catalogue": "songs", **body}
    return str((await h.call("POST", "/jobs", json=job, headers=headers))["uid"])


async def test_one_trace_from_the_request_to_the_end(make_house: MakeHouse) -> None:
    async with collector() as got:
        h = await small(make_house, got)
        uid = await traced(h, "player 1")
        await h.ended(uid)

        def mine() -> list[Span]:
            return [span for span in got.spans if span.trace == TRACE]

        names = {"settle", "admit", "submit", "POST /jobs", "send cuscuta_results"}
        await got.until(lambda: names <= {s.name for s in mine()}, "the job's end")
        await got.until(lambda: sum(s.kind == CLIENT for s in mine()) >= 43, "every call")  # logins, follows, 40 polls
        (post,) = (s for s in mine() if s.name == "POST /jobs")
        assert (post.kind, post.service, post.parent) == (SERVER, "cuscuta.entry", "b7ad6b7169203331")
        assert post.attributes["http.request.method"] == "POST"
        assert post.attributes["http.route"] == "/jobs"
        assert post.attributes["http.response.status_code"] == 202
        by_id = {s.span: s for s in mine()}

        def line(span: Span) -> list[str]:
            return [span.name, *(line(by_id[span.parent]) if span.parent in by_id else [])]

        (admit,) = (s for s in mine() if s.name == "admit")
        assert line(admit)[-1] == "POST /jobs"
        process = [s for s in mine() if s.name == "process CUSCUTA_WORK"]
        assert process
        for span in process:
            assert (span.kind, span.service) == (CONSUMER, "cuscuta.worker")
            assert line(span)[1] == "admit"
            assert span.attributes["messaging.system"] == "nats"
            assert span.attributes["messaging.operation.type"] == "process"
            assert span.attributes["messaging.destination.name"] == "CUSCUTA_WORK"
            assert span.attributes["cuscuta.job"] == uid
        calls = [s for s in mine() if s.kind == CLIENT]
        polls = [s for s in calls if s.attributes["cuscuta.step"] == "poll"]
        assert len(polls) >= 40
        for span in calls:
            assert line(span)[1] == "process CUSCUTA_WORK"
            assert span.attributes["server.address"] == "127.0.0.1"
            assert span.attributes["http.response.status_code"] == 200
            assert "{" in span.attributes["url.template"] or span.attributes["cuscuta.step"] != "poll"
        writes = [s for s in mine() if s.name == "send cuscuta_results"]
        assert {line(s)[1] for s in writes} == {"process CUSCUTA_WORK"}
        assert {s.kind for s in writes} == {PRODUCER}
        settled = [s for s in mine() if s.name == "settle"]  # more than one if the reaper saw it at the same time
        assert {line(s)[-1] for s in settled} == {"POST /jobs"}
        by_worker = [s for s in settled if s.service == "cuscuta.worker"]
        assert any(
            li.why == "settled by" and by_id[li.span].name.startswith("process") for s in by_worker for li in s.links
        )
        assert not any(span.failed for span in mine())
        world = await h.world()
        assert world["traces"][TRACE] >= 40  # the upstream may go on with it
        assert b"canary-baggage" not in got.raw


async def test_what_was_handed_on_names_who_had_it(make_house: MakeHouse) -> None:
    """Gifts, a hedge, what a stopping worker put back, and what a dead one left."""
    async with collector() as got:

        async def make(**env: str) -> House:
            h = await make_house(**env)
            h.otel = got.env
            return h

        h, uid, _, _ = await stuck(make, repeatable=True, hedging="true")
        await h.ended(uid)

        def whys() -> set[str]:
            return {link.why for span in got.named("process") for link in span.links}

        await got.until(lambda: {"gift", "hedge"} <= whys(), "gifts and a hedge")

        def given() -> list[tuple[Span, Link]]:
            handed = ("gift", "hedge")
            return [(span, link) for span in got.named("process") for link in span.links if link.why in handed]

        def givers() -> set[str]:
            return {span.span for span in got.named("process CUSCUTA_WORK")}

        await got.until(lambda: {link.span for _, link in given()} <= givers(), "the givers' own spans")
        assert all(link.trace == span.trace and link.span != span.span for span, link in given())
        for proc in [p for p in h.procs if "worker" in p.name]:
            proc.kill()
        await h.control(set={"latency_s": 0.05})
        (dying,) = [await h.worker(seats="2")]
        await h.seats(2)
        await h.catalogue(400)
        again = await h.submit("player 2")
        await h.done(again, 1)
        dying.kill()
        stopping = await h.worker(seats="2")
        await got.until(lambda: "redelivered" in whys(), "what the dead one had")
        stopping.stop()
        await h.worker(seats="2")
        await got.until(lambda: "put back" in whys(), "what the stopped one had")


async def test_a_ride_is_in_both_traces(make_house: MakeHouse) -> None:
    async with collector() as got:
        h = await small(make_house, got, upstream=str(REFERENCE.with_name("shared.toml")))
        await h.catalogue(200)
        other = "1" * 32
        first, second = await traced(h, "player 1"), await traced(h, "player 2", other)
        await h.ended(first)
        await h.ended(second)
        await got.until(lambda: bool(got.named("ride")), "a ride")
        await got.until(lambda: any(li.why == "ride" for s in got.named("process") for li in s.links), "its carrier")
        by_id = {span.span: span for span in got.spans}
        rides = {span.span: span for span in got.named("ride")}
        assert {span.trace for span in rides.values()} <= {TRACE, other}
        for ride in rides.values():
            (link,) = ride.links
            assert link.why == "rides on"
            carrier = by_id.get(link.span)
            if carrier:  # it may still be under way
                assert carrier.trace != ride.trace
                assert ride.span in {li.span for li in carrier.links if li.why == "ride"}


async def test_errors_are_recorded_without_what_may_be_secret(make_house: MakeHouse) -> None:
    async with collector() as got:
        h = await small(make_house, got)
        uid = await traced(h, "unknown player")
        assert (await h.ended(uid))["status"] == "failed"
        await got.until(lambda: any(s.failed for s in got.named("process")), "the failure")
        failed = next(s for s in got.named("process") if s.failed)
        assert failed.attributes["error.type"] == "TargetNotFound"
        assert ("exception", {"exception.type": "TargetNotFound"}) in failed.events
        assert any(s.failed and s.attributes["http.response.status_code"] == 404 for s in got.spans if s.kind == CLIENT)


async def test_the_sampler_is_the_environments(make_house: MakeHouse) -> None:
    async with collector() as got:
        got.env |= {"OTEL_TRACES_SAMPLER": "parentbased_always_off"}
        h = await small(make_house, got)
        await h.ended(await h.submit("player 1"))
        await h.ended(await traced(h, "player 2"))  # its submitter has decided
        await got.until(lambda: bool(got.named("settle")), "the traced job")
        assert {span.trace for span in got.spans} == {TRACE}


async def test_logs_carry_the_trace(make_house: MakeHouse) -> None:
    async with collector() as got:
        h = await make_house()
        h.otel = got.env
        await h.entry()
        await h.reaper()
        worker = await h.worker(upstream="tests.support.adapters:Raises", seats="1", max_attempts="1")
        await h.accounts(1)
        await h.catalogue(6)
        uid = await traced(h, "player 1")
        await h.ended(uid)
        lines = [json.loads(line) for line in worker.text().splitlines() if line.startswith("{")]
        (bug, *_) = [line for line in lines if line["event"] == "adapter bug"]
        assert bug["trace_id"] == TRACE
        await got.until(lambda: bug["span_id"] in {s.span for s in got.named("process")}, "the span of the log line")


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "http://"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf"),
        ({"OTEL_METRICS_EXPORTER": "statsd"}, "OTEL_METRICS_EXPORTER"),
    ],
)
async def test_what_is_wrong_in_the_environment_is_said(make_house: MakeHouse, env: dict[str, str], told: str) -> None:
    h = await make_house()
    proc = h.spawn("worker", module("worker.run"), {**h.env(), **env})
    assert proc.popen.wait(20) == 2
    assert told in proc.text()
    assert "Traceback" not in proc.text()


async def test_a_collector_that_is_not_there_stops_nobody(make_house: MakeHouse) -> None:
    h = await make_house()
    h.otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    await h.upstream(accounts=1, latency_ms=5)
    await h.entry()
    await h.reaper()
    worker = await h.worker(seats="1")
    await h.accounts(1)
    await h.catalogue(10)
    uid = await h.submit("player 1")
    assert (await h.ended(uid))["status"] == "completed"
    code, took_s = worker.stop()
    assert code == 0
    assert took_s < 8
    assert "Traceback" not in worker.text()
