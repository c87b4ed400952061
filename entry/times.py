"""What a schedule's `when` means: checked before NATS gets it, and its next times for people. No I/O."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter

from cuscuta.errors import InputError
from cuscuta.schedule import Schedule

_EVERY = re.compile(r"@every ((?:\d+(?:\.\d+)?(?:h|m|s))+)")
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|m|s)")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0}
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIX = "Send cron (0 9 * * 1-5), @every 15m, @hourly and the like, or a time with its zone (2027-01-31T09:00:00+01:00)."
_LEAST_S = 1.0  # what NATS takes
_FAR = timedelta(days=36_525)


def zone(name: str | None) -> tzinfo:
    """A time zone by name; UTC if there is none. Raises InputError."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ValueError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError with no address of its own
        raise InputError("time_zone", f"there is no {name!r}", "Send a name such as Europe/Berlin.") from error
    except KeyError:
        raise InputError("time_zone", f"there is no {name!r}", "Send a name such as Europe/Berlin.") from None


def every_s(when: str) -> float | None:
    """Seconds between two times of `@every 1h30m`; None for anything else."""
    found = _EVERY.fullmatch(when)
    return sum(float(n) * _UNIT_S[unit] for n, unit in _PART.findall(found[1])) if found else None


def check(schedule: Schedule, now: datetime) -> None:
    """Raises InputError for a `when` that never comes or that nobody understands."""
    zone(schedule.time_zone)
    when = schedule.when
    try:
        once = schedule.once
    except ValueError:
        raise InputError("when", f"{when[:60]!r} is no time", _FIX) from None
    if once is not None:
        if once.tzinfo is None:
            raise InputError("when", "is a time without a zone", "End it with Z or an offset such as +01:00.")
        if once > now + _FAR:
            raise InputError("when", "is more than a hundred years away", "Send an earlier time.")
        if once <= now:
            raise InputError("when", f"is over: it is {now:%Y-%m-%dT%H:%M:%SZ}", "Send a time to come.")
    elif (seconds := every_s(when)) is not None:
        if seconds < _LEAST_S:
            raise InputError("when", "is less than a second", "Send at least @every 1s.")
    elif not _cron(when):
        raise InputError("when", f"{when[:60]!r} is no schedule", _FIX)
    elif next(following(schedule, now), None) is None:
        raise InputError("when", f"{when[:60]!r} never comes", _FIX)
    if schedule.time_zone and not _cron(when):
        raise InputError("time_zone", "goes with cron's fields only", "Leave it out; a single time has its own zone.")


def upcoming(schedule: Schedule, now: datetime, count: int = 5) -> list[datetime]:
    """The next times, none if it is paused or done."""
    if schedule.paused or schedule.done:
        return []
    return list(islice(following(schedule, now), count))


def following(schedule: Schedule, now: datetime) -> Iterator[datetime]:
    """All times after now."""
    when = schedule.when
    if (once := schedule.once) is not None:
        yield from [once] if once > now else []
    elif (seconds := every_s(when)) is not None:
        last = schedule.fired_at or schedule.began_at or schedule.created_at
        passed = max(0, int((now - last) / timedelta(seconds=seconds)))
        while True:
            passed += 1
            yield last + timedelta(seconds=seconds) * passed
    elif fields := _cron(when):
        local = now.astimezone(zone(schedule.time_zone))
        try:
            times = croniter(fields, local, second_at_beginning=True, max_years_between_matches=10)
            while True:
                yield times.get_next(datetime)
        except CroniterError:
            return


def _cron(when: str) -> str | None:
    fields = _NAMED.get(when, when)
    parts = fields.split()
    if len(parts) not in (5, 6) or not croniter.is_valid(fields, second_at_beginning=True):
        return None
    return fields
