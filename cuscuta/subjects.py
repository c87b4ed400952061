"""Every name on the bus is built and parsed here, and spelled nowhere else (DESIGN §3).

User text never enters a subject raw: targets and lane keys come hashed (`uids.token_from`), catalogue names encoded.
Past 100 active jobs at once the work stream is to be sharded by uid; `work_stream` is where that choice will live.
"""

import base64
import re
from typing import NamedTuple

from cuscuta import spans
from cuscuta.model import Priority
from cuscuta.spans import Span
from cuscuta.uids import is_uid, owned_token, token_from

EVENTS_STREAM = "CUSCUTA_EVENTS"
DEAD_STREAM = "CUSCUTA_DEAD"
SCHEDULES_STREAM = "CUSCUTA_SCHEDULES"
SCHEDULE_RECORDS = "cuscuta_schedules"
TAGS = "cuscuta_tags"
ACTIVE = "cuscuta_active"
RESULTS = "cuscuta_results"
WORKERS = "cuscuta_workers"
CATALOGUES = "cuscuta_catalogues"
ANNOUNCE = "cuscuta.announce"

LANES = "cuscuta.lane.>"
ADMITS = "cuscuta.admit.>"
CHUNKS = "cuscuta.chunk.>"
UNIQUES = "cuscuta.unique.>"
AFTERS = "cuscuta.after.>"
LAST_PLACES = "cuscuta.last-places"  # whoever has published it may admit where few places are left
EVENTS = "cuscuta.event.>"
DEAD = "cuscuta.dead.>"
SCHEDULES = "cuscuta.schedule.>"
FIRES = "cuscuta.fire.>"
FIRE_CONSUMER = "fires"
HOOK_CONSUMERS = {"job": "webhooks-job", "deployment": "webhooks-deployment"}
JOB_CONSUMER_PREFIX = "job-"


_CHUNK = re.compile(r"cuscuta\.chunk\.([0-9a-z]+)\.([0-9]+-[0-9]+)\.([0-9]+)")


class ChunkName(NamedTuple):
    """What a chunk's subject says: the job, the span, and which incarnation of it this is (from 1)."""

    uid: str
    span: Span
    n: int


def events_of(uid: str) -> str:
    """Filter for a job's events."""
    return f"cuscuta.event.{uid}.*"


def events_that(what: str) -> str:
    """Filter for one kind of event of all jobs."""
    return f"cuscuta.event.*.{what}"


def schedule(name: str) -> str:
    """What makes NATS fire a schedule; no consumer may cover it."""
    return f"cuscuta.schedule.{name}"


def fire(name: str) -> str:
    """What a schedule fires."""
    return f"cuscuta.fire.{name}"


def parse_fire(subject: str) -> str:
    """The id of the schedule that has fired."""
    return subject.rsplit(".", 1)[1]


def work_stream(uid: str | None = None) -> str:
    """The stream that holds a job's messages; with one shard it is the same for every uid."""
    return "CUSCUTA_WORK"


def kv_stream(bucket: str) -> str:
    """The stream behind a KV bucket."""
    return f"KV_{bucket}"


def kv_subject(bucket: str, key: str) -> str:
    """The subject of a bucket's key; the key may be a filter."""
    return f"$KV.{bucket}.{key}"


def lane_entry(lane: str, uid: str) -> str:
    """A job's place in its lane."""
    return f"cuscuta.lane.{lane}.{uid}"


def lane_all(lane: str) -> str:
    """Filter for a lane; its first message is the lane's head."""
    return f"cuscuta.lane.{lane}.*"


def parse_lane(subject: str) -> tuple[str, str]:
    """(lane, uid) of a lane entry."""
    head, lane, uid = subject.rsplit(".", 2)
    if head != "cuscuta.lane" or not is_uid(uid):
        raise ValueError(f"not a lane entry: {subject!r}")
    return lane, uid


def after(before: str, uid: str) -> str:
    """A job that waits for another one's end."""
    return f"cuscuta.after.{before}.{uid}"


def after_all(before: str) -> str:
    """Filter for the jobs that wait for a job's end."""
    return f"cuscuta.after.{before}.*"


def unique(target: str, catalogue: str, group: str) -> str:
    """Where the one running job of a target and a catalogue's content says that it is the one in its group."""
    return f"cuscuta.unique.{owned_token(group, f'{target} {catalogue}')}"


def _group(name: str) -> str:
    """A group's name as a token; that of jobs that name none stays readable."""
    return token_from(name) if name else "everyone"


def admit(priority: Priority, group: str, uid: str) -> str:
    """A runnable job that waits for admission."""
    return f"cuscuta.admit.{priority}.{_group(group)}.{uid}"


def admit_all(priority: Priority, group: str) -> str:
    """Filter for what of a group waits for admission at a priority."""
    return f"cuscuta.admit.{priority}.{_group(group)}.*"


def admit_of(uid: str) -> str:
    """Filter for a job's admit message, whatever its priority and group."""
    return f"cuscuta.admit.*.*.{uid}"


def parse_admit(subject: str) -> str:
    """The uid of an admit message. Raises ValueError for anything else."""
    parts = subject.split(".")
    if len(parts) != 5 or not subject.startswith("cuscuta.admit.") or not is_uid(parts[-1]):
        raise ValueError(f"not an admit message: {subject!r}")
    return parts[-1]


def chunk(name: ChunkName) -> str:
    """One incarnation of a chunk."""
    return f"cuscuta.chunk.{name.uid}.{name.span}.{name.n}"


def chunks_of(uid: str) -> str:
    """Filter for all chunks of a job."""
    return f"cuscuta.chunk.{uid}.>"


def parse_chunk(subject: str) -> ChunkName:
    """The parts of a chunk's subject. Raises ValueError for anything else."""
    if not (found := _CHUNK.fullmatch(subject)) or not is_uid(found[1]):
        raise ValueError(f"not a chunk: {subject!r}")
    return ChunkName(found[1], spans.parse(found[2]), int(found[3]))


def parse_uid(subject: str) -> str:
    """The uid of any chunk's subject, well formed or not."""
    parts = subject.split(".")
    return parts[2] if len(parts) > 2 else ""


def job_consumer(uid: str) -> str:
    """The one pull consumer of an active job."""
    return JOB_CONSUMER_PREFIX + uid


def parse_job_consumer(name: str) -> str | None:
    """The uid of a job's consumer, None for other consumers."""
    uid = name.removeprefix(JOB_CONSUMER_PREFIX)
    return uid if uid != name and is_uid(uid) else None


def event(uid: str, what: str) -> str:
    """A job's lifecycle event."""
    return f"cuscuta.event.{uid}.{what}"


def dead(uid: str, span: Span) -> str:
    """A chunk given up."""
    return f"cuscuta.dead.{uid}.{span}"


def dead_malformed(uid: str, sequence: int) -> str:
    """A message that is no chunk, filed by its stream sequence."""
    return f"cuscuta.dead.{uid}.malformed-{sequence}"


def dead_of(uid: str) -> str:
    """Filter for a job's dead chunks."""
    return f"cuscuta.dead.{uid}.*"


def parse_dead(subject: str) -> tuple[str, Span] | None:
    """(uid, span) of a dead chunk, None for a malformed message's grave."""
    _, uid, span = subject.rsplit(".", 2)
    return None if span.startswith("malformed-") else (uid, spans.parse(span))


def result_key(uid: str, span: Span) -> str:
    """A result's key. Start and stop are tokens of their own, so a filter finds what begins where a chunk begins."""
    return f"{uid}.{span.start}.{span.stop}"


def results_of(uid: str) -> str:
    """Filter for a job's results."""
    return f"{uid}.*.*"


def results_from(uid: str, start: int) -> str:
    """Filter for a job's results that begin at an item."""
    return f"{uid}.{start}.*"


def claim_key(uid: str, start: int) -> str:
    """The key of a claim on what begins at an item: a result without items, which `results_from` finds."""
    return f"{uid}.{start}.{start}"


def parse_result(key: str) -> tuple[str, Span]:
    """(uid, span) of a result's key."""
    uid, start, stop = key.split(".")
    return uid, spans.parse(f"{start}-{stop}")


def catalogue_name_key(name: str) -> str:
    """The key of a catalogue's name. Plain names stay readable, all others are encoded."""
    if name and name.isascii() and all(c.isalnum() or c in "_-" for c in name):
        return f"name.{name}"
    return "name64." + base64.urlsafe_b64encode(name.encode()).decode()


def catalogue_head_key(content: str) -> str:
    """The key of a catalogue's head."""
    return f"head.{content}"


def catalogue_page_key(content: str, page: int) -> str:
    """The key of a page of a catalogue's items."""
    return f"page.{content}.{page}"


def catalogue_pages(content: str) -> str:
    """Filter for a catalogue's pages."""
    return f"page.{content}.*"
