"""Every bound of the system: its number, its unit, and why it is that number.

`docs/guarantees.md` prints this table and a test compares the two; `python -m cuscuta.limits` writes it.
Sources in brackets: [nats] shared/NATS.md, measured; [design] DESIGN.md; [chosen] by us, with the reason given.
"""

from typing import NamedTuple, TypeVar

Number = TypeVar("Number", int, float)


class Limit(NamedTuple):
    """One row of the table."""

    name: str
    value: int | float
    unit: str
    why: str


TABLE: list[Limit] = []


def _bound(name: str, value: Number, unit: str, why: str) -> Number:
    TABLE.append(Limit(name, value, unit, why))
    return value


CATALOGUE_ITEMS = _bound("CATALOGUE_ITEMS", 1_000_000, "items", "the largest catalogue that is tested [chosen]")
CATALOGUE_BODY_BYTES = _bound("CATALOGUE_BODY_BYTES", 64 << 20, "bytes", "a million items of 60 bytes [chosen]")
CATALOGUE_PAGE_ITEMS = _bound(
    "CATALOGUE_PAGE_ITEMS", 2_000, "items", "a worker loads only the pages of its chunks, so memory stays flat [chosen]"
)
CATALOGUE_PAGE_BYTES = _bound(
    "CATALOGUE_PAGE_BYTES", 512 << 10, "bytes", "half of NATS's default max_payload of 1 MiB [nats]"
)
CATALOGUE_PAGES_CACHED = _bound("CATALOGUE_PAGES_CACHED", 64, "pages", "about 32 MiB a process at the most [chosen]")
ITEM_ID_BYTES = _bound(
    "ITEM_ID_BYTES", 512, "bytes", "ids travel in URLs, whose parts are commonly cut at 1 KiB [chosen]"
)
ITEM_PARAMS = _bound("ITEM_PARAMS", 32, "entries", "one request's parameters; more is data, not parameters [chosen]")
ITEM_BYTES = _bound("ITEM_BYTES", 16 << 10, "bytes", "an item with its parameters; 32 such fit a page [chosen]")
NAME_BYTES = _bound("NAME_BYTES", 128, "bytes", "catalogue names are one token of a NATS subject [chosen]")
TARGET_BYTES = _bound("TARGET_BYTES", 1_024, "bytes", "three times the longest that users have (300 bytes) [chosen]")
LABELS = _bound("LABELS", 16, "entries", "kept in memory by every entry replica for each job [chosen]")
LABEL_BYTES = _bound("LABEL_BYTES", 128, "bytes", "a key or a value of a label [chosen]")
REQUEST_BODY_BYTES = _bound("REQUEST_BODY_BYTES", 1 << 20, "bytes", "any request but catalogues and imports [chosen]")
IMPORT_BODY_BYTES = _bound("IMPORT_BODY_BYTES", 8 << 20, "bytes", "IMPORT_ACCOUNTS lines of 160 bytes [chosen]")
IMPORT_ACCOUNTS = _bound("IMPORT_ACCOUNTS", 50_000, "accounts", "one import; more are several imports [chosen]")
PAGE_ROWS = _bound("PAGE_ROWS", 500, "rows", "one page of a list [chosen]")
FAILURES_KEPT = _bound("FAILURES_KEPT", 50, "failures", "in a JobTag; older ones are only counted [design §5]")
FAILURE_MESSAGE_CHARS = _bound("FAILURE_MESSAGE_CHARS", 300, "characters", "50 failures stay below 32 KiB [chosen]")
FAILURE_TYPES = _bound(
    "FAILURE_TYPES", 32, "types", "counts by type in a JobTag; the rest is counted as Other [chosen]"
)
MISSING_KEPT = _bound("MISSING_KEPT", 200, "spans", "missing spans listed in a terminal JobTag [chosen]")
GRID_CELLS = _bound(
    "GRID_CELLS", 4_096, "cells", "cut points of a catalogue; a 1,200-item catalogue can go out item by item [chosen]"
)
CHUNK_ITEMS = _bound("CHUNK_ITEMS", 1_000, "items", "a chunk's results stay well below a few MiB [chosen]")
CHUNK_LEAST = _bound(
    "CHUNK_LEAST",
    4,
    "-",
    "a chunk is at least about 1/4 of a seat's share (rounded down to a power of two) [measured]",
)
MAX_ACTIVE_JOBS = _bound(
    "MAX_ACTIVE_JOBS",
    100,
    "jobs",
    "100 consumers cost 8 % of a stream's throughput [nats §0], 37 % of its acknowledgements (docs/scale.md)",
)
URGENT_PLACES = _bound(
    "URGENT_PLACES",
    10,
    "-",
    "one place in 10 of max_active_jobs is for high priority, which need not wait for others [chosen]",
)
HEADS_KNOWN = _bound("HEADS_KNOWN", 10_000, "lanes", "whose head a process remembers, 300 bytes each [chosen]")
NEWCOMER_PLACES = _bound(
    "NEWCOMER_PLACES", 10, "-", "one place in 10 of max_active_jobs is for groups that have no active job [chosen]"
)
QUEUES_LOOKED_AT = _bound(
    "QUEUES_LOOKED_AT", 256, "queues", "of groups that admission reads, 0.2 ms each, to find the next job [nats §10]"
)
MAX_ACTIVE_JOBS_CEILING = _bound(
    "MAX_ACTIVE_JOBS_CEILING",
    1_000,
    "jobs",
    "1,000 consumers cost 64 % [nats §0], 900 cost 88 % of the acknowledgements",
)
BATCH_MESSAGES = _bound("BATCH_MESSAGES", 1_000, "messages", "the server's own limit of an atomic batch [nats §2]")
LANE_STOPS = _bound(
    "LANE_STOPS", 100, "jobs", "ended at once behind a failed one in their lane; the reaper goes on from there [chosen]"
)
AFTER = _bound("AFTER", 100, "jobs", "that one job may wait for [chosen]")
GRAPH_JOBS = _bound("GRAPH_JOBS", 1_000, "jobs", "that one graph shows [chosen]")
CANCELS = _bound("CANCELS", 1_000, "jobs", "that one request by filter cancels; it says how many are left [chosen]")
EVENTS_RECENT = _bound("EVENTS_RECENT", 1_000, "events", "in memory of an entry replica, for their readers [chosen]")
PROGRESS_KEPT = _bound("PROGRESS_KEPT", 1_000, "jobs", "whose progress an entry replica remembers for 0.5 s [chosen]")
FIRST_CHUNKS = _bound(
    "FIRST_CHUNKS", 100, "messages", "the first batch of a job: workers start while the rest goes out [chosen]"
)
LATER_CHUNKS = _bound(
    "LATER_CHUNKS", 250, "messages", "the batches after it: at 1,000 workers ran dry between two commits [measured]"
)
SCHEDULES = _bound("SCHEDULES", 10_000, "schedules", "5,000 at one instant fire within 0.4 s [nats §9]")
HOOKS_AT_ONCE = _bound("HOOKS_AT_ONCE", 16, "requests", "webhooks on their way from an entry replica [chosen]")
HOOKS_HELD = _bound("HOOKS_HELD", 500_000, "events", "that wait for the next try of their webhook [chosen]")
HOOK_GIVE_UP_S = _bound("HOOK_GIVE_UP_S", 86_400, "s", "a webhook is tried for a day [issue 4]")
HOOK_URL_BYTES = _bound("HOOK_URL_BYTES", 2_000, "bytes", "what browsers and proxies commonly take of a URL [chosen]")
BACKLOG_MESSAGES = _bound(
    "BACKLOG_MESSAGES", 1_000_000, "messages", "in CUSCUTA_WORK; past it a submit is refused with 503 [chosen]"
)
WORK_MESSAGES = _bound(
    "WORK_MESSAGES", 2_000_000, "messages", "what CUSCUTA_WORK takes: chunks find room behind a full backlog [chosen]"
)
BATCH_GET_SUBJECTS = _bound(
    "BATCH_GET_SUBJECTS", 1_024, "subjects", "a direct batch get answers 413 above it [nats §1]"
)
PULL_BATCH = _bound("PULL_BATCH", 128, "chunks", "quick chunks pulled at a time; more does not help [nats §4]")
PULL_WORK_S = _bound(
    "PULL_WORK_S", 0.05, "s", "work that one pull may take beyond a single chunk: no hoarding [chosen]"
)
WRITES_IN_FLIGHT = _bound("WRITES_IN_FLIGHT", 256, "writes", "results on their way from one process [chosen]")
RESULT_HEADROOM_BYTES = _bound(
    "RESULT_HEADROOM_BYTES", 4 << 10, "bytes", "subject and headers beside a value below max_payload [chosen]"
)
OFFERS = _bound("OFFERS", 8, "jobs", "accepted jobs that go past an idle admission queue at a time [chosen]")
WAIT_S = _bound("WAIT_S", 30.0, "s", "how long a request may wait for a job's end; proxies cut at 60 s [chosen]")
OUTPUT_BYTES = _bound("OUTPUT_BYTES", 32 << 20, "bytes", "on its way to NATS from one process, then it waits [chosen]")
ANSWER_BYTES = _bound("ANSWER_BYTES", 8 << 20, "bytes", "an upstream's answer; a longer one is cut off [chosen]")
KEEP_ALIVE_S = _bound(
    "KEEP_ALIVE_S",
    75,
    "s",
    "an idle connection stays: longer than most clients keep theirs [chosen]",
)
HEAD_S = _bound("HEAD_S", 10.0, "s", "for the head of a request, from its connection on; nginx gives 60 [chosen]")
BODY_S = _bound("BODY_S", 120.0, "s", "for the body of a request: 64 MiB at 4.5 Mbit/s [chosen]")
HEAD_BYTES = _bound("HEAD_BYTES", 64 << 10, "bytes", "of a request's head; nginx takes 32 KiB [chosen]")
OPEN_FILES = _bound(
    "OPEN_FILES", 65_536, "files", "of one process, if the system allows; each connection is one [chosen]"
)
EVENTS_AGE_S = _bound("EVENTS_AGE_S", 7 * 86_400, "s", "CUSCUTA_EVENTS [design §3]")
EVENTS_MESSAGES = _bound("EVENTS_MESSAGES", 5_000_000, "messages", "about 1 GiB of events [chosen]")
DEAD_AGE_S = _bound("DEAD_AGE_S", 30 * 86_400, "s", "CUSCUTA_DEAD [design §3]")
KV_CONSUMERS = _bound(
    "KV_CONSUMERS", 2_000, "consumers", "watchers of a bucket; the server's default is 1,000 [nats §0]"
)
DUTY_BATCH = _bound("DUTY_BATCH", 200, "jobs", "what one duty of the reaper mends in one round [chosen]")
REST_S = _bound(
    "REST_S", 86_400, "s", "the longest rest that a Retry-After can order; more is a mistake of its [chosen]"
)
THROTTLED_IN_PLACE = _bound(
    "THROTTLED_IN_PLACE", 3, "times", "throttled in a row, a chunk goes back: another account may be luckier [chosen]"
)
PACE_START_PER_S = _bound(
    "PACE_START_PER_S", 10.0, "calls/s", "of an account whose allowance is unknown; doubles in 0.25 s of good answers"
)
PACE_LEAST_PER_S = _bound(
    "PACE_LEAST_PER_S", 1 / 3600, "calls/s", "below one call an hour an account is no use to anybody [chosen]"
)
PACE_REMEMBERED = _bound(
    "PACE_REMEMBERED", 2_000, "answers", "of the last second; past 2,000 a second nobody limits an account [chosen]"
)
HEDGE_SHARE = _bound("HEDGE_SHARE", 0.03, "-", "of a job's items that may be asked for twice [issue 3]")
SEATS_PER_PROCESS = _bound("SEATS_PER_PROCESS", 256, "seats", "one event loop; more seats are more processes [chosen]")
TOKENS = _bound("TOKENS", 1_000, "tokens", "of the API, the dead ones of the last 30 days included [chosen]")
ADDRESSES = _bound("ADDRESSES", 10_000, "addresses", "whose wrong tokens a replica counts; about 2 MiB [chosen]")
JOBS_SUMMARISED = _bound(
    "JOBS_SUMMARISED", 500_000, "jobs", "in memory of an entry replica, about 1 KiB each; the oldest ended go first"
)


def _shown(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def table() -> str:
    """The limits as a Markdown table."""
    rows = [f"| `{row.name}` | {_shown(row.value)} | {row.unit} | {row.why} |" for row in TABLE]
    return "\n".join(["| limit | value | unit | why |", "| --- | --- | --- | --- |", *rows])


if __name__ == "__main__":
    print(table())
