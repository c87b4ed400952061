"""How things look on a terminal; with --json, as they are."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

console = Console(width=None if sys.stdout.isatty() else 240)  # a pipe has no width: room for long rows
messages = Console(stderr=True)


def as_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, ensure_ascii=False))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows under headings; a hint if there are none."""
    shown = Table(*columns, box=None, header_style="bold", pad_edge=False)
    empty = True
    for row in rows:
        shown.add_row(*(_text(cell) for cell in row))
        empty = False
    if empty:
        messages.print("nothing to show")
    else:
        console.print(shown)


def fields(pairs: Sequence[tuple[str, Any]]) -> None:
    """Names and values; what has no value is left out."""
    shown = Table.grid(padding=(0, 2))
    for name, value in pairs:
        if value not in (None, "", [], {}):
            shown.add_row(f"[bold]{name}", _text(value))
    console.print(shown)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("[", r"\[")


@contextmanager
def bytes_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal for what is sent or fetched; call what it yields with the bytes of each part."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=messages, transient=True, disable=not messages.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def when(text: str | None) -> str:
    """A time without its fraction, and with its offset if it is not UTC."""
    if not text:
        return ""
    time = datetime.fromisoformat(text)
    return f"{time:%Y-%m-%d %H:%M:%S}{time:%z}" if time.utcoffset() else f"{time:%Y-%m-%d %H:%M:%S}"
