"""The tree of errors. The type alone says what follows (DESIGN §5); nothing else decides.

An upstream adapter raises the subclasses of `UpstreamError`. Whatever it raises outside of the tree is an adapter bug.
"""

from enum import StrEnum


class Verdict(StrEnum):
    """What follows from an error of an upstream."""

    JOB = "job"  # fatal for the job: failed, no retry
    ITEM = "item"  # fatal for one item: stored as its error, the chunk goes on
    LOGIN = "login"  # the session is stale: log in again once
    ACCOUNT = "account"  # not with this account: its rate falls, another seat takes the rest
    THROTTLED = "throttled"  # the account rests, its rate stays
    TRANSIENT = "transient"  # retried in place, then handed back with one attempt more
    BUG = "bug"  # handed back with one attempt more, no account is blamed


class CuscutaError(Exception):
    """The root of all errors of Cuscuta."""


class InputError(CuscutaError):
    """The caller's input is at fault. Carries the field and how to mend it; becomes a 4xx problem document."""

    def __init__(self, field: str, message: str, fix: str, status: int = 422) -> None:
        super().__init__(f"{field}: {message}. {fix}")
        self.field, self.message, self.fix, self.status = field, message, fix, status


class BrokerUnavailable(CuscutaError):
    """NATS did not answer in time, or has no leader at the moment. Worth trying again."""


class BrokerRefused(CuscutaError):
    """JetStream said no. `code` is its err_code."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code


class Conflict(BrokerRefused):
    """A compare-and-set lost: somebody else was first."""


class Standing(BrokerRefused):
    """The subject already stands in the work queue, so publishing again changed nothing."""


class QueueFull(BrokerRefused):
    """The stream is at its limit of messages or bytes."""


class NoRoom(BrokerRefused):
    """The stream has as many consumers as it may have, that is: `max_active_jobs` jobs are active."""


class TooLarge(BrokerRefused):
    """The message is bigger than the server takes."""


class DatabaseUnavailable(CuscutaError):
    """PostgreSQL did not answer. Worth trying again."""


class UpstreamError(CuscutaError):
    """The root of what an adapter raises. Use a subclass."""

    verdict = Verdict.TRANSIENT


class TargetNotFound(UpstreamError):
    """The upstream does not know the job's target."""

    verdict = Verdict.JOB


class CatalogueRefused(UpstreamError):
    """The upstream refuses the catalogue as a whole."""

    verdict = Verdict.JOB


class ItemNotFound(UpstreamError):
    """The upstream does not know this item."""

    verdict = Verdict.ITEM


class ItemRefused(UpstreamError):
    """The upstream will not answer for this item."""

    verdict = Verdict.ITEM


class ResultTooLarge(UpstreamError):
    """One item's result alone is bigger than NATS takes."""

    verdict = Verdict.ITEM


class AuthenticationFailed(UpstreamError):
    """The token or the password was not accepted."""

    verdict = Verdict.LOGIN


class AccountForbidden(UpstreamError):
    """This account may not do that."""

    verdict = Verdict.ACCOUNT


class AccountBanned(UpstreamError):
    """This account is locked out."""

    verdict = Verdict.ACCOUNT


class Throttled(UpstreamError):
    """The upstream asks to slow down. `retry_after_s` is what it asked for, None if it said nothing."""

    verdict = Verdict.THROTTLED

    def __init__(self, message: str = "the upstream asks to slow down", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UpstreamTimeout(UpstreamError):
    """No answer within the item's time."""


class UpstreamUnavailable(UpstreamError):
    """Connection refused or cut, or a 5xx."""


class BadAnswer(UpstreamError):
    """An answer that is not what the adapter expects."""


def verdict_of(error: BaseException) -> Verdict:
    """What follows from an error that an adapter raised."""
    return error.verdict if isinstance(error, UpstreamError) else Verdict.BUG
