"""Where a fault strikes: the messages between which the parts do their work, by what can be seen on the wire."""

from typing import Literal, NamedTuple

Part = Literal["entry", "worker", "reaper"]
Server = Literal["nats", "postgres", "upstream"]


class Moment(NamedTuple):
    """The n-th message of a part to a server that matches; a fault strikes before it arrives, or before its answer."""

    name: str
    part: Part
    server: Server
    pattern: bytes
    nth: int = 1
    debris: str = ""  # what the reaper is given to mend
    fresh: bool = False  # the part is started anew for it: it happens at its start
    queued: bool = False  # jobs do not go past the admission queue
    skip: int = 0  # of the same connection's messages: a statement is prepared first

    @property
    def what(self) -> str:
        return f"{self.part}: {self.name}"


_TAG = rb"H?PUB \$KV\.cuscuta_tags\."
_API = rb"H?PUB \$JS\.API\."

MOMENTS = [
    # A submit and its admission.
    Moment("submit, the tag", "entry", "nats", _TAG),
    Moment("submit, the lane's entry", "entry", "nats", rb"H?PUB cuscuta\.lane\."),
    Moment("submit, the admit message", "entry", "nats", rb"H?PUB cuscuta\.admit\.", queued=True),
    Moment("admission, taking the job", "entry", "nats", _API + rb"STREAM\.MSG\.DELETE\.CUSCUTA_WORK", queued=True),
    Moment("admission, the consumer", "entry", "nats", _API + rb"CONSUMER\.DURABLE\.CREATE\.CUSCUTA_WORK"),
    Moment("admission, fixing the seats", "entry", "nats", _TAG, 2),
    Moment("admission, the chunks", "entry", "nats", rb"H?PUB cuscuta\.chunk\."),
    Moment("admission, the active entry", "entry", "nats", rb"H?PUB \$KV\.cuscuta_active\."),
    Moment("admission, pending", "entry", "nats", _TAG, 3),
    Moment("admission, the event", "entry", "nats", rb"H?PUB cuscuta\.event\."),
    # A chunk.
    Moment("pull", "worker", "nats", _API + rb"CONSUMER\.MSG\.NEXT\."),
    Moment("log in", "worker", "upstream", rb"POST /login", fresh=True),
    Moment("follow", "worker", "upstream", rb"PUT /friends"),
    Moment("poll", "worker", "upstream", rb"GET /songs", 3),
    Moment("write", "worker", "nats", rb"H?PUB \$KV\.cuscuta_results\."),
    Moment("ack", "worker", "nats", rb"H?PUB \$JS\.ACK\.[^\n]*\n\+ACK"),
    Moment("donate", "worker", "nats", rb"H?PUB cuscuta\.chunk\."),
    # A job's end.
    Moment("settle, the tag", "worker", "nats", _TAG),
    Moment("settle, the event", "worker", "nats", rb"H?PUB cuscuta\.event\."),
    Moment("settle, the active entry", "worker", "nats", _API + rb"STREAM\.PURGE\.KV_cuscuta_active"),
    Moment("settle, the consumer", "worker", "nats", _API + rb"CONSUMER\.DELETE\.CUSCUTA_WORK"),
    Moment("settle, leaving the lane", "worker", "nats", _API + rb"STREAM\.PURGE\.CUSCUTA_WORK[^\n]*\n[^\n]*\.lane\."),
    Moment("settle, the lane's next", "worker", "nats", rb"H?PUB cuscuta\.admit\."),
    # The end of a job that another one follows: a worker ends it, and leaves the rest to entry.
    Moment("hand over", "worker", "nats", rb"H?PUB cuscuta\.announce[^\n]*\n[^\n]*\"follow\""),
    Moment("follow up, the next job", "entry", "nats", rb"H?PUB cuscuta\.admit\."),
    Moment("follow up, the event", "entry", "nats", rb"H?PUB cuscuta\.event\.", 2),
    Moment("follow up, the active entry", "entry", "nats", _API + rb"STREAM\.PURGE\.KV_cuscuta_active"),
    Moment("follow up, the consumer", "entry", "nats", _API + rb"CONSUMER\.DELETE\.CUSCUTA_WORK"),
    # An account's lease.
    Moment("lease", "worker", "postgres", rb"FOR UPDATE SKIP LOCKED", fresh=True, skip=1),
    Moment("renew", "worker", "postgres", rb"AS held", fresh=True, skip=1),
    Moment("release", "worker", "postgres", rb"SELECT CASE WHEN rate", fresh=True, skip=1),
    # Each duty of the reaper.
    Moment("a job in no queue", "reaper", "nats", rb"H?PUB cuscuta\.admit\.", debris="unqueued"),
    Moment("a lost consumer", "reaper", "nats", _API + rb"CONSUMER\.DURABLE\.CREATE", debris="consumer"),
    Moment("a lost active entry", "reaper", "nats", rb"H?PUB \$KV\.cuscuta_active\.", debris="active"),
    Moment("lost chunks", "reaper", "nats", rb"H?PUB cuscuta\.chunk\.", debris="chunks"),
    Moment("a deadline", "reaper", "nats", _TAG, debris="deadline"),
    Moment("an orphan's consumer", "reaper", "nats", _API + rb"CONSUMER\.DELETE", debris="orphan"),
    Moment("results without a job", "reaper", "nats", _API + rb"STREAM\.PURGE\.KV_cuscuta_results", debris="results"),
    Moment("a schedule that does not run", "reaper", "nats", rb"H?PUB cuscuta\.schedule\.", debris="schedule"),
    Moment("an expired lease", "reaper", "postgres", rb"FOR UPDATE SKIP LOCKED", debris="lease", fresh=True, skip=1),
    Moment("the lock", "reaper", "postgres", rb"pg_try_advisory_lock", fresh=True, skip=1),
]
