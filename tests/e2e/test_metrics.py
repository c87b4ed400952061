"""Metrics of real processes: at /metrics and through a real collector."""

import re

import httpx

from cuscuta import instruments
from tests.conftest import MakeHouse
from tests.e2e.test_telemetry import small
from tests.support.collector import collector
from tests.support.wait import until


def metrics(text: str) -> dict[str, str]:
    """Families by name, with their types."""
    return dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M))


async def test_every_instrument_is_at_metrics_and_comes_to_the_collector(make_house: MakeHouse) -> None:
    async with collector() as got:
        h = await small(make_house, got)
        await h.ended(await h.submit("player 1"))
        seen: dict[str, str] = {}
        wanted = {one.prometheus for one in instruments.TABLE}
        rare = {"cuscuta_leases_lost_total", "cuscuta_redeliveries_total", "cuscuta_nats_reconnects_total",
                "cuscuta_rides_total", "cuscuta_reaper_mended_total", "cuscuta_gifts_total"}  # fmt: skip

        async def all_there() -> bool:
            for name, url in h.urls.items():
                headers = h.http.headers if "entry" in name else {}
                answer = await h.http.get(f"{url}/metrics", headers=headers)
                assert answer.status_code == 200, answer.text
                assert answer.headers["content-type"].startswith("text/plain")
                seen.update(metrics(answer.text))
            return wanted - rare <= set(seen)

        try:
            await until(all_there, 30, "every instrument is shown")
        finally:
            print(sorted(wanted - rare - set(seen)))
        ours = {name: kind for name, kind in seen.items() if name.startswith("cuscuta_")}
        assert set(ours) <= wanted, set(ours) - wanted
        kinds = {one.prometheus: one.kind for one in instruments.TABLE}
        assert all(kinds[name] == kind for name, kind in ours.items())
        assert "process_resident_memory_bytes" in seen
        assert seen["http_server_request_duration_seconds"] == "histogram"
        names = {one.name: one.unit for one in instruments.TABLE if one.prometheus not in rare}
        await got.until(lambda: set(names) <= set(got.metrics), "every metric")
        assert {name: got.metrics[name] for name in names} == names


async def test_counts_are_of_what_happened(make_house: MakeHouse) -> None:
    async with collector() as got:
        h = await small(make_house, got)
        for n in range(3):
            await h.ended(await h.submit(f"player {n}"))
        await h.ended(await h.submit("unknown player"))

        async def total(name: str, **labels: str) -> float:
            found = 0.0
            for url in h.urls.values():
                text = (await h.http.get(f"{url}/metrics")).text
                for line in re.findall(rf"^{name}(?:{{.*}})? \S+$", text, re.M):
                    if all(f'{key}="{value}"' in line for key, value in labels.items()):
                        found += float(line.rsplit(" ", 1)[1])
            return found

        async def counted() -> bool:
            return await total("cuscuta_jobs_ended_total") == 4

        await until(counted, 15, "four jobs ended")
        assert await total("cuscuta_jobs_submitted_total") == 4
        assert await total("cuscuta_jobs_admitted_total") == 4
        assert await total("cuscuta_jobs_ended_total", cuscuta_status="completed") == 3
        assert await total("cuscuta_jobs_ended_total", cuscuta_status="failed") == 1
        assert await total("cuscuta_job_duration_seconds_count", cuscuta_status="completed") == 3
        assert await total("cuscuta_items_total", cuscuta_outcome="value") == 120
        assert await total("cuscuta_upstream_call_duration_seconds_count", error_type="TargetNotFound") >= 1
        assert await total("cuscuta_chunks_total", cuscuta_outcome="stored") >= 3


async def test_metrics_can_be_switched_off_and_need_a_token(make_house: MakeHouse) -> None:
    h = await make_house()
    await h.entry()
    url = next(iter(h.urls.values()))
    async with httpx.AsyncClient() as stranger:
        assert (await stranger.get(f"{url}/metrics")).status_code == 401
    h.otel = {"OTEL_SDK_DISABLED": "true"}
    reaper = await h.reaper()
    assert (await h.http.get(f"{h.urls[reaper.name]}/metrics")).status_code == 404
