"""The declarative adapter: its file's faults by line and key, its requests, and what it makes of answers."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuscuta import errors
from cuscuta.model import Item
from tests.support.answers import Answer, Cut, Handler, Seen, Server
from worker.upstream import Session, Target
from worker.upstream.declarative import Declarative
from worker.upstream.loader import AdapterError, load
from worker.upstream.schema import AdapterFileError, read
from worker.upstream.template import Template, TemplateError

GOOD = """
name = "x"
base_url = "https://x.example"
[poll]
path = "/{item.id}"
"""


def faults(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "adapter.toml"
    file.write_text(text)
    with pytest.raises(AdapterFileError) as caught:
        read(file)
    lines = str(caught.value).splitlines()
    assert all(line.startswith("adapter.toml: ") for line in lines)
    return [line.removeprefix("adapter.toml: ") for line in lines]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = \n", ["line 1"]),
        (GOOD + "\n[pol]\npath='/'\n", ["pol: there is no such key", "Did you mean poll?"]),
        (GOOD + "resutl = 'x'\n", ["poll.resutl", "Did you mean result?"]),
        (GOOD.replace("/{item.id}", "/{itm.id}"), ["poll.path", "{itm.id}", "Did you mean {item.id}?"]),
        (GOOD.replace("https://", ""), ["base_url"]),
        (GOOD + "result = 'a[?'\n", ["poll.result", "JMESPath"]),
        (GOOD + "[login]\npath = 'login'\n", ["login.path: must begin with /", "login.token"]),
        (GOOD + "[login]\npath='/'\ntoken='t'\nform={}\njson={a=1}\n", ["login.form"]),
        (GOOD + "[[errors]]\nmeans = 'throttled'\n", ["errors[0]: needs a status or a body"]),
        (GOOD + "[[errors]]\nmeans = 'throttled'\nbody = '('\n", ["errors[0].body"]),
        (GOOD + "[[errors]]\nmeans = 'bored'\nstatus = 500\n", ["errors[0].means"]),
        (GOOD + "[limits]\nrate_per_s = 0\n", ["limits.rate_per_s"]),
        (GOOD + "[limits]\nconcurrency = 'two'\n", ["limits.concurrency"]),
        (GOOD + "query = { a = '{token}', b = '{nope}' }\n", ["poll.query.b"]),
        (GOOD + "[follow]\npath = '/{follow.id}'\n", ["follow.path"]),
        ("base_url = 'https://x'\n[poll]\npath='/'\n", ["name"]),
    ],
)
def test_a_fault_is_named_by_line_or_key(tmp_path: Path, text: str, words: list[str]) -> None:
    found = "\n".join(faults(tmp_path, text))
    for word in words:
        assert word in found, found


def test_all_faults_of_a_file_at_once(tmp_path: Path) -> None:
    found = faults(tmp_path, GOOD + "[login]\npath = 'x'\n[[errors]]\nmeans='throttled'\n[follow]\npath='/{no}'\n")
    assert len(found) == 4


@given(st.text(max_size=60))
def test_a_template_without_places_is_itself(text: str) -> None:
    escaped = text.replace("{", "{{").replace("}", "}}")
    assert Template(escaped, frozenset()).fill({}) == text


@given(st.dictionaries(st.sampled_from(["target", "token"]), st.text(max_size=20), min_size=2))
def test_values_are_put_in_as_they_are_and_never_read_as_places(values: dict[str, str]) -> None:
    template = Template("a{target}b{token}c{{d}}", frozenset(values))
    assert template.fill(values) == f"a{values['target']}b{values['token']}c{{d}}"


def test_a_missing_parameter_refuses_the_catalogue() -> None:
    with pytest.raises(errors.CatalogueRefused, match=r"item\.page"):
        Template("{item.page}", frozenset(), item_params=True).fill({})
    with pytest.raises(TemplateError):
        Template("{item.page}", frozenset())


Make = Callable[[str, Handler], Awaitable[Declarative]]


@pytest.fixture
async def adapters(tmp_path: Path) -> AsyncIterator[Make]:
    """Adapters whose requests a function answers, over real HTTP."""
    async with AsyncExitStack() as stack:

        async def make(text: str, handler: Handler) -> Declarative:
            server = await stack.enter_async_context(Server(handler))
            file = tmp_path / "adapter.toml"
            file.write_text(text.replace("https://x.example", server.url))
            adapter = Declarative(read(file))
            await adapter.open()
            stack.push_async_callback(adapter.close)
            return adapter

        yield make


def session() -> Session:
    return Session(email="a@x", password="p&w", token="t0k", user_id="u1")


async def test_requests_are_built_and_escaped(adapters: Any) -> None:
    seen: list[Seen] = []

    def answer(request: Seen) -> Answer:
        seen.append(request)
        return Answer(
            200, json.dumps({"scores": [{"player": "x]`'\"", "points": 1}, {"player": "f/1", "points": 7}]}).encode()
        )

    adapter = await adapters(
        """
        name = "x"
        base_url = "https://x.example"
        headers = { Authorization = "Bearer {token}" }
        [poll]
        method = "POST"
        path = "/p/{target}/i/{item.id}"
        query = { page = "{item.page}", q = "{item.id}" }
        headers = { X-Target = "{target}" }
        json = { who = ["{follow.id}", { deep = "{account.user_id}" }], n = 5 }
        result = "scores[?player == {follow.id}].points | [0]"
        """,
        answer,
    )
    item = Item("a/b ?#é", params={"page": 3})
    assert await adapter.poll(session(), Target("t/…\n", "f/1"), item) == 7
    assert await adapter.poll(session(), Target("t", "x]`'\""), item) == 1
    request = seen[0]
    assert request.raw_path.startswith("/p/t%2F%E2%80%A6%0A/i/a%2Fb%20%3F%23%C3%A9?")
    assert request.params == {"page": "3", "q": "a/b ?#é"}
    assert request.headers["authorization"] == "Bearer t0k"
    assert "\n" not in request.headers["x-target"]
    assert json.loads(request.content) == {"who": ["f/1", {"deep": "u1"}], "n": 5}


@pytest.mark.parametrize("how", ["json", "form", "basic"])
async def test_three_ways_to_log_in(adapters: Any, how: str) -> None:
    seen: list[Seen] = []

    def answer(request: Seen) -> Answer:
        seen.append(request)
        return Answer(200, json.dumps({"auth": {"token": 12345, "user": "u9"}}).encode())

    body = "basic = true" if how == "basic" else f'{how} = {{ e = "{{account.email}}", p = "{{account.password}}" }}'
    token = "" if how == "basic" else 'token = "auth.token"\nuser_id = "auth.user"'
    adapter = await adapters(GOOD + f"[login]\nmethod = 'POST'\npath = '/login'\n{body}\n{token}\n", answer)
    mine = Session(email="a@x", password="p&w")
    await adapter.log_in(mine)
    assert adapter.needs_login == (how != "basic")
    if how == "basic":
        await adapter.poll(mine, Target("t"), Item("i"))
        assert seen[0].headers["authorization"].startswith("Basic ")
        return
    assert (mine.token, mine.user_id) == ("12345", "u9")
    assert seen[0].content == (b'{"e":"a@x","p":"p&w"}' if how == "json" else b"e=a%40x&p=p%26w")


@pytest.mark.parametrize(
    ("step", "status", "kind"),
    [
        ("poll", 401, errors.AuthenticationFailed), ("poll", 403, errors.AccountForbidden),
        ("poll", 404, errors.ItemNotFound), ("poll", 410, errors.ItemNotFound), ("poll", 422, errors.ItemRefused),
        ("poll", 429, errors.Throttled), ("poll", 500, errors.UpstreamUnavailable),
        ("poll", 503, errors.UpstreamUnavailable), ("poll", 302, errors.BadAnswer), ("poll", 418, errors.BadAnswer),
        ("follow", 404, errors.TargetNotFound), ("follow", 500, errors.UpstreamUnavailable),
    ],
)  # fmt: skip
async def test_what_a_status_means(adapters: Any, step: str, status: int, kind: type[Exception]) -> None:
    adapter = await adapters(GOOD + "[follow]\npath = '/f'\n", lambda request: Answer(status, b"secret stuff"))
    calls = {
        "poll": lambda: adapter.poll(session(), Target("t"), Item("i")),
        "follow": lambda: adapter.follow(session(), "t"),
    }
    with pytest.raises(kind) as caught:
        await calls[step]()
    assert type(caught.value) is kind
    assert "secret stuff" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5), ("0", 0), ("-3", 0), ("soon", None), ("nan", None), ("inf", None), ("", None)]
)
async def test_retry_after(adapters: Any, text: str, seconds: float | None) -> None:
    adapter = await adapters(GOOD, lambda request: Answer(429, headers=(("retry-after", text),)))
    with pytest.raises(errors.Throttled) as caught:
        await adapter.poll(session(), Target("t"), Item("i"))
    assert caught.value.retry_after_s == seconds


async def test_retry_after_may_be_a_date(adapters: Any) -> None:
    adapter = await adapters(GOOD, lambda r: Answer(429, headers=(("retry-after", "Wed, 21 Oct 2065 07:28:00 GMT"),)))
    with pytest.raises(errors.Throttled) as caught:
        await adapter.poll(session(), Target("t"), Item("i"))
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s > 1e6


@pytest.mark.parametrize("content", [b"<html>", b"{", b"[" * 100_000, b"\xff\xfe", b'{"other": 1}', b'{"v": null}'])
async def test_garbage_is_a_bad_answer(adapters: Any, content: bytes) -> None:
    adapter = await adapters(GOOD + "result = 'v'\n", lambda request: Answer(200, content))
    with pytest.raises(errors.BadAnswer):
        await adapter.poll(session(), Target("t"), Item("i"))


async def test_a_giant_answer_is_cut_off(adapters: Any) -> None:
    adapter = await adapters(GOOD, lambda request: Answer(200, b" " * (9 << 20)))
    with pytest.raises(errors.BadAnswer, match="longer than"):
        await adapter.poll(session(), Target("t"), Item("i"))


async def test_a_rule_goes_before_the_status(adapters: Any) -> None:
    rules = """
    [[errors]]
    status = 200
    body = '"error":\\s*"banned"'
    means = "account-banned"
    [[errors]]
    step = "poll"
    status = 404
    means = "target-not-found"
    """
    adapter = await adapters(GOOD + rules, lambda request: Answer(200, b'{"error": "banned"}'))
    with pytest.raises(errors.AccountBanned):
        await adapter.poll(session(), Target("t"), Item("i"))
    adapter = await adapters(GOOD + rules, lambda request: Answer(404))
    with pytest.raises(errors.TargetNotFound):
        await adapter.poll(session(), Target("t"), Item("i"))


async def test_no_connection_a_cut_one_and_no_answer_are_transient(adapters: Any) -> None:
    kinds = {None: errors.UpstreamTimeout, Cut: errors.UpstreamUnavailable}
    for answer, kind in kinds.items():
        adapter = await adapters(GOOD.replace("[poll]", "timeout_s = 0.2\n[poll]"), lambda request: answer)  # noqa: B023
        with pytest.raises(kind):
            await adapter.poll(session(), Target("t"), Item("i"))
    adapter = await adapters(GOOD.replace("https://x.example", "http://127.0.0.1:1"), lambda request: Answer())
    with pytest.raises(errors.UpstreamUnavailable):
        await adapter.poll(session(), Target("t"), Item("i"))


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("none.toml", "no file"),
        ("nomodule:X", "cannot import"),
        ("worker.upstream.noop:Nope", "has no Nope"),
        ("worker.upstream.noop:Any", "no subclass"),
        ("nop", "Did you mean noop?"),
    ],
)
def test_the_loader_says_what_is_wrong(name: str, word: str) -> None:
    with pytest.raises(AdapterError, match=word.replace("?", r"\?")):
        load(name)


def test_the_loader_finds_all_three_kinds(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(GOOD)
    assert load(str(file)).name == "x"
    assert load("noop").name == load("worker.upstream.noop:Noop").name == "noop"
