"""Names on the bus: what is built is parsed back, and user text can neither collide nor widen a filter."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuscuta import subjects, uids
from cuscuta.model import Priority
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName

NOW = datetime(2026, 1, 1, tzinfo=UTC)
spans = st.builds(lambda a, n: Span(a, a + n), st.integers(0, 10**6), st.integers(1, 10**6))
moments = st.integers(1_600_000_000_000, 4_000_000_000_000).map(lambda ms: datetime.fromtimestamp(ms / 1000, UTC))
nasty = st.one_of(st.text(max_size=300), st.sampled_from([" ", ".", "*", ">", "a.b", "a b", "😀" * 75, "x" * 300, ""]))


@given(spans, st.integers(1, 1000))
def test_chunk_names_come_back(span: Span, n: int) -> None:
    name = ChunkName(uids.new_uid(NOW), span, n)
    assert subjects.parse_chunk(subjects.chunk(name)) == name
    assert subjects.parse_uid(subjects.chunk(name)) == name.uid


@given(spans)
def test_other_names_come_back(span: Span) -> None:
    uid, lane = uids.new_uid(NOW), uids.token_from("lane")
    assert subjects.parse_lane(subjects.lane_entry(lane, uid)) == (lane, uid)
    for group in ("", "red", "a.b *>"):
        assert subjects.parse_admit(subjects.admit(Priority.LOW, group, uid)) == uid
    assert subjects.parse_result(subjects.result_key(uid, span)) == (uid, span)
    assert subjects.parse_dead(subjects.dead(uid, span)) == (uid, span)
    assert subjects.parse_dead(subjects.dead_malformed(uid, 7)) is None
    assert subjects.parse_job_consumer(subjects.job_consumer(uid)) == uid
    assert subjects.parse_job_consumer("fires") is None


@given(st.text(max_size=80))
def test_nothing_else_parses_as_a_chunk(text: str) -> None:
    for subject in (text, f"cuscuta.chunk.{text}", f"cuscuta.chunk.{uids.new_uid(NOW)}.{text}"):
        with pytest.raises(ValueError):
            subjects.parse_chunk(subject)


@given(nasty, nasty)
def test_user_text_is_one_plain_token_and_does_not_collide(a: str, b: str) -> None:
    token = uids.token_from(a)
    assert len(token) == 32
    assert token.isascii()
    assert token.isalnum()
    assert (token == uids.token_from(b)) == (a == b)


@given(nasty, nasty)
def test_catalogue_names_are_safe_keys(a: str, b: str) -> None:
    key = subjects.catalogue_name_key(a) if a.isprintable() else "name.x"
    assert not set(key) & set("*> \t\r\n")
    assert ".." not in key
    if a != b and a.isprintable() and b.isprintable():
        assert key != subjects.catalogue_name_key(b)


@given(moments, moments)
def test_uids_sort_by_time(a: datetime, b: datetime) -> None:
    first, second = sorted((a, b))
    if (second - first).total_seconds() >= 0.001:
        assert uids.new_uid(first) < uids.new_uid(second)
    assert uids.is_uid(uids.new_uid(first))
    assert uids.is_uid(uids.uid_from("x", str(a)))
    assert uids.uid_from("a", "b") != uids.uid_from("ab")
