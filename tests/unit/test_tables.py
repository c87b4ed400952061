"""Results as tables: what comes out is what went in, whatever the values are."""

import io
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entry import tables

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


async def pieces(values: list[Any], size: int) -> AsyncIterator[list[bytes]]:
    rows = [msgspec.json.encode({"index": i, "id": f"i{i}", "value": value}) for i, value in enumerate(values)]
    for at in range(0, len(rows), size):
        yield rows[at : at + size]


async def parquet(values: list[Any], size: int = 3) -> Any:
    found: set[str] = set()
    async for items in pieces(values, size):
        found |= tables.kinds(items)
    data = b"".join([part async for part in tables.as_parquet(pieces(values, size), found)])
    return pq.read_table(io.BytesIO(data)).column("value")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, None], "int64"),
        ([1, 2.5, None], "double"),
        (["a", "b"], "string"),
        ([True, None], "bool"),
        ([2**62, 1], "int64"),
        ([2**62, 1.5], "string"),  # a float would change it
        ([2**64], "string"),
        ([], "string"),
        ([None], "string"),
    ],
)
async def test_values_of_one_kind_have_its_type(values: list[Any], kind: str) -> None:
    column = await parquet(values)
    assert str(column.type) == kind
    shown = column.to_pylist()
    assert shown == values or [msgspec.json.decode(text) for text in shown] == values


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUES, max_size=20), st.integers(1, 5))
async def test_any_values_come_back(values: list[Any], size: int) -> None:
    read = (await parquet(values, size)).to_pylist()
    if read and all(isinstance(text, str) for text in read) and not all(isinstance(value, str) for value in values):
        read = [msgspec.json.decode(text) for text in read]
    assert read == values
