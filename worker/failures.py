"""Failures on their way into JobTags: gathered per job, written by one compare-and-set twice a second."""

import json
import traceback
from collections import defaultdict
from urllib.parse import quote, quote_plus

from cuscuta import limits
from cuscuta.broker import Bus
from cuscuta.broker.settle import note_failures
from cuscuta.errors import BrokerUnavailable
from cuscuta.model import Failure
from cuscuta.spans import Span

_EVERY_S = 0.5


def describe(error: BaseException, *secrets: str | None) -> str:
    """An error for a person: bounded, on one line, without the given secrets."""
    text = _one_line(str(error)) or type(error).__name__
    forms = {_one_line(form) for secret in filter(None, secrets) for form in _forms(secret)}
    for form in sorted(forms - {""}, key=len, reverse=True):  # one may begin as another does
        text = text.replace(form, "***")
    return text[: limits.FAILURE_MESSAGE_CHARS]


def _one_line(text: str) -> str:
    return " ".join(text.replace("\0", "").encode("utf-8", "replace").decode().split())


def _forms(secret: str) -> set[str]:
    """A secret as errors may quote it."""
    plain = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]}
    return plain | {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}


def where(error: BaseException) -> str:
    """File and line that raised an error; no values, which may be secret."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


class Failures:
    """What went wrong and is not in a tag yet; at most FAILURES_KEPT a job."""

    def __init__(self, bus: Bus, worker: str) -> None:
        self._bus, self._worker = bus, worker
        self._waiting: dict[str, list[Failure]] = defaultdict(list)

    def make(self, kind: str, message: str, span: Span | None, account: int | None, attempt: int | None) -> Failure:
        """A failure of this worker, now."""
        return Failure(kind, message, self._bus.clock.wall(), span, account, self._worker, attempt)

    def note(self, uid: str, failure: Failure) -> None:
        """Keep a failure for the next write."""
        waiting = self._waiting[uid]
        if len(waiting) < limits.FAILURES_KEPT:
            waiting.append(failure)

    async def flush(self) -> None:
        """Write what waits. What cannot be written now waits on."""
        for uid in list(self._waiting):
            failures = self._waiting.pop(uid, [])
            try:
                await note_failures(self._bus, uid, failures)
            except BrokerUnavailable:
                self._waiting[uid] = [*failures, *self._waiting.get(uid, [])][: limits.FAILURES_KEPT]
                return

    async def flush_for_ever(self) -> None:
        """Write twice a second."""
        while True:
            await self._bus.clock.sleep(_EVERY_S)
            await self.flush()
