"""Records to bytes and back."""

from typing import Any, TypeVar

import msgspec

from cuscuta.errors import CuscutaError

RecordT = TypeVar("RecordT")


class RecordError(CuscutaError):
    """Bytes that should be one of our records are not."""


_encoder = msgspec.json.Encoder(decimal_format="number")
_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def encode(record: Any) -> bytes:
    """A record as JSON bytes."""
    return _encoder.encode(record)


def decode(data: bytes, kind: type[RecordT]) -> RecordT:
    """JSON bytes as a record of the given type. Raises RecordError with the reason and the path to the fault."""
    decoder = _decoders.get(kind) or _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    try:
        return decoder.decode(data)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"not a {kind.__name__}: {error}") from error
