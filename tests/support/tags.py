"""A small job's tag."""

from datetime import UTC, datetime

from cuscuta.model import Essential, JobStatus, JobTag, Queue
from cuscuta.spans import Span
from cuscuta.uids import new_uid

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UID = new_uid(NOW)


def make_tag(uid: str = UID) -> JobTag:
    return JobTag(uid, JobStatus.QUEUEING, Essential("t", "c", "songs", Span(0, 10)), Queue(NOW), [uid])
