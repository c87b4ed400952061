"""The errors of nats-py and of JetStream as ours, once."""

import contextlib
from typing import Any

import nats.errors

from cuscuta import errors

_PER_SUBJECT = "per subject"
_BY_CODE: dict[int, type[errors.BrokerRefused]] = {
    10071: errors.Conflict,
    10164: errors.Conflict,
    10026: errors.NoRoom,
    10054: errors.TooLarge,
}
_FULL = 10077
# too few servers for the replicas; no leader at the moment; a batch torn by a restart; more open batches than are taken
_PASSING = frozenset({10005, 10008, 10009, 10118, 10176, 10210})
NOT_FOUND = frozenset({10014, 10037, 10059})  # consumer, message, stream


def refused(error: dict[str, Any]) -> errors.CuscutaError:
    """JetStream's error object as one of ours."""
    code, text = int(error.get("err_code", error.get("code", 0))), str(error.get("description", ""))
    if code == _FULL:
        return (errors.Standing if _PER_SUBJECT in text else errors.QueueFull)(code, text)
    if code in _PASSING:
        return errors.BrokerUnavailable(text)
    return _BY_CODE.get(code, errors.BrokerRefused)(code, text)


@contextlib.contextmanager
def translated(operation: str) -> Any:
    """nats-py's errors as ours, named by the operation."""
    try:
        yield
    except nats.errors.MaxPayloadError as error:
        raise errors.TooLarge(10054, f"{operation}: {error}") from error
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise errors.BrokerUnavailable(f"{operation}: {error or type(error).__name__}") from error
