"""What callers send, and every check of it that a type cannot say."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from cuscuta import limits, telemetry
from cuscuta.clock import Clock
from cuscuta.errors import InputError
from cuscuta.model import AfterWhen, CatalogueName, Essential, Item, LanePolicy, Param, Priority, When
from cuscuta.spans import Policy, Span
from cuscuta.uids import owned_token
from entry import problems

YEARS_S = 10 * 365 * 86_400.0


class FollowUp(Struct, forbid_unknown_fields=True, kw_only=True, rename={"start": "from", "stop": "to"}):
    """A job that follows another one's end: the same fields as a job, without times and further jobs."""

    target: Annotated[str, Meta(min_length=1, description="what the job asks about", examples=["player 17"])]
    catalogue: Annotated[str, Meta(min_length=1, description="name of a catalogue", examples=["songs"])]
    start: Annotated[int, Meta(ge=0, description="first item")] | None = None
    stop: Annotated[int, Meta(ge=1, description="one past the last item")] | None = None
    key: str | UnsetType | None = UNSET
    priority: Priority = Priority.NORMAL
    policy: Policy = Policy.CHUNK
    chunk_items: Annotated[int, Meta(ge=1, le=limits.CHUNK_ITEMS)] | None = None
    tolerance_items: Annotated[int, Meta(ge=0, le=limits.CATALOGUE_ITEMS)] | None = None
    tolerance_share: Annotated[float, Meta(ge=0, le=1)] | None = None
    lane_policy: LanePolicy = "continue"
    labels: dict[str, str] = {}


class ScheduledJob(FollowUp, kw_only=True):
    """A job that a schedule makes: the same fields as a job, without those that speak of a single moment."""

    deadline_s: Annotated[float, Meta(gt=0, le=YEARS_S)] | None = None
    start_by_s: Annotated[float, Meta(gt=0, le=YEARS_S)] | None = None
    unique: bool = False
    webhook: Annotated[str, Meta(min_length=1, description="URL that is told of its end")] | None = None
    on_success: FollowUp | None = None
    on_failure: FollowUp | None = None


class JobRequest(ScheduledJob, kw_only=True):
    """A job to be done: `target` is asked about for every item of `catalogue`.

    `from` and `to` cut a half-open span out of the catalogue. `key` is the lane (default: the target; null: none).
    `policy` and `chunk_items` say how the job is divided. A job that has not ended by its deadline, or not begun by
    `start_by`, ends `failed`; both are a time, or seconds from now. The tolerance says how many items, or what share of
    them, may be given up for `completed`. `lane_policy` says what a failure of the job before it in its lane means.
    A `unique` job is not made if one of its target and catalogue runs already; that one is the answer.
    A job waits for those in `after`: until all are completed, until any is, until one has failed, or until all have
    ended (`after_when`); if that cannot come any more it ends. `on_success` and `on_failure` follow its own end.
    The label `group` says whose job it is: groups get equal shares.
    """

    deadline: When | None = None
    start_by: When | None = None
    after: Annotated[tuple[str, ...], Meta(max_length=limits.AFTER, description="uids")] = ()
    after_when: AfterWhen = "completed"


class ScheduleRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """When to submit a job: `when` is cron (five fields, or six with seconds first), `@every 15m`, `@hourly` and the
    like, or a single time with its zone. `time_zone` is that of cron's fields; UTC if there is none.
    """

    when: Annotated[str, Meta(min_length=1, max_length=200, examples=["0 9 * * 1-5", "@every 15m"])]
    job: ScheduledJob
    time_zone: Annotated[str, Meta(max_length=80, examples=["Europe/Berlin"])] | None = None


class ScheduleChange(Struct, forbid_unknown_fields=True):
    """What may be changed of a schedule."""

    paused: bool


class ItemRequest(Struct, forbid_unknown_fields=True):
    """An item with a weight or parameters."""

    id: str
    weight: Annotated[float, Meta(gt=0, le=1e9)] = 1.0
    params: dict[str, Param] = {}


class CatalogueRequest(Struct, forbid_unknown_fields=True):
    """A catalogue's items, as ids or as objects."""

    items: Annotated[
        list[str | ItemRequest],
        Meta(description="ids or objects", examples=[["song-1", {"id": "song-2", "weight": 3}]]),
    ]


class AccountRequest(Struct, forbid_unknown_fields=True):
    """An account's credentials; the password goes in and never comes out."""

    email: Annotated[str, Meta(min_length=1, max_length=320, examples=["a@example.com"])]
    password: Annotated[str, Meta(min_length=1, max_length=1_024, examples=["correct horse battery staple"])]

    def __repr__(self) -> str:
        return "AccountRequest(***)"


class AccountChange(Struct, forbid_unknown_fields=True):
    """What may be changed of an account."""

    rate: Annotated[float, Meta(ge=0, le=1, description="health from 0 (never leased) to 1")] | None = None
    password: Annotated[str, Meta(min_length=1, max_length=1_024)] | None = None
    disabled: bool | None = None

    def __repr__(self) -> str:
        return "AccountChange(***)"


for _kind in (
    JobRequest,
    FollowUp,
    ScheduleRequest,
    ScheduleChange,
    ItemRequest,
    CatalogueRequest,
    AccountRequest,
    AccountChange,
):
    problems.KNOWN_FIELDS.update(_kind.__struct_encode_fields__)


def bounded(field: str, text: str, most: int) -> None:
    """Raises InputError for a text that is too long or cannot be encoded."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InputError(field, "holds half of a surrogate pair", "Send valid Unicode text.") from error
    if size > most:
        raise InputError(field, f"is {size:,} bytes long", f"At most {most:,} bytes are taken.")


def digest(request: FollowUp | ScheduleRequest) -> str:
    """What tells two requests apart. Fields that are not there, or as they are without saying, count as the same."""
    given = {
        field.encode_name: value
        for field in msgspec.structs.fields(request)
        if (value := getattr(request, field.name)) is not UNSET and value != field.default and value not in ({}, ())
    }
    return hashlib.sha256(msgspec.json.encode(given, order="sorted")).hexdigest()[:32]


def scheduled(request: ScheduledJob) -> dict[str, Any]:
    """A schedule's job as it is kept, and read again whenever it fires: what its caller said, and no more."""
    fields = msgspec.structs.fields(request)
    unsaid = {field.encode_name for field in fields if getattr(request, field.name) == field.default}
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(request))
    return {name: value for name, value in made.items() if name not in unsaid and value != {}}


def as_job(request: ScheduledJob) -> JobRequest:
    """A schedule's job as a request for one."""
    return msgspec.convert(scheduled(request), JobRequest)


def essential(request: JobRequest, names: Mapping[str, CatalogueName], clock: Clock) -> Essential:
    """The job that a request describes; `names` are the catalogues that it speaks of. Raises InputError."""
    now = clock.wall()
    return replace(
        _core(request, names),
        deadline=_time("deadline", request.deadline, request.deadline_s, now),
        start_by=_time("start_by", request.start_by, request.start_by_s, now),
        unique=request.unique,
        after=tuple(dict.fromkeys(request.after)),
        after_when=request.after_when,
        webhook=request.webhook,
        on_success=_follow_up("on_success", request.on_success, names),
        on_failure=_follow_up("on_failure", request.on_failure, names),
    )


def _follow_up(field: str, request: FollowUp | None, names: Mapping[str, CatalogueName]) -> Essential | None:
    if request is None:
        return None
    try:
        return _core(request, names)
    except InputError as error:
        raise InputError(f"{field}.{error.field}", error.message, error.fix, error.status) from None


def _core(request: FollowUp, names: Mapping[str, CatalogueName]) -> Essential:
    name = names.get(request.catalogue)
    if name is None:
        raise InputError(
            "catalogue", f"there is no catalogue {request.catalogue[:80]!r}", "PUT /catalogues/{name} first."
        )
    bounded("target", request.target, limits.TARGET_BYTES)
    if isinstance(request.key, str):
        bounded("key", request.key, limits.TARGET_BYTES)
        if not request.key:
            raise InputError("key", "is empty", "Leave it out for the target's own lane, or send null for no lane.")
    if len(request.labels.keys() - {"group"}) > limits.LABELS:
        raise InputError("labels", f"has {len(request.labels)} entries", f"At most {limits.LABELS} are taken.")
    for key, value in request.labels.items():
        bounded(f"labels.{key[:40]}", key, limits.LABEL_BYTES)
        bounded(f"labels.{key[:40]}", value, limits.LABEL_BYTES)
    span = Span(request.start or 0, name.items if request.stop is None else request.stop)
    if span.stop > name.items:
        raise InputError("to", f"is {span.stop}", f"Catalogue {name.name} has {name.items} items; send at most that.")
    if not span.size:
        raise InputError("from", f"the span {span} is empty", f"Send from < to, within 0 and {name.items}.")
    lane_key = request.target if request.key is UNSET else request.key
    tolerance = request.tolerance_items or 0
    if request.tolerance_share is not None:
        if request.tolerance_items is not None:
            raise InputError("tolerance_share", "stands beside tolerance_items", "Send one of them.")
        tolerance = int(request.tolerance_share * span.size + 1e-9)  # 0.29 of 100 is 29
    return Essential(
        target=request.target,
        catalogue=name.hash,
        catalogue_name=name.name,
        span=span,
        lane=owned_token(request.labels.get("group", ""), lane_key) if lane_key is not None else None,
        key=lane_key,
        priority=request.priority,
        policy=request.policy,
        chunk_items=request.chunk_items or limits.CHUNK_ITEMS,
        tolerance=tolerance,
        lane_policy=request.lane_policy,
        labels=request.labels,
        digest=digest(request),
        traceparent=telemetry.traceparent(),
    )


def _time(field: str, time: datetime | None, seconds: float | None, now: datetime) -> datetime | None:
    """A moment to come, given as such or in seconds from now. Raises InputError."""
    if seconds is not None:
        if time is not None:
            raise InputError(field, f"stands beside {field}_s", "Send one of them.")
        return now + timedelta(seconds=seconds)
    if time is not None and time <= now:
        raise InputError(field, f"is over: it is {now:%Y-%m-%dT%H:%M:%SZ}", "Send a time to come, with its zone.")
    return time


def items(entries: Sequence[str | ItemRequest]) -> list[Item]:
    """A catalogue's items, checked. Raises InputError. Takes a second for a million, so call it in a thread."""
    if not entries:
        raise InputError("items", "is empty", "A catalogue has at least one item.")
    if len(entries) > limits.CATALOGUE_ITEMS:
        raise InputError("items", f"has {len(entries):,} entries", f"At most {limits.CATALOGUE_ITEMS:,} are taken.")
    made: list[Item] = []
    first: dict[str, int] = {}
    for i, entry in enumerate(entries):
        item = Item(entry) if isinstance(entry, str) else Item(entry.id, entry.weight, entry.params)
        if not item.id:
            raise InputError(f"items[{i}].id", "is empty", "Every item has an id.")
        bounded(f"items[{i}].id", item.id, limits.ITEM_ID_BYTES)
        if item.params:
            if len(item.params) > limits.ITEM_PARAMS:
                raise InputError(
                    f"items[{i}].params", f"has {len(item.params)} entries", f"At most {limits.ITEM_PARAMS} are taken."
                )
            if len(msgspec.json.encode(item)) > limits.ITEM_BYTES:
                raise InputError(f"items[{i}]", "is too large", f"At most {limits.ITEM_BYTES:,} bytes are taken.")
        if (other := first.setdefault(item.id, i)) != i:
            raise InputError(
                f"items[{i}].id",
                f"{item.id[:60]!r} is already items[{other}]",
                "Ids must be unique; remove one of them.",
            )
        made.append(item)
    return made


def catalogue_name(name: str) -> str:
    """A usable catalogue name. Raises InputError."""
    bounded("name", name, limits.NAME_BYTES)
    if not name.strip() or not name.isprintable():
        raise InputError("name", "is blank or not printable", "Use letters, digits, dashes or any printable text.")
    return name
