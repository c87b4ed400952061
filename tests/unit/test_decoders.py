"""Every decoder of bytes from outside, given anything: its own error, or something that can be written again."""

import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuscuta import subjects
from cuscuta.codec import RecordError, decode, encode
from cuscuta.db.tokens import parse
from cuscuta.errors import InputError
from cuscuta.schedule import Schedule
from cuscuta.settings import SettingsError, load
from entry.times import check as check_time
from tests.contract.test_golden import GOLDEN, KINDS
from worker.upstream.loader import load as load_adapter
from worker.upstream.schema import AdapterFileError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def mutated(kind: str) -> st.SearchStrategy[bytes]:
    """A good record with one of its fields replaced, or left out, or its bytes cut or changed."""
    good = [path.read_bytes() for path in sorted(GOLDEN.glob(f"{kind}.*"))]
    fields = sorted({name for data in good for name in json.loads(data)})

    def replaced(data: bytes, name: str, value: Any) -> bytes:
        return json.dumps({**json.loads(data), name: value}).encode()

    def without(data: bytes, name: str) -> bytes:
        return json.dumps({k: v for k, v in json.loads(data).items() if k != name}).encode()

    def cut(data: bytes, at: int, by: bytes) -> bytes:
        return data[: at % (len(data) + 1)] + by + data[(at + len(by)) % (len(data) + 1) :]

    some = st.sampled_from(good)
    return st.one_of(
        st.binary(max_size=200),
        st.builds(replaced, some, st.sampled_from(fields), JSON),
        st.builds(without, some, st.sampled_from(fields)),
        st.builds(cut, some, st.integers(0, 10_000), st.binary(max_size=8)),
    )


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(data=st.data())
def test_records(kind: str, data: st.DataObject) -> None:
    raw = data.draw(mutated(kind))
    try:
        record = decode(raw, KINDS[kind])
    except RecordError:
        return
    assert decode(encode(record), KINDS[kind]) == record


PARSERS = [
    subjects.parse_chunk, subjects.parse_admit, subjects.parse_lane, subjects.parse_result, subjects.parse_dead,
    subjects.parse_uid,
]  # fmt: skip
WORDS = ["cuscuta", "chunk", "lane", "admit", "dead", "high", "1-2", "2-1", "-", "", "x", "*", ">", "0" * 26, "\x00",
         "\u0663", "9" * 20]  # fmt: skip
TOKENS = st.lists(st.sampled_from(WORDS), max_size=7).map(".".join)


@given(st.one_of(st.text(max_size=80), TOKENS))
def test_subjects(text: str) -> None:
    for parser in PARSERS:
        with contextlib.suppress(ValueError):
            parser(text)
    subjects.parse_job_consumer(text)
    parse(text)


@given(st.text(max_size=60))
def test_times_of_schedules(text: str) -> None:
    good = json.loads(next(GOLDEN.glob("schedule.*")).read_bytes())
    schedule = decode(json.dumps({**good, "when": text, "time_zone": text or None}).encode(), Schedule)
    with contextlib.suppress(InputError):
        check_time(schedule, datetime(2026, 1, 1, tzinfo=UTC))


LINES = ["name = 'x'", "base_url = 'http://h'", "base_url = 5", "[poll]", "path = '/{item.id}'", "path = '/{no}'",
         "[login]", "token = 'a['", "[limits]", "concurrency = -1", "[[errors]]", "body = '('", "means = 'throttled'",
         "result = '{'", "timeout_s = nan", "x = " + "[" * 500, "json = { a = '{token}' }"]  # fmt: skip
TOML = st.one_of(
    st.text(max_size=300),
    st.lists(st.sampled_from(LINES), max_size=9).map("\n".join),
)


@given(text=TOML)
def test_adapter_files(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.mktemp("adapter") / "adapter.toml"
    file.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(AdapterFileError):
        load_adapter(str(file))


@given(text=TOML)
def test_settings_files(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file: Path = tmp_path_factory.mktemp("settings") / "cuscuta.toml"
    file.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(SettingsError):
        load({"CUSCUTA_CONFIG": str(file)})
