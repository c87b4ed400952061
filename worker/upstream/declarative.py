"""The declarative HTTP adapter: a TOML file instead of code (see docs/upstreams.md)."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import jmespath
import jmespath.exceptions
from yarl import URL

from cuscuta import errors, limits, telemetry
from cuscuta.codec import encode
from cuscuta.model import Item
from worker.upstream import ratelimit, traced
from worker.upstream.protocol import Capacity, Session, Target, Upstream
from worker.upstream.schema import ACCOUNT_NAMES, MEANS, POLL_NAMES, AdapterFile, Call, ErrorRule
from worker.upstream.template import Template

_BODY_SEARCHED = 64 << 10
_PATH = "/%?=&:@!$'()*+,;~"  # what a path may hold as it is; values are encoded before


class Declarative(Upstream):
    """An adapter made of an `AdapterFile`."""

    def __init__(self, file: AdapterFile) -> None:
        self._file = file
        self.name = file.name
        self.needs_login = file.login is not None and file.login.token is not None
        self.needs_follow = file.follow is not None
        self.capacity = Capacity(
            rate_per_s=file.limits.rate_per_s,
            concurrency=file.limits.concurrency,
            follow_slots=file.limits.follow_slots,
            targets_per_poll=file.limits.targets_per_poll,
            repeatable=file.limits.repeatable,
        )
        self._basic = file.login is not None and file.login.basic
        self._client: aiohttp.ClientSession | None = None
        self._calls = {
            step: _Prepared(call, file)
            for step in ("login", "reset", "follow", "poll", "unfollow")
            if (call := getattr(file, step))
        }
        self._rules = [(rule, re.compile(rule.body.encode()) if rule.body else None) for rule in file.errors]

    async def open(self) -> None:
        """Make the client: no redirects, a pool as wide as a process's seats."""
        self._client = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._file.timeout_s),
            connector=aiohttp.TCPConnector(limit=limits.SEATS_PER_PROCESS * 2, keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),  # accounts share the client, and must not share sessions
        )

    async def close(self) -> None:
        """Close the client."""
        if self._client:
            await self._client.close()

    async def reach(self) -> None:
        """Open a connection to the server and close it again."""
        url = URL(self._file.base_url)
        async with asyncio.timeout(self._file.timeout_s):
            _, writer = await asyncio.open_connection(url.host, url.port)
        writer.close()

    async def log_in(self, session: Session) -> None:
        """Send the login request and take token and user id from its answer."""
        if (call := self._calls.get("login")) is None or not self.needs_login:
            return
        answer = await self._send("login", call, session, _values(session))
        token = _find(call.call.token or "", answer)
        if not isinstance(token, str | int) or token == "":
            raise errors.BadAnswer(f"login: no token at {call.call.token!r} in the answer")
        session.token = str(token)
        if call.call.user_id and (user_id := _find(call.call.user_id, answer)) is not None:
            session.user_id = str(user_id)

    async def reset(self, session: Session) -> None:
        """Send the reset request."""
        if call := self._calls.get("reset"):
            await self._send("reset", call, session, _values(session))

    async def follow(self, session: Session, target: str) -> str | None:
        """Send the follow request; the follow id is the target itself unless the file says where it is."""
        call = self._calls.get("follow")
        if call is None:
            return None
        answer = await self._send("follow", call, session, {**_values(session), "target": target})
        if not call.call.id:
            return target
        if (found := _find(call.call.id, answer)) is None:
            raise errors.BadAnswer(f"follow: nothing at {call.call.id!r} in the answer")
        return str(found)

    async def poll(self, session: Session, target: Target, item: Item) -> Any:
        """Send the poll request and pick the value."""
        call = self._calls["poll"]
        values = _poll_values(session, target, item)
        return self._pick(call, values, await self._send("poll", call, session, values))

    async def poll_shared(self, session: Session, targets: Sequence[Target], item: Item) -> Sequence[Any]:
        """Send the poll request once and pick each target's value."""
        call, found = self._calls["poll"], list[Any]()
        answer = await self._send("poll", call, session, _poll_values(session, targets[0], item))
        for target in targets:
            try:
                found.append(self._pick(call, _poll_values(session, target, item), answer))
            except errors.BadAnswer as error:  # the answer as a whole is in order, and this one is not in it
                found.append(errors.ItemNotFound(str(error)))
        return found

    def _pick(self, call: "_Prepared", values: Mapping[str, str], answer: Any) -> Any:
        if call.result is None:
            return answer
        value = _find(call.result.fill(values, _literal), answer)
        if value is None:
            raise errors.BadAnswer(f"poll: nothing at {call.call.result!r} in the answer")
        return value

    async def unfollow(self, session: Session, target: Target) -> None:
        """Send the unfollow request."""
        if call := self._calls.get("unfollow"):
            await self._send("unfollow", call, session, _poll_values(session, target, Item("")))

    async def _send(self, step: str, call: "_Prepared", session: Session, values: Mapping[str, str]) -> Any:
        if self._client is None:
            await self.open()
        assert self._client  # noqa: S101 - made by open
        request = call.request(values)
        if self._basic:
            basic = aiohttp.encode_basic_auth(session.email, session.password, "utf-8")
            request["headers"]["Authorization"] = basic
        with traced.call(call.call.method, call.call.path, request["url"], step) as span:
            if sent := telemetry.traceparent():
                request["headers"][telemetry.TRACEPARENT] = sent
            try:
                async with self._client.request(allow_redirects=False, **request) as response:
                    body = await _read(response)
            except TimeoutError as error:
                raise errors.UpstreamTimeout(f"{step}: no answer within {self._file.timeout_s:g} s") from error
            except aiohttp.ClientError as error:
                raise errors.UpstreamUnavailable(f"{step}: {type(error).__name__}") from error
            span.set_attribute("http.response.status_code", response.status)
            session.quota = ratelimit.quota(response.headers, datetime.now(UTC)) or session.quota
            self._check(step, response, body)
        if response.status == 204 or not body:
            return None
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise errors.BadAnswer(f"{step}: the answer is not JSON") from error

    def _check(self, step: str, response: aiohttp.ClientResponse, body: bytes) -> None:
        status = response.status
        for rule, pattern in self._rules:
            if _fits(rule, pattern, step, status, body):
                raise _make(MEANS[rule.means], step, response)
        if status < 300:
            return
        raise _make(_by_status(step, status), step, response)


class _Prepared:
    """A call with its templates compiled."""

    def __init__(self, call: Call, file: AdapterFile) -> None:
        self.call, self._base = call, file.base_url.rstrip("/")
        make: Callable[[str], Template] = lambda text: Template(text, POLL_NAMES, item_params=True)  # noqa: E731
        self._path = make(call.path)
        common = {k: Template(v, ACCOUNT_NAMES) for k, v in file.headers.items()}
        self._headers = {**({} if call is file.login else common), **{k: make(v) for k, v in call.headers.items()}}
        self._query = {k: make(v) for k, v in call.query.items()}
        self._form = {k: make(v) for k, v in call.form.items()} if call.form is not None else None
        self.result = Template(call.result, POLL_NAMES, item_params=True, bare_braces=True) if call.result else None

    def request(self, values: Mapping[str, str]) -> dict[str, Any]:
        """What the client's `request` takes."""
        path = quote(self._path.fill(values, lambda text: quote(text, safe="")), safe=_PATH)
        if self._query:
            path += "?" + urlencode({k: t.fill(values) for k, t in self._query.items()}, quote_via=quote)
        made: dict[str, Any] = {
            "method": self.call.method,
            "url": URL(self._base + path, encoded=True),
            "headers": {k: t.fill(values, _header) for k, t in self._headers.items()},
        }
        if self._form is not None:
            made["data"] = {k: t.fill(values) for k, t in self._form.items()}
        if self.call.json is not None:
            made["data"] = encode(_fill_json(self.call.json, values))
            made["headers"].setdefault("Content-Type", "application/json")
        return made


def _fill_json(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return Template(value, POLL_NAMES, item_params=True).fill(values)
    if isinstance(value, dict):
        return {key: _fill_json(inner, values) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill_json(inner, values) for inner in value]
    return value


def _values(session: Session) -> dict[str, str]:
    return {
        "account.email": session.email,
        "account.password": session.password,
        "account.user_id": session.user_id or "",
        "token": session.token or "",
    }


def _poll_values(session: Session, target: Target, item: Item) -> dict[str, str]:
    values = {**_values(session), "target": target.name, "follow.id": target.follow_id or target.name}
    for key, value in item.params.items():
        values[f"item.{key}"] = value if isinstance(value, str) else json.dumps(value)
    values["item.id"] = item.id
    return values


def _header(text: str) -> str:
    """A header's value on one line; what latin-1 cannot say is percent-encoded."""
    return text if text.isascii() and text.isprintable() else quote(text)


def _literal(text: str) -> str:
    """A text as a JMESPath literal; JSON in backticks, so nothing in it can end it."""
    return "`" + json.dumps(text).replace("`", "\\u0060") + "`"


@lru_cache(maxsize=512)
def _compiled(expression: str) -> Any:
    return jmespath.compile(expression)


def _find(expression: str, answer: Any) -> Any:
    try:
        return _compiled(expression).search(answer)
    except jmespath.exceptions.JMESPathError as error:  # such as a function on a value of another type
        raise errors.BadAnswer(f"the answer does not fit {expression!r}: {type(error).__name__}") from error


async def _read(response: aiohttp.ClientResponse) -> bytes:
    size, parts = 0, []
    async for part in response.content.iter_any():
        size += len(part)
        if size > limits.ANSWER_BYTES:
            raise errors.BadAnswer(f"the answer is longer than {limits.ANSWER_BYTES:,} bytes")
        parts.append(part)
    return b"".join(parts)


def _fits(rule: ErrorRule, pattern: re.Pattern[bytes] | None, step: str, status: int, body: bytes) -> bool:
    return (
        (rule.step is None or rule.step == step)
        and (rule.status is None or rule.status == status)
        and (pattern is None or pattern.search(body[:_BODY_SEARCHED]) is not None)
    )


def _by_status(step: str, status: int) -> type[errors.UpstreamError]:
    if status == 401:
        return errors.AuthenticationFailed
    if status == 403:
        return errors.AccountForbidden
    if status == 429:
        return errors.Throttled
    if status in (404, 410):
        return {"poll": errors.ItemNotFound, "follow": errors.TargetNotFound}.get(step, errors.BadAnswer)
    if status in (400, 422) and step == "poll":
        return errors.ItemRefused
    return errors.UpstreamUnavailable if status >= 500 else errors.BadAnswer


def _make(kind: type[errors.UpstreamError], step: str, response: aiohttp.ClientResponse) -> errors.UpstreamError:
    message = f"{step}: the upstream answered {response.status}"
    if kind is errors.Throttled:
        return errors.Throttled(message, ratelimit.retry_after(response.headers.get("retry-after"), datetime.now(UTC)))
    return kind(message)
