"""What the documents say and what the code does are compared, not believed."""

import asyncio
import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Any

import httpx
import pytest

from cuscuta import errors, instruments, limits, settings
from cuscuta.model import Item
from cuscuta.transitions import ACCOUNT, JOB
from worker.upstream.declarative import Declarative
from worker.upstream.protocol import Session, Target, Upstream
from worker.upstream.schema import MEANS, read

DOCS = Path(__file__).parents[2] / "docs"


def transitions(table: str) -> dict[str, set[str]]:
    rows = re.findall(r"^\| (\w+) \| ?([\w, ]*?) ?\|$", table, re.M)
    return {before: set(filter(None, after.split(", "))) for before, after in rows if before != "from"}


@pytest.mark.parametrize(("heading", "code"), [("## A job", JOB), ("## An account", ACCOUNT)])
def test_states_are_drawn_as_they_are(heading: str, code: dict[StrEnum, frozenset[StrEnum]]) -> None:
    section = (DOCS / "states.md").read_text().split(heading)[1].split("\n## ")[0]
    assert transitions(section) == {str(b): {str(a) for a in after} for b, after in code.items()}


def test_guarantees_print_the_limits() -> None:
    assert limits.table() in (DOCS / "guarantees.md").read_text(), "run: python -m cuscuta.limits"


def test_guarantees_name_tests_that_exist() -> None:
    tests = "".join(p.read_text() for p in (DOCS.parent / "tests").rglob("*.py"))
    for test in re.findall(r"`(test_\w+)`", (DOCS / "guarantees.md").read_text()):
        assert f"def {test}(" in tests, test


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.S)


def test_the_documented_adapter_is_accepted(tmp_path: Path) -> None:
    whole, shared = blocks("upstreams.md", "toml")
    file = tmp_path / "rhythm.toml"
    file.write_text('name = "x"\nbase_url = "https://x.example"\n' + shared)
    assert Declarative(read(file)).capacity.targets_per_poll == 40
    file.write_text(whole)
    adapter = Declarative(read(file))
    assert adapter.needs_login
    assert adapter.needs_follow
    assert adapter.capacity.rate_per_s == 2.5


def test_the_documented_class_is_an_adapter() -> None:
    (code,) = blocks("upstreams.md", "python")
    scope: dict[str, object] = {}
    exec(compile(code, "upstreams.md", "exec"), scope)  # noqa: S102 - our own documentation
    made = scope["Rhythm"]
    assert isinstance(made, type)
    assert issubclass(made, Upstream)
    adapter = made()
    asyncio.run(_use(adapter))
    assert len([line for line in code.splitlines() if line.strip() and "import" not in line]) <= 23  # "about 20 lines"


async def _use(adapter: Any) -> None:
    """The documented class against an answering function, as a worker would use it."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/session":
            return httpx.Response(200 if b"right" in request.content else 401, json={"token": "t0k"})
        status = {"none": 404, "busy": 429, "down": 503}.get(request.url.params["song"], 200)
        return httpx.Response(status, json={"score": [request.headers["x-token"], request.url.params["player"]]})

    adapter.http = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="https://x.example")
    session = Session(email="a", password="right")
    await adapter.log_in(session)
    assert await adapter.poll(session, Target("a/b"), Item("song")) == ["t0k", "a/b"]
    for item, kind in (("none", errors.ItemNotFound), ("busy", errors.Throttled), ("down", errors.UpstreamUnavailable)):
        with pytest.raises(kind):
            await adapter.poll(session, Target("a"), Item(item))
    with pytest.raises(errors.AuthenticationFailed):
        await adapter.log_in(Session(email="a", password="wrong"))
    await adapter.http.aclose()


def test_every_meaning_is_documented() -> None:
    text = (DOCS / "upstreams.md").read_text()
    assert {means for means in MEANS if f"`{means}`" not in text} == set()


def test_the_examples_are_accepted() -> None:
    for file in (DOCS / "examples").glob("*.toml"):
        assert read(file).name
        tomllib.loads(file.read_text())


def test_links_between_documents_lead_somewhere() -> None:
    for page in [*DOCS.glob("*.md"), *DOCS.parent.glob("*.md")]:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_configuration_page_lists_every_setting() -> None:
    assert settings.table() in (DOCS / "configuration.md").read_text(), "run: python -m cuscuta.settings"


def test_the_telemetry_page_prints_the_instruments() -> None:
    assert instruments.table() in (DOCS / "telemetry.md").read_text(), "run: python -m cuscuta.instruments"


def test_every_span_and_link_is_documented() -> None:
    """Names in the code that the page lacks."""
    page = (DOCS / "telemetry.md").read_text()
    code = "".join(
        p.read_text() for part in ("cuscuta", "entry", "worker", "reaper") for p in (DOCS.parent / part).rglob("*.py")
    )
    spans = set(re.findall(r'telemetry\.(?:span|begin)\(\s*f?"([^"{]+)', code))
    links = set(re.findall(r'telemetry\.link\(.*, "([^"]+)"\)', code))
    handed = set(re.findall(r'handing_on\(.*, "([^"]+)"\)', code)) | set(re.findall(r'"cuscuta.link": "([^"]+)"', code))
    handed |= set(re.findall(r'kind = "(gift)".*"(hedge)"', code)[0])
    assert spans >= {"submit", "admit", "settle", "ride", "send ", "process "}
    assert links >= {"redelivered", "rides on", "settled by"}
    assert handed >= {"put back", "ride", "gift", "hedge"}
    assert {name for name in spans | links | handed if f"`{name}" not in page} == set()
