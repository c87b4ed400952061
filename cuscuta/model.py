"""The records that travel and that are stored. All are JSON, readable by a person.

Old beside new: unknown fields are ignored, new fields must be optional. `tests/contract/golden` keeps the bytes of
every record that was ever stored, and a test reads them.
"""

from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Struct, field

from cuscuta import limits
from cuscuta.codec import decode
from cuscuta.spans import Policy, Span

Param = str | int | float | bool | None
LanePolicy = Literal["continue", "stop"]  # what a job does when the job before it in its lane has failed
AfterWhen = Literal["completed", "any", "failed", "ended"]  # all completed, one completed, one failed, all ended
When = Annotated[datetime, msgspec.Meta(tz=True)]  # a time without a zone cannot be compared with one that has it


class JobStatus(StrEnum):
    """Where a job stands. The last three are terminal, and a terminal status never changes."""

    QUEUEING = "queueing"
    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether the job has ended."""
        return self in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


class Priority(StrEnum):
    """Which jobs are admitted first."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        """0 for the most urgent."""
        return tuple(Priority).index(self)


class Item(Struct, frozen=True, omit_defaults=True):
    """One entry of a catalogue: what the upstream is asked for."""

    id: str
    weight: float = 1.0
    params: dict[str, Param] = {}


class CatalogueHead(Struct, frozen=True):
    """What there is to know of a catalogue without its items. `hash` names the content.

    `cuts` and `weights` are the grid; page k holds the items from `pages[k]` to `pages[k + 1]`.
    """

    hash: str
    items: int
    weight: float
    pages: tuple[int, ...]
    cuts: tuple[int, ...]
    weights: tuple[float, ...]


class CatalogueName(Struct, frozen=True):
    """A name's pointer: which content it means now."""

    name: str
    hash: str
    items: int
    weight: float
    updated_at: When


class Failure(Struct, frozen=True, omit_defaults=True):
    """One thing that went wrong on a job's way, worded for a person and free of secrets."""

    type: str
    message: str
    at: When
    span: Span | None = None
    account: int | None = None
    worker: str | None = None
    attempt: int | None = None


class Essential(Struct, frozen=True, omit_defaults=True):
    """What the job is: enough to build it again."""

    target: str
    catalogue: str
    catalogue_name: str
    span: Span
    lane: str | None = None
    key: str | None = None
    priority: Priority = Priority.NORMAL
    policy: Policy = Policy.CHUNK
    chunk_items: int = limits.CHUNK_ITEMS
    deadline: When | None = None
    start_by: When | None = None
    tolerance: int = 0  # how many items may be given up for `completed`
    lane_policy: LanePolicy = "continue"
    unique: bool = False
    after: tuple[str, ...] = ()
    after_when: AfterWhen = "completed"
    on_success: "Essential | None" = None
    on_failure: "Essential | None" = None
    labels: dict[str, str] = {}
    digest: str = ""  # of the request's body, to tell a repeated Idempotency-Key from an abused one
    traceparent: str | None = None
    webhook: str | None = None
    seal: str = ""  # cuscuta.seal: the mark of whoever accepted it

    @property
    def group(self) -> str:
        """Whose job it is: groups get equal shares."""
        return self.labels.get("group", "")


class Queue(Struct, omit_defaults=True):
    """When the job passed which gate. `seats` fixes the division, so that admitting twice cuts alike."""

    created_at: When
    admitted_at: When | None = None
    ended_at: When | None = None
    seats: int = 0
    chunks: int = 0
    hedges: int = 0  # items that a second seat was asked for, because the first took too long
    place: int = 0  # the sequence of its entry in its lane
    done_before: int = 0  # items that earlier runs had stored


class Progress(Struct, omit_defaults=True):
    """How far a job came, written once when it ends; while it runs the stored results are the only truth."""

    done: int = 0
    missing: list[Span] = []
    missing_items: int = 0


class JobTag(Struct, omit_defaults=True):
    """A job's record in `cuscuta_tags`, written by compare-and-set only."""

    uid: str
    status: JobStatus
    essential: Essential
    queue: Queue
    run_ids: Annotated[list[str], msgspec.Meta(min_length=1)]  # of each run; the first is the uid
    failures: list[Failure] = []
    failure_counts: dict[str, int] = {}
    progress: Progress = field(default_factory=Progress)

    def add_failure(self, failure: Failure) -> None:
        """Count a failure and keep it, within the bounds of `limits`."""
        full = len(self.failure_counts) >= limits.FAILURE_TYPES
        kind = "Other" if full and failure.type not in self.failure_counts else failure.type
        self.failure_counts[kind] = self.failure_counts.get(kind, 0) + 1
        self.failures = [*self.failures, failure][-limits.FAILURES_KEPT :]


class ActiveJob(Struct, frozen=True, omit_defaults=True):
    """What a worker must know to join a job; `cuscuta_active`.

    `fresh`: it was not admitted again, after which something of any chunk may be stored that no message tells of.
    `seats`, `policy` and `chunk_items` are what it was divided by. `server`: the NATS server that it was admitted over;
    one that was started again has another id, and may not know what the one before had delivered.
    """

    uid: str
    target: str
    catalogue: str
    span: Span
    priority: Priority
    created_at: When
    deadline: When | None = None
    traceparent: str | None = None
    fresh: bool = False
    run: str = ""
    group: str = ""
    seats: int = 1
    policy: Policy = Policy.CHUNK
    chunk_items: int = limits.CHUNK_ITEMS
    server: str = ""

    @property
    def order(self) -> tuple[int, datetime, str]:
        """Sorts the best job first: priority, then oldest."""
        return (self.priority.rank, self.created_at, self.uid)


class ChunkBody(Struct, frozen=True, omit_defaults=True):
    """A chunk's message. Span and incarnation stand in its subject; `attempts` are those of earlier incarnations.

    `fresh`: nobody had asked for anything of it when it was published. `gift`: given away from another chunk. `claim`:
    the revision of its giver's claim, if it begins where the giver goes on, as the second try of an item does.
    """

    uid: str
    catalogue: str
    target: str
    attempts: int = 0
    fresh: bool = False
    gift: bool = False
    claim: int = 0


class ItemError(Struct, frozen=True):
    """Why an item has no value."""

    type: str
    message: str


class ChunkResult(Struct, frozen=True, omit_defaults=True):
    """The results of a span, one value per item in order; an item of `errors` has the value null.

    `errors` is keyed by the item's index in the catalogue, written as text as JSON demands.
    """

    values: list[msgspec.Raw]
    at: When
    worker: str = ""
    account: int | None = None
    errors: dict[str, ItemError] = {}


class DeadChunk(Struct, frozen=True, omit_defaults=True):
    """A chunk that was given up, with the reason; `CUSCUTA_DEAD`."""

    uid: str
    span: Span | None
    reason: str
    attempts: int
    at: When
    worker: str = ""


class Presence(Struct, frozen=True, omit_defaults=True):
    """A worker process's heartbeat; `cuscuta_workers`.

    `accounts` maps each held account to its rate, `item_s` those that have worked to the seconds that an item takes.
    `riding`: by account, what of other jobs its polls answer for as well, as "<uid> <span>".
    `upstream` says why it cannot be reached; empty if it can, None if nobody has looked yet, or nobody can.
    """

    worker: str
    boot: str
    version: str
    seats: int
    working: list[str]  # what each seat with an account is doing: "<uid> <span>" or "idle"
    accounts: dict[str, float]
    started_at: When
    at: When
    item_s: dict[str, float] = {}
    upstream: str | None = None
    riding: dict[str, list[str]] = {}


class Event(Struct, frozen=True, omit_defaults=True):
    """A step in a job's life; `CUSCUTA_EVENTS`, written after the durable change."""

    uid: str
    what: str
    at: When
    status: JobStatus | None = None
    detail: str | None = None  # why it failed
    run: str | None = None  # with `what` it names the event, also where one is told twice
    group: str | None = None  # whose job; None in those of earlier versions


class Announcement(Struct, frozen=True, omit_defaults=True):
    """A hint on `cuscuta.announce`; nothing is lost if it is."""

    kind: str  # submitted | active | ended | chunk | idle
    uid: str
    active: ActiveJob | None = None
    queue: tuple[Priority, str] | None = None  # priority and group of a job that waits


@lru_cache(maxsize=512)
def decode_chunk(data: bytes) -> ChunkBody:
    """Like `decode`; the chunks of a job mostly have one body, so the last ones are remembered."""
    return decode(data, ChunkBody)
