"""The record of a schedule: when a job is submitted again and again, or once."""

import re
from datetime import datetime
from typing import Any

from msgspec import Struct

from cuscuta.model import When

_TIME = re.compile(r"\d{4}-?\d\d-?\d\dT")


class Schedule(Struct, frozen=True, omit_defaults=True):
    """A row of `cuscuta_schedules`; NATS itself fires it. `job` is the body of a POST /jobs.

    `when` is one of: five fields of cron, or six with seconds first; `@every 15m`; `@hourly` and the like; a time.
    """

    id: str
    when: str
    job: dict[str, Any]
    created_at: When
    time_zone: str | None = None  # of cron's fields; UTC if there is none
    digest: str = ""
    paused: bool = False
    done: bool = False  # a single time that has come
    began_at: When | None = None  # since when it runs: its making, or the end of its last pause
    fired_at: When | None = None
    uid: str | None = None  # the job that it made last
    error: str | None = None  # why it made none the last time

    @property
    def group(self) -> str:
        """Whose jobs it makes."""
        labels = self.job.get("labels")
        return str(labels.get("group", "")) if isinstance(labels, dict) else ""

    @property
    def once(self) -> datetime | None:
        """The time of a schedule that fires once."""
        return datetime.fromisoformat(self.when) if _TIME.match(self.when) else None

    @property
    def spec(self) -> str:
        """`when` as NATS takes it: cron has six fields, seconds first."""
        if (once := self.once) is not None:
            return f"@at {once.isoformat()}"
        return f"0 {self.when}" if len(self.when.split()) == 5 and self.when[0] != "@" else self.when
