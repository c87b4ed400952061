"""Whoever has sent a request: what he may do, and whose jobs are any of his business."""

from datetime import datetime
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cuscuta.db import Scope
from cuscuta.errors import InputError
from entry.requests import FollowUp, ScheduledJob

JobT = TypeVar("JobT", bound=FollowUp)


class Caller(Struct, frozen=True):
    """Whoever has sent a request. `token` is its id, "" where no tokens are asked for."""

    token: str
    scope: Scope
    group: str = ""
    expires_at: datetime | None = None

    def sees(self, group: str | None) -> bool:
        """Whether a group's jobs are any of its business; of None, whose group is not known, only `operate`'s."""
        return self.scope.includes(Scope.OPERATE) or group == self.group

    @property
    def view(self) -> str:
        """Callers of the same one see the same jobs."""
        return "all" if self.scope.includes(Scope.OPERATE) else f"group {self.group}"

    def own(self, job: JobT) -> JobT:
        """A job as this caller may submit it: labelled with its group, as what follows it. Raises InputError (403)."""
        group = self._group(job, "labels.group") or self.group
        mine = _labelled(job, group)
        if isinstance(mine, ScheduledJob):
            for field in ("on_success", "on_failure"):
                if (follow := getattr(mine, field)) is not None:
                    asked = self._group(follow, f"{field}.labels.group")
                    setattr(mine, field, _labelled(follow, asked or group))
        return mine

    def _group(self, job: FollowUp, field: str) -> str:
        asked = job.labels.get("group", "")
        if asked and not self.sees(asked):
            raise InputError(field, f"{asked[:60]!r} is not the group of this token", "Leave it out.", 403)
        return asked


def _labelled(job: JobT, group: str) -> JobT:
    return replace(job, labels={**job.labels, "group": group}) if group else job
