"""Old beside new: the bytes of every record that was ever stored are still read, and unknown fields do not matter."""

import json
from pathlib import Path
from typing import Any

import pytest

from cuscuta import model
from cuscuta.broker.lanes import Waiting
from cuscuta.codec import RecordError, decode, encode
from cuscuta.schedule import Schedule

GOLDEN = Path(__file__).parent / "golden"
KINDS: dict[str, type[Any]] = {
    "job_tag": model.JobTag,
    "active_job": model.ActiveJob,
    "chunk_body": model.ChunkBody,
    "chunk_result": model.ChunkResult,
    "dead_chunk": model.DeadChunk,
    "presence": model.Presence,
    "event": model.Event,
    "announcement": model.Announcement,
    "catalogue_head": model.CatalogueHead,
    "catalogue_name": model.CatalogueName,
    "item": model.Item,
    "waiting": Waiting,
    "schedule": Schedule,
}


def test_every_kind_has_golden_bytes() -> None:
    assert {p.name.split(".")[0] for p in GOLDEN.glob("*.json")} == set(KINDS)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda p: p.name)
def test_golden_bytes_are_read_and_lose_nothing(path: Path) -> None:
    """`<kind>.<version>.json`: written by that version."""
    kind, data = KINDS[path.name.split(".")[0]], path.read_bytes()
    record = decode(data, kind)
    assert json.loads(encode(record)) == json.loads(data)
    newer = {**json.loads(data), "a_field_of_a_later_version": {"x": [1, 2]}}
    assert json.loads(encode(decode(json.dumps(newer).encode(), kind))) == json.loads(data)


@pytest.mark.parametrize("data", [b"", b"{", b"null", b"[]", b'{"uid": 5}', b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_garbage_is_refused_with_a_reason(kind: str, data: bytes) -> None:
    with pytest.raises(RecordError, match="not a"):
        decode(data, KINDS[kind])
