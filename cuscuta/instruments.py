"""Every metric of the system: its name, kind, unit, meaning, attributes, and the part that knows it.

`docs/telemetry.md` prints this table and a test compares the two; `python -m cuscuta.instruments` writes it.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from opentelemetry import metrics

_METER = metrics.get_meter("cuscuta")
_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Adds(Protocol):
    """A counter: only ever rises."""

    def add(self, amount: int | float, attributes: Mapping[str, str] | None = None) -> None:
        """Count."""


class Sets(Protocol):
    """A gauge: what is so now."""

    def set(self, amount: int | float, attributes: Mapping[str, str] | None = None) -> None:
        """Say what is so."""


class Records(Protocol):
    """A histogram of seconds."""

    def record(self, amount: int | float, attributes: Mapping[str, str] | None = None) -> None:
        """One more of them."""


class Instrument(NamedTuple):
    """One row of the table."""

    name: str
    kind: str
    unit: str
    part: str
    meaning: str
    attributes: tuple[str, ...]

    @property
    def prometheus(self) -> str:
        """Its name at /metrics."""
        name = self.name.replace(".", "_") + ("_seconds" if self.unit == "s" else "")
        return name + ("_total" if self.kind == "counter" else "")


TABLE: list[Instrument] = []


def _counter(name: str, unit: str, part: str, meaning: str, *attributes: str) -> Adds:
    TABLE.append(Instrument(name, "counter", unit, part, meaning, attributes))
    return _METER.create_counter(name, unit, meaning)


def _gauge(name: str, unit: str, part: str, meaning: str, *attributes: str) -> Sets:
    TABLE.append(Instrument(name, "gauge", unit, part, meaning, attributes))
    return _METER.create_gauge(name, unit, meaning)


def _seconds(name: str, part: str, meaning: str, *attributes: str) -> Records:
    TABLE.append(Instrument(name, "histogram", "s", part, meaning, attributes))
    return _METER.create_histogram(name, "s", meaning, explicit_bucket_boundaries_advisory=_SECONDS)


JOBS_SUBMITTED = _counter(
    "cuscuta.jobs.submitted", "{job}", "entry", "jobs accepted of callers and schedules", "cuscuta.priority"
)
JOBS_ADMITTED = _counter("cuscuta.jobs.admitted", "{job}", "all", "jobs whose chunks were let out")
JOBS_ENDED = _counter("cuscuta.jobs.ended", "{job}", "all", "jobs that ended, whoever settled them", "cuscuta.status")
JOB_WAIT = _seconds("cuscuta.job.wait", "all", "from a job's acceptance to its admission")
JOB_DURATION = _seconds("cuscuta.job.duration", "all", "from a job's acceptance to its end", "cuscuta.status")
JOBS = _gauge("cuscuta.jobs", "{job}", "entry", "jobs that have not ended", "cuscuta.status")
OLDEST = _gauge("cuscuta.jobs.oldest", "s", "entry", "age of the job that has waited longest for admission")
BACKLOG = _gauge("cuscuta.backlog", "{item}", "entry", "items of jobs that have not ended and are not stored")
SEATS_USEFUL = _gauge("cuscuta.seats.useful", "{seat}", "entry", "seats that would find something to do now")
ACCOUNTS = _gauge("cuscuta.accounts", "{account}", "entry", "accounts by what they are doing", "cuscuta.state")
STREAM = _gauge("cuscuta.stream.messages", "{message}", "entry", "messages that stand in the work queue")

SEATS = _gauge("cuscuta.seats", "{seat}", "worker", "seats at a chunk, idle, or without an account", "cuscuta.state")
CHUNKS = _counter("cuscuta.chunks", "{chunk}", "worker", "chunks worked off, or why they were left", "cuscuta.outcome")
CHUNK_DURATION = _seconds("cuscuta.chunk.duration", "worker", "chunks in a seat's hands", "cuscuta.outcome")
ITEMS = _counter("cuscuta.items", "{item}", "worker", "items stored, with a value or an error", "cuscuta.outcome")
REDELIVERIES = _counter("cuscuta.redeliveries", "{chunk}", "worker", "chunks whose last holder died or fell silent")
GIFTS = _counter(
    "cuscuta.gifts", "{chunk}", "worker", "chunks handed to idle seats, and items asked for twice", "cuscuta.kind"
)
RIDES = _counter("cuscuta.rides", "{ride}", "worker", "times that a job took part in another one's polls")
CALLS = _seconds(
    "cuscuta.upstream.call.duration",
    "worker",
    "a call of the upstream; quicker ones than 0.5 ms only if they fail",
    "error.type",
)
LEASES_LOST = _counter("cuscuta.leases.lost", "{lease}", "worker", "leases that ended under a seat at work")

MENDED = _counter("cuscuta.reaper.mended", "{thing}", "reaper", "what a crash had left and was mended", "cuscuta.duty")
ROUND = _seconds("cuscuta.reaper.round.duration", "reaper", "one round of a duty", "cuscuta.duty")
ACTIVE = _gauge("cuscuta.reaper.active", "{replica}", "reaper", "1 in the replica that is at work, else 0")

CONNECTED = _gauge("cuscuta.nats.connected", "{connection}", "all", "1 while the connection to NATS stands, else 0")
RECONNECTS = _counter("cuscuta.nats.reconnects", "{time}", "all", "times that NATS was gone and came back")
READY = _gauge("cuscuta.ready", "{process}", "all", "1 while everything needed answers, else 0: what /readyz says")


def table() -> str:
    """All instruments as Markdown."""
    rows = [
        "| metric | at /metrics | kind | unit | part | meaning | attributes |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in TABLE:
        attributes = ", ".join(f"`{name}`" for name in one.attributes)
        names = f"| `{one.name}` | `{one.prometheus}` | {one.kind} | `{one.unit}` |"
        rows.append(f"{names} {one.part} | {one.meaning} | {attributes} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(table(), end="")
