"""Results as tables, made piece by piece: CSV for spreadsheets, Parquet for data frames."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

CSV, PARQUET = "text/csv", "application/vnd.apache.parquet"
_ROWS, _GROUP_BYTES = 20_000, 8 << 20  # of a row group, whichever comes first
_EXACT = 2**53  # up to here a float holds every whole number
Pieces = AsyncIterator[list[bytes]]  # items as the API has them, each JSON


async def as_csv(pieces: Pieces) -> AsyncIterator[bytes]:
    """Text as it is, anything else as JSON; an item without a value has an error instead."""
    yield b"index,id,value,error\r\n"
    async for items in pieces:
        text = io.StringIO(newline="")
        rows = csv.writer(text)
        for row in _rows(items):
            value, error = row.get("value"), _error(row)
            shown = value if isinstance(value, str) else "" if error else _json(value)
            rows.writerow([row["index"], row["id"], shown, error or ""])
        yield text.getvalue().encode()


def kinds(items: Iterable[bytes]) -> set[str]:
    """Which kinds of values there are; an item without a value has none."""
    return {_kind(row.get("value")) for row in _rows(items) if "error" not in row} - {"null"}


async def as_parquet(pieces: Pieces, found: set[str]) -> AsyncIterator[bytes]:
    """`value` is a number, a text or a truth where all values are, else JSON; `found` are the kinds of all values."""
    import pyarrow as pa  # 43 MB and half a second, for those that ask for it
    import pyarrow.parquet as pq

    kind = _column(found)
    types = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
    value_type, text = types.get(kind, pa.string()), pa.string()
    columns = [("index", pa.int64()), ("id", text), ("value", value_type), ("error", text)]
    schema = pa.schema(columns)
    sink = _Sink()
    writer = pq.ParquetWriter(sink, schema, compression="zstd")

    def write(rows: list[dict[str, Any]]) -> bytes:
        values = [row.get("value") if "error" not in row else None for row in rows]
        if kind == "number":
            values = [None if value is None else float(value) for value in values]
        if kind == "json":
            values = [None if "error" in row else _json(value) for row, value in zip(rows, values, strict=True)]
        names, errors = [row["id"] for row in rows], [_error(row) for row in rows]
        data = [[row["index"] for row in rows], names, values, errors]
        arrays = [pa.array(column, type=kind) for column, (_, kind) in zip(data, columns, strict=True)]
        writer.write_table(pa.table(arrays, schema=schema))
        return sink.taken()

    rows: list[dict[str, Any]] = []
    size = 0
    async for items in pieces:
        rows += _rows(items)
        size += sum(map(len, items))
        if len(rows) >= _ROWS or size >= _GROUP_BYTES:
            yield await asyncio.to_thread(write, rows)
            rows, size = [], 0
    if rows:
        yield await asyncio.to_thread(write, rows)
    await asyncio.to_thread(writer.close)
    yield sink.taken()


class _Sink:
    """A file that is only written to, and whose bytes go on at once."""

    closed = False

    def __init__(self) -> None:
        self._size, self._parts = 0, list[bytes]()

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _rows(items: Iterable[bytes]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(item) for item in items]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _error(row: dict[str, Any]) -> str | None:
    error = row.get("error")
    return f"{error['type']}: {error['message']}" if error else None


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if -_EXACT <= value <= _EXACT else "long" if -(2**63) <= value < 2**63 else "json"
    return {float: "number", str: "text", type(None): "null"}.get(type(value), "json")


def _column(found: set[str]) -> str:
    """The type of a column that holds values of these kinds, none of them changed by it."""
    if found and found <= {"integer", "long"}:
        return "integer"
    if found and found <= {"integer", "number"}:
        return "number"
    return next(iter(found)) if found in ({"text"}, {"boolean"}) else "json"
