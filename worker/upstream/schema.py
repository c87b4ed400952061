"""The shape of a declarative adapter's TOML file, and reading it with every fault named by line or key."""

import difflib
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import jmespath
import jmespath.exceptions
import msgspec
from msgspec import Meta, Struct, field

from cuscuta import errors
from cuscuta.errors import CuscutaError
from worker.upstream.template import Template, TemplateError

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
Step = Literal["login", "reset", "follow", "poll", "unfollow"]
Means = Literal[
    "authentication-failed", "account-forbidden", "account-banned", "target-not-found", "catalogue-refused",
    "item-not-found", "item-refused", "throttled", "unavailable", "bad-answer",
]  # fmt: skip

MEANS: dict[str, type[errors.UpstreamError]] = {
    "authentication-failed": errors.AuthenticationFailed,
    "account-forbidden": errors.AccountForbidden,
    "account-banned": errors.AccountBanned,
    "target-not-found": errors.TargetNotFound,
    "catalogue-refused": errors.CatalogueRefused,
    "item-not-found": errors.ItemNotFound,
    "item-refused": errors.ItemRefused,
    "throttled": errors.Throttled,
    "unavailable": errors.UpstreamUnavailable,
    "bad-answer": errors.BadAnswer,
}

ACCOUNT_NAMES = frozenset({"account.email", "account.password", "account.user_id", "token"})
TARGET_NAMES = ACCOUNT_NAMES | {"target"}
POLL_NAMES = TARGET_NAMES | {"follow.id", "item.id"}


class AdapterFileError(CuscutaError):
    """All faults of an adapter file, one a line, each with its line or key."""


class Call(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One HTTP request. Texts may hold placeholders such as `{item.id}`."""

    path: str
    method: Method = "GET"
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    form: dict[str, str] | None = None
    json: Any = None
    basic: bool = False
    result: str | None = None  # poll: where the value is (JMESPath); none: the whole answer
    id: str | None = None  # follow: where the follow id is
    token: str | None = None  # login: where the token is
    user_id: str | None = None  # login: where the account's user id is


class Limits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the upstream allows each account."""

    rate_per_s: Annotated[float, Meta(gt=0)] | None = None
    concurrency: Annotated[int, Meta(ge=1, le=64)] = 1
    follow_slots: Annotated[int, Meta(ge=1)] = 1
    targets_per_poll: Annotated[int, Meta(ge=1, le=1_000)] = 1
    repeatable: bool = True


class ErrorRule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An answer of this status (and step, and body) means this error. The first rule that fits counts."""

    means: Means
    status: Annotated[int, Meta(ge=100, le=599)] | None = None
    step: Step | None = None
    body: str | None = None  # a regular expression that must be found in the answer's first 64 KiB


class AdapterFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole adapter."""

    name: str
    base_url: str
    poll: Call
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 8.0
    headers: dict[str, str] = {}
    limits: Limits = field(default_factory=Limits)
    login: Call | None = None
    reset: Call | None = None
    follow: Call | None = None
    unfollow: Call | None = None
    errors: list[ErrorRule] = []


def read(path: Path) -> AdapterFile:
    """Read and check a file. Raises AdapterFileError with every fault."""
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AdapterFileError(f"{path.name}: {error}") from error
    faults = list(_unknown_keys(raw))
    try:
        adapter = msgspec.convert(raw, AdapterFile)
    except msgspec.ValidationError as error:
        if not faults:
            faults.append(str(error).replace("`$.", "`"))
        raise AdapterFileError("\n".join(f"{path.name}: {fault}" for fault in faults)) from error
    faults = list(_faults(adapter))
    if faults:
        raise AdapterFileError("\n".join(f"{path.name}: {fault}" for fault in faults))
    return adapter


def _unknown_keys(raw: dict[str, Any]) -> list[str]:
    tables: list[tuple[str, Any, type[Any]]] = [("", raw, AdapterFile), ("limits.", raw.get("limits"), Limits)]
    tables += [(f"{step}.", raw.get(step), Call) for step in ("login", "reset", "follow", "poll", "unfollow")]
    rules = raw.get("errors")
    for i, rule in enumerate(rules if isinstance(rules, list) else []):
        tables.append((f"errors[{i}].", rule, ErrorRule))
    found = []
    for prefix, table, kind in tables:
        for key in table if isinstance(table, dict) else ():
            if key not in kind.__struct_fields__:
                near = difflib.get_close_matches(key, kind.__struct_fields__, n=1)
                found.append(f"{prefix}{key}: there is no such key." + (f" Did you mean {near[0]}?" if near else ""))
    return found


def _faults(adapter: AdapterFile) -> list[str]:
    found = []
    if not re.match(r"https?://[^/]+", adapter.base_url):
        found.append("base_url: must begin with http:// or https:// and a host")
    steps = (
        ("login", ACCOUNT_NAMES),
        ("reset", ACCOUNT_NAMES),
        ("follow", TARGET_NAMES),
        ("poll", POLL_NAMES),
        ("unfollow", POLL_NAMES),
    )
    for step, names in steps:
        call: Call | None = getattr(adapter, step)
        if call is None:
            continue
        if not call.path.startswith("/"):
            found.append(f"{step}.path: must begin with /")
        if call.form is not None and call.json is not None:
            found.append(f"{step}.form: a request has a form or json, not both")
        if step == "login" and not call.token and not call.basic:
            found.append("login.token: say where the token is in the answer, or set basic = true")
        shared = step == "poll" and adapter.limits.targets_per_poll > 1
        if shared and not call.result:
            found.append("poll.result: say where each target's value is, by {follow.id} or {target}")
        for key, text in _texts(call):
            if shared and ("{target}" in text or "{follow.id}" in text):
                found.append(f"poll.{key}: one request is for all targets (limits.targets_per_poll), so it names none")
            try:
                Template(text, names, item_params=step == "poll")
            except TemplateError as error:
                found.append(f"{step}.{key}: {error}")
        for key in ("result", "id", "token", "user_id"):
            expression = getattr(call, key)
            if expression:
                allowed = names if key == "result" else frozenset[str]()
                found += [f"{step}.{key}: {fault}" for fault in _expression_faults(expression, allowed)]
    for key, text in adapter.headers.items():
        try:
            Template(text, ACCOUNT_NAMES)
        except TemplateError as error:
            found.append(f"headers.{key}: {error}")
    for i, rule in enumerate(adapter.errors):
        if rule.status is None and rule.body is None:
            found.append(f"errors[{i}]: needs a status or a body")
        try:
            re.compile(rule.body or "")
        except re.error as error:
            found.append(f"errors[{i}].body: not a regular expression: {error}")
    return found


def _texts(call: Call) -> list[tuple[str, str]]:
    texts = [("path", call.path)]
    for key in ("headers", "query", "form"):
        texts += [(f"{key}.{name}", text) for name, text in (getattr(call, key) or {}).items()]
    return texts + list(_json_texts("json", call.json))


def _json_texts(key: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, str):
        return [(key, value)]
    if isinstance(value, dict):
        return [pair for name, inner in value.items() for pair in _json_texts(f"{key}.{name}", inner)]
    if isinstance(value, list):
        return [pair for i, inner in enumerate(value) for pair in _json_texts(f"{key}[{i}]", inner)]
    return []


def _expression_faults(expression: str, names: frozenset[str]) -> list[str]:
    template = Template(expression, names, item_params=bool(names), bare_braces=True)
    try:
        jmespath.compile(template.fill(dict.fromkeys(template.names, "x"), lambda text: f"'{text}'"))
    except jmespath.exceptions.JMESPathError as error:
        return [f"not a JMESPath expression: {str(error).splitlines()[0]}"]
    return []
